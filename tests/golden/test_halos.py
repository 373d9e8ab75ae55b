"""Halos of data+spatial beside its gradient exchange (Kahira et al. 2021, arXiv 2104.09075, section 5.3: about 60 %).

ResNet-50 on 128 V100, four to an image: all messages of a step take 0.1158 s in figure 3 (`paradl-063`). The sum is
near that bar and the ratio of the parts is not: halos are too long or gradients too short, likely because the constant
of split images was chosen on all messages of such plans together. Both are held here as they are, so that a mend of the
parts shows.
"""

from __future__ import annotations

import pytest

import foretell

MESSAGES = 0.1158
MEASURED = 0.6


@pytest.fixture(scope="module")
def parts() -> tuple[float, float]:
    """Exposed seconds of halos and of gradients."""
    model = "resnet50:image=226,strided_1x1=true"
    step = foretell.predict(
        model, "abci:128", "dp32 spatial4 +fp32", batch=2048, trainer="chainer", optimizer="adam"
    ).breakdown
    return step["exposed.spatial"], step["exposed.dp+spatial"] + step["exposed.dp"]


def test_the_sum_is_near_the_bar(parts: tuple[float, float]) -> None:
    assert sum(parts) == pytest.approx(MESSAGES, rel=0.10)


def test_the_ratio_is_missed_by_as_much_as_is_said(parts: tuple[float, float]) -> None:
    halos, gradients = parts
    assert MEASURED * 6 < halos / gradients < MEASURED * 8.5
