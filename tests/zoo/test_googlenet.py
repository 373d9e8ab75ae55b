"""GoogLeNet against PyTorch and against what torchvision publishes of it."""

from __future__ import annotations

import pytest

from agreement import assert_agrees, predicted


def test_published_count() -> None:
    """torchvision, GoogLeNet_Weights.IMAGENET1K_V1: 6,624,904 parameters, 1.498 GMAC, without auxiliary heads."""
    assert predicted("googlenet").parameters == 6_624_904
    assert predicted("googlenet").forward.matrix / 2e9 == pytest.approx(1.498, abs=0.002)


@pytest.mark.parametrize("spec", ["googlenet:dropout=0", "googlenet:image=96,classes=10,dropout=0"])
def test_it_agrees_with_the_module(spec: str) -> None:
    assert_agrees(spec, batch=2)
