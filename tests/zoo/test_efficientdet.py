"""EfficientDet: published sizes, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, predicted
from foretell.errors import BadInput
from foretell.model import zoo

# Tan, Pang, Le 2020, arXiv 1911.09070, table 2, in millions
PUBLISHED = {
    "efficientdet-d0": 3.9e6,
    "efficientdet-d1": 6.6e6,
    "efficientdet-d2": 8.1e6,
    "efficientdet-d3": 12e6,
    "efficientdet-d4": 21e6,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: float) -> None:
    assert predicted(name).parameters == pytest.approx(count, rel=0.02)


def test_work_is_that_of_the_paper() -> None:
    """2.5 billion multiplications and additions of an image (the same table)."""
    assert predicted("efficientdet-d0").forward.matrix / 2 == pytest.approx(2.5e9, rel=0.05)


@pytest.mark.parametrize("spec", ["efficientdet-d0:image=128,classes=10", "efficientdet-d1:image=256,mixtures=2"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2)


def test_an_image_that_is_not_halved_often_enough() -> None:
    with pytest.raises(BadInput, match="image=500") as problem:
        zoo.load("efficientdet-d0:image=500")
    assert "image=512" in str(problem.value)
