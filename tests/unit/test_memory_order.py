"""Images that a model itself lays with channels innermost."""

from __future__ import annotations

import pytest

from foretell.model.memory_order import turned_convolutions
from foretell.model.operators.convolution import Convolution
from foretell.model.source import load


def test_convnext_turns_all_but_its_first_images() -> None:
    """Its stem reads the input as it comes; every later convolution reads what was normed with channels last."""
    graph = load("convnext-tiny", 2)
    turned = {graph.blocks[at].nodes[index].path for at, index in turned_convolutions(graph)}
    every = {node.path for _, node in graph.nodes() if isinstance(node.operator, Convolution)}
    assert every - turned == {"downsamples.0.conv"}


@pytest.mark.parametrize("model", ["resnet50", "vgg16", "vit-b-16", "efficientnet-b0", "unet2d"])
def test_models_that_keep_their_images(model: str) -> None:
    assert not turned_convolutions(load(model, 2))
