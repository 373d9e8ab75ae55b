"""Ranks that are cores: what the thread that computes does besides, and how ranks get into each other's way."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.calibrated import calibrated, cold_launches, exchange_points, slowest, spread
from foretell.cost.chores import Chores
from foretell.cost.kernels import kernel_seconds
from foretell.cost.samples import Calibration, Exchange, Figure, Kernel, Machine, Sample, Step, form_of, sample
from foretell.cost.stage import Prices
from foretell.hardware import this_machine
from foretell.hardware.catalog import cluster
from foretell.model.operator import Part
from foretell.model.operators.elementwise import Elementwise
from foretell.oracle.predict import Prediction, predict
from foretell.plan.trainer import trainer
from foretell.program.action import Communicate, Compute, Update
from foretell.runtime.assignment import Assignment

PYTORCH = trainer("pytorch")
CORES = this_machine.processor(8, "a core", 2**34)
LLAMA = "llama:layers=2,hidden=128,heads=4,kv_heads=2,ffn=256,vocab=512,seq=32"
COPY = Kernel(operator={"operator": "elementwise", "function": "copy"}, sizes={"item": 2**20}, widths={"x": 4, "y": 4},
              parts=("forward",), precision="fp32")  # fmt: skip
CALLS = (
    sample("launch", Figure(name="call", unit="s"), [2e-6, 8e-6] * 3),  # with the caches as they were, and without
    sample("launch", Figure(name="autograd call", unit="s"), [20e-6, 50e-6] * 3),
    sample("launch", Step(model="mlp", batch=1, launches=10), [1e-4] * 3),
)


def measured(*samples: Sample) -> Calibration:
    machine = Machine(device="cpu-core", title="a core", kind="cpu", count=8, memory_bytes=2**34)
    return Calibration(machine=machine, samples=samples, complete=True)


def launch_seconds(items: int, part: str, found: Calibration) -> float:
    device = calibrated(CORES, PYTORCH, found).cluster.device
    cost = Elementwise("relu").part(part, {"item": items}, {"x": 4, "y": 4})
    action = Compute("", "elementwise", part, {"item": items}, cost)
    return float(kernel_seconds(action, device, form_of("fp32"), PYTORCH).launch)


# the host's code


@pytest.mark.parametrize(("part", "times"), [("forward", 4.0), ("input_gradient", 2.5)])
def test_code_of_the_host_is_cold_after_large_kernels(part: str, times: float) -> None:
    found = measured(*CALLS)
    assert launch_seconds(1, part, found) == pytest.approx(1e-5, rel=1e-3)
    assert launch_seconds(2**24, part, found) == pytest.approx(times * 1e-5)


@given(st.integers(1, 2**22), st.integers(1, 2**22))
def test_larger_kernels_leave_no_warmer_code(one: int, other: int) -> None:
    found = measured(*CALLS)
    less, more = sorted((one, other))
    assert launch_seconds(less, "forward", found) <= launch_seconds(more, "forward", found)


def test_many_sizes_leave_the_code_as_cold_as_each() -> None:
    device = calibrated(CORES, PYTORCH, measured(*CALLS)).cluster.device
    items = numpy.array([1, 2**12, 2**16, 2**24])
    cost = Elementwise("relu").part("forward", {"item": items}, {"x": 4, "y": 4})
    loops: dict[str, Any] = {"item": items}
    price = kernel_seconds(Compute("", "elementwise", "forward", loops, cost), device, form_of("fp32"), PYTORCH)
    assert list(price.launch) == [launch_seconds(int(one), "forward", measured(*CALLS)) for one in items]


def test_a_call_that_was_no_slower_is_not_faster() -> None:
    quick = measured(sample("launch", Figure(name="call", unit="s"), [4e-6, 3e-6] * 3))
    assert dict(cold_launches(quick))["launch forward"].factor(1, 1) == 1.0


# the slowest rank


@given(st.floats(0.0, 0.3), st.integers(1, 64), st.integers(1, 64))
def test_more_ranks_have_no_faster_slowest(apart: float, one: int, other: int) -> None:
    found = measured(sample("memory", COPY, [1 - apart, 1 - apart, 1 + apart, 1 + apart]))
    few, many = sorted((one, other))
    assert spread(found) == pytest.approx(apart)
    assert slowest(found, 1) == 1.0
    assert slowest(found, few) <= slowest(found, many)


def test_the_slowest_of_two_is_where_statistics_have_it() -> None:
    found = measured(sample("memory", COPY, [0.9, 0.9, 1.1, 1.1]))
    assert slowest(found, 2) == pytest.approx(1 + 0.1 * 0.564, rel=0.005)  # 1 / sqrt(pi) deviations


# full cores


def late(ranks: int, busy: int, *figures: Sample) -> float:
    """Seconds that a message takes longer with so many ranks busy than with none."""
    one = sample("collectives", Exchange(kind="all-reduce", ranks=ranks, payload=2**16), [1e-3])
    points = [exchange_points(CORES, measured(one, *figures), count)["all-reduce"][0][2] for count in (1, busy)]
    return 1e-3 * float(numpy.exp(points[1] - points[0]) - 1)


def test_messages_wait_for_a_core_only_where_all_are_busy() -> None:
    assert late(4, 4) == 0.0
    assert late(8, 8) == pytest.approx(2.8e-3 * 7 / 8)
    assert late(2, 8) == pytest.approx(2.8e-3 / 2)


def test_what_was_measured_of_late_messages_counts_instead() -> None:
    tried = [sample("collectives", Figure(name="late", unit="s", ranks=n), [x]) for n, x in ((4, 1e-3), (8, 7e-3))]
    assert late(4, 4, *tried) == pytest.approx(1e-3)
    assert late(8, 8, *tried) == pytest.approx(7e-3)
    assert late(2, 8, *tried) == pytest.approx(4e-3)


def test_groups_that_talk_at_once_are_as_slow_as_all_in_one() -> None:
    few, all_of_them = (
        sample("collectives", Exchange(kind="all-gather", ranks=n, payload=2**20), [x])
        for n, x in ((2, 1e-3), (4, 9e-3))
    )
    points = {busy: exchange_points(CORES, measured(few, all_of_them), busy)["all-gather"] for busy in (2, 4)}
    assert points[4][0][2] == points[2][1][2] > points[2][0][2]


# what the computing thread does for weights


def step(plan: str, batch: int = 8) -> Prediction:
    return predict(Assignment(model=LLAMA, plan=plan, batch=batch).setting(), CORES)


def test_gradients_of_one_micro_batch_are_added_to_nothing() -> None:
    alone, halves = step("dp1", batch=4), step("dp1 +m2", batch=8)
    parameters = 2 * (128 * 128 * 3 + 3 * 128 * 256 + 2 * 128) + 2 * 512 * 128 + 128
    adding = halves.breakdown["backward"] - 2 * alone.breakdown["backward"]
    least = 12 * parameters / CORES.device.memory_bandwidth  # two are read, one is written
    assert least <= adding <= 3 * least


def test_copies_are_a_processors_own() -> None:
    """On a GPU buckets and units are filled beside computation: nothing is added for them."""
    gather = Communicate("all-gather", ("dp",), 8, 2**20, "weights", "layers.0")
    update = Update("adamw", 2**20, Part(), False, 12)
    for where, there in ((CORES, True), (cluster("8xh100"), False)):
        chores = Chores(Prices((), where, form_of("fp32"), PYTORCH))
        seconds = (
            *chores.buckets(2**20, 4),
            chores.accumulated(2**20, 4),
            chores.of_unit(gather),
            chores.of_update(update),
        )
        assert all(one > 0 for one in seconds) if there else not any(seconds)


def test_the_update_of_weights_in_shares_goes_through_python() -> None:
    plain, shares = step("dp8:zero1"), step("dp8:zero3")
    assert shares.breakdown["optimizer"] > plain.breakdown["optimizer"]
