"""The order in which an engineer would try plans of one speed."""

from __future__ import annotations

import pytest

from foretell.oracle.simplicity import simplicity
from foretell.plan.text import parse

SIMPLER_FIRST = [
    ("dp16", "dp4:zero3,shard4"),  # ResNet-50 on 16 V100
    ("dp8", "dp2:zero3 tp4"),  # a toy of 10 M parameters
    ("dp8", "dp8:zero1"),
    ("dp8:zero1", "dp8:zero3"),
    ("dp8:zero3", "dp2:zero3,shard4"),
    ("dp64:zero3", "dp8:zero1 tp8:sp"),
    ("dp8:zero1 tp8:sp", "pp2:1f1b dp4:zero1 tp8:sp +m8"),
    ("dp8 tp2", "pp2:1f1b dp8 +m8"),
    ("pp4:1f1b dp8 +m16", "pp4:interleaved,v2 dp8 +m16"),
    ("pp4:interleaved,v2 dp8 +m16", "pp4:zb-h1 dp8 +m16"),
    ("pp4:zb-h1 dp8 +m16", "pp4:dualpipe dp8 +m16"),
    ("pp4:1f1b dp8 +m16", "pp4:1f1b,split=7/8/8/9 dp8 +m16"),
    ("dp8:zero1", "dp8:zero1 +recompute:block"),
    ("dp8 +recompute:block", "dp8 +recompute:every2"),
    ("dp8 +recompute:block", "dp8 +recompute:first2"),
    ("dp8 +recompute:block", "dp8 +offload:optimizer"),
    ("dp8 cp4", "dp8 cp4:alltoall"),
    ("dp8", "spatial2x4"),
    ("dp8", "filter8"),
    ("dp8:zero1 tp8:sp", "dp8:zero1,ep8 tp8:sp"),
    ("dp8", "dp8 +m4"),
]


@pytest.mark.parametrize(("simpler", "other"), SIMPLER_FIRST)
def test_the_simpler_plan_comes_first(simpler: str, other: str) -> None:
    assert simplicity(parse(simpler)) < simplicity(parse(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("dp8 tp2", "dp2 tp8"),
        ("pp4:interleaved,v2 dp8 +m16", "pp4:interleaved,v5 dp8 +m16"),
        ("dp8 +m4", "dp8 +m8"),
        ("dp8 +bf16", "dp8 +fp8"),
        ("dp8 tp1:sp", "dp8"),
    ],
)
def test_sizes_and_precision_make_no_plan_simpler(one: str, other: str) -> None:
    assert simplicity(parse(one)) == simplicity(parse(other))
