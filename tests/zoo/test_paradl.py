"""The oracle paper's networks: agreement of their graphs with PyTorch."""

import pytest

from agreement import assert_agrees
from foretell.errors import BadInput
from foretell.model import zoo


@pytest.mark.parametrize("spec", ["alexnet-paradl", "vgg16-paradl", "resnet50-paradl", "cosmoflow512-paradl"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2)


def test_repeated_blocks_of_resnet_are_found() -> None:
    graph = zoo.load("resnet50-paradl")
    assert [block.times for block in graph.blocks if block.times > 1] == [2, 3, 5, 2]


def test_an_unknown_network() -> None:
    with pytest.raises(BadInput, match="resnet51"):
        zoo.load("paradl:network=resnet51")
