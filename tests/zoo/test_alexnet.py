"""AlexNet: published sizes, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, predicted
from foretell.errors import BadInput
from foretell.model import zoo

# torchvision documentation, "AlexNet" (num_params); Caffe's bvlc_alexnet, which has the paper's two towers
PUBLISHED = {"alexnet": 61_100_840, "alexnet-grouped": 60_965_224}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


def test_work() -> None:
    # torchvision documentation: 0.71 billion multiply-adds an image
    assert predicted("alexnet").forward.matrix / 2e9 == pytest.approx(0.71, abs=0.005)


@pytest.mark.parametrize("spec", ["alexnet:dropout=0", "alexnet-grouped:dropout=0", "alexnet:image=96,dropout=0"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)


def test_agrees_with_dropout() -> None:
    # the CPU keeps a dropout mask in the activations' type, a GPU as bytes
    assert_agrees("alexnet", batch=2)


def test_groups_must_divide_filters() -> None:
    with pytest.raises(BadInput, match="5 groups"):
        zoo.load("alexnet:groups=5")
