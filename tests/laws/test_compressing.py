"""Kernels that make gradients smaller: every method has them, and both ways of finding a step's time count them."""

from __future__ import annotations

import pytest

from foretell.cost.compressing import KERNELS, compressing
from foretell.cost.kernels import memory_rate
from foretell.cost.price import priced
from foretell.hardware.catalog import cluster
from foretell.hardware.members import device
from foretell.oracle.predict import predict
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.policies.compression import Compression
from foretell.plan.text import parse
from foretell.timeline.result import composed
from foretell.timeline.simulate import simulate

H100 = device("h100")
WAYS = ["fp16", "int8", "ternary", "qsgd16", "1bit", "topk0.01", "dgc0.01", "threshold0.01", "powersgd4"]
SMALL = "gpt:layers=4,hidden=512,heads=8,vocab=1024,seq=128"


def test_every_method_has_kernels_but_those_whose_factors_are_there_anyway() -> None:
    methods = {parse(f"dp2 +compress:{way}").policy(Compression).method for way in [*WAYS, "factors8"]}
    assert methods - {"factors"} == set(KERNELS)


def test_int8_by_hand() -> None:
    """Written once, 45 bytes a number; read for each of four ranks, 21 bytes; three kernels and one begin each time."""
    write, read = compressing(Compression(width="int8"), 1e9, 10, 4, H100)
    assert write == pytest.approx(45e9 / memory_rate(H100) + 3 * 4.5e-6 * 10)
    assert read == pytest.approx(4 * (21e9 / memory_rate(H100) + 4.5e-6 * 10))
    assert compressing(Compression(width="int8"), 1e9, 10, 1, H100) == (0, 0)
    assert compressing(Compression(), 1e9, 10, 4, H100) == (0, 0)


@pytest.mark.parametrize("way", WAYS)
def test_composition_and_simulation_have_the_same_kernels(way: str) -> None:
    setting = resolve(Request(model=SMALL, plan=parse(f"dp8 +bf16 +compress:{way}"), batch=64)).setting
    plan = priced(setting, cluster("8xh100"))
    whole = composed(plan, cluster("8xh100"), whole=True).step_seconds
    assert whole == pytest.approx(simulate(plan).step_seconds, rel=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_writing_gradients_smaller_takes_time_where_messages_are_free(way: str) -> None:
    plain, smaller = (
        predict(
            resolve(Request(model=SMALL, plan=parse(f"dp8 +bf16 +captured{more}"), batch=64)).setting,
            cluster("8xh100"),
        ).breakdown["backward"]
        for more in ("", f" +compress:{way}")
    )
    assert smaller > plain
