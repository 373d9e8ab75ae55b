"""Ranks that are cores: what the thread that computes does besides, and how ranks get into each other's way."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import foretell
from foretell.cost.calibrated import calibrated, cold_launches, exchange_points, slowest, spread
from foretell.cost.core_contention import CoreContention
from foretell.cost.cpu_host_work import CpuHostWork
from foretell.cost.kernels import kernel_seconds
from foretell.cost.price import priced
from foretell.cost.prices import Prices
from foretell.cost.samples import (
    Calibration,
    CollectiveSample,
    FigureSample,
    Kernel,
    MeasuredMachine,
    Sample,
    StepSample,
    expected,
    form_of,
    sample,
)
from foretell.hardware import this_machine
from foretell.hardware.catalog import cluster
from foretell.model.operator import OperatorPart
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.elementwise import Elementwise
from foretell.oracle.predict import Prediction, predict
from foretell.plan.trainer import trainer
from foretell.program.action import Communicate, Compute, Update
from foretell.program.blocks import working_elements
from foretell.runtime.assignment import Assignment
from foretell.timeline.simulate import simulate

PYTORCH = trainer("pytorch")
CORES = this_machine.processor(8, "a core", 2**34)
LLAMA = "llama:layers=2,hidden=128,heads=4,kv_heads=2,ffn=256,vocab=512,seq=32"
COPY = Kernel(operator={"operator": "elementwise", "function": "copy"}, sizes={"item": 2**20}, widths={"x": 4, "y": 4},
              parts=("forward",), precision="fp32")  # fmt: skip
CALLS = (
    sample(
        "launch", FigureSample(name="call", unit="s"), [2e-6, 8e-6] * 3
    ),  # with the caches as they were, and without
    sample("launch", FigureSample(name="autograd call", unit="s"), [20e-6, 50e-6] * 3),
    sample("launch", StepSample(model="mlp", batch=1, launches=10), [1e-4] * 3),
)


def measured(*samples: Sample) -> Calibration:
    machine = MeasuredMachine(device="cpu-core", title="a core", kind="cpu", count=8, memory_bytes=2**34)
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


def test_whole_steps_say_how_cold_the_code_is_where_they_were_timed_so() -> None:
    cold = sample("launch", StepSample(model="mlp", batch=1, launches=10, cold=True), [3e-4] * 3)
    found = measured(*CALLS, cold)
    assert launch_seconds(1, "forward", found) == pytest.approx(1e-5, rel=1e-3)  # a cold step is no launch by itself
    for part in ("forward", "input_gradient"):
        assert launch_seconds(2**24, part, found) == pytest.approx(3e-5)


@given(st.floats(1e-5, 1e-3), st.floats(1e-5, 1e-3), st.floats(0.5, 4.0))
def test_the_start_of_a_kernel_is_no_part_of_larger_ones(start: float, colder: float, ratio: float) -> None:
    """Whatever a kernel of next to nothing takes, warm and cold, larger ones of its kind are as fast as they are."""
    nothing, large = structs.replace(COPY, sizes={"item": 1}), COPY
    (action,) = large.actions()
    seconds = ratio * 2**23 / CORES.device.memory_bandwidth
    samples = [
        sample("memory", about, [start + own, start + colder + own] * 3)
        for about, own in ((nothing, 0.0), (large, seconds))
    ]
    device = calibrated(CORES, PYTORCH, measured(*CALLS, *samples)).cluster.device
    price = kernel_seconds(action, device, form_of("fp32"), PYTORCH)
    assert float(price.seconds - price.launch) == pytest.approx(seconds, rel=0.02)


def test_a_call_that_was_no_slower_is_not_faster() -> None:
    quick = measured(sample("launch", FigureSample(name="call", unit="s"), [4e-6, 3e-6] * 3))
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


def test_how_slow_the_slowest_was_counts_before_statistics() -> None:
    even = sample("memory", COPY, [0.9, 0.9, 1.1, 1.1])
    found = measured(
        even, *(sample("crowded", FigureSample(name="last", ranks=n), [x]) for n, x in ((2, 1.02), (8, 1.08)))
    )
    assert [slowest(found, ranks) for ranks in (1, 2, 5, 8)] == pytest.approx([1.0, 1.02, 1.05, 1.08])


# full cores


def late(ranks: int, busy: int, *figures: Sample) -> float:
    """Seconds that a message takes longer with so many ranks busy than with none."""
    one = sample("collectives", CollectiveSample(kind="all-reduce", ranks=ranks, payload=2**16), [1e-3])
    points = [exchange_points(CORES, measured(one, *figures), count)["all-reduce"][0][2] for count in (1, busy)]
    return 1e-3 * float(numpy.exp(points[1] - points[0]) - 1)


def test_messages_wait_for_a_core_only_where_all_are_busy() -> None:
    assert late(4, 4) == 0.0
    assert late(8, 8) == pytest.approx(2.8e-3 * 7 / 8)
    assert late(2, 8) == pytest.approx(2.8e-3 / 2)


def test_what_was_measured_of_late_messages_counts_instead() -> None:
    tried = [
        sample("collectives", FigureSample(name="late", unit="s", ranks=n), [x]) for n, x in ((4, 1e-3), (8, 7e-3))
    ]
    assert late(4, 4, *tried) == pytest.approx(1e-3)
    assert late(8, 8, *tried) == pytest.approx(7e-3)
    assert late(2, 8, *tried) == pytest.approx(4e-3)


def test_groups_that_talk_at_once_are_as_slow_as_all_in_one() -> None:
    few, all_of_them = (
        sample("collectives", CollectiveSample(kind="all-gather", ranks=n, payload=2**20), [x])
        for n, x in ((2, 1e-3), (4, 9e-3))
    )
    points = {busy: exchange_points(CORES, measured(few, all_of_them), busy)["all-gather"] for busy in (2, 4)}
    assert points[4][0][2] == points[2][1][2] > points[2][0][2]


def test_messages_that_were_timed_as_in_a_step_count_as_they_are() -> None:
    """Ranks came to them from computing: nothing is added, and what idle ranks took is forgotten."""
    about = CollectiveSample(kind="all-reduce", ranks=8, payload=2**16)
    calm, worked = sample("c", about, [1e-3]), sample("c", structs.replace(about, worked=True), [5e-3])
    alone = exchange_points(CORES, measured(worked), 8)
    assert (
        exchange_points(CORES, measured(calm, worked), 8) == exchange_points(CORES, measured(worked, calm), 8) == alone
    )
    assert exchange_points(CORES, measured(calm), 1)["all-reduce"][0][2] == pytest.approx(
        alone["all-reduce"][0][2] - math.log(5)
    )


def test_messages_that_were_timed_in_rows_count_before_single_ones() -> None:
    about = CollectiveSample(kind="all-reduce", ranks=8, payload=2**16, worked=True)
    single, row = sample("c", about, [1e-3]), sample("c", structs.replace(about, row=True), [3e-3])
    alone = exchange_points(CORES, measured(row), 8)
    assert exchange_points(CORES, measured(row, single), 8) == exchange_points(CORES, measured(single, row), 8) == alone
    longer = alone["all-reduce"][0][2] - exchange_points(CORES, measured(single), 8)["all-reduce"][0][2]
    assert longer == pytest.approx(math.log(3))


def test_a_message_that_made_a_row_no_longer_takes_no_negative_time() -> None:
    about = CollectiveSample(kind="all-reduce", ranks=8, payload=2**8, worked=True, row=True)
    ((*_, log),) = exchange_points(CORES, measured(sample("c", about, [-1e-4, 1e-5])), 8)["all-reduce"]
    assert math.isfinite(log)


# a machine that others use too


@given(st.floats(1.0, 3.0), st.floats(1.0, 3.0), st.integers(1, 16))
def test_kernels_take_as_much_longer_as_threads_are_held_up(alone: float, full: float, ranks: int) -> None:
    figures = [sample("crowded", FigureSample(name="held up", ranks=n), [x]) for n, x in ((1, alone), (8, full))]
    copy = sample("memory", COPY, [1e-2] * 6)
    (action,) = COPY.actions()
    seconds = [
        float(
            kernel_seconds(
                action, calibrated(CORES, PYTORCH, found, ranks).cluster.device, form_of("fp32"), PYTORCH
            ).seconds
        )
        for found in (measured(*CALLS, copy), measured(*CALLS, copy, *figures))
    ]
    between = alone + (full - alone) * min(ranks - 1, 7) / 7
    assert seconds[1] / seconds[0] == pytest.approx(between)


# calls that are no two alike


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=60))
def test_what_is_expected_of_a_call_lies_among_its_times(times: list[float]) -> None:
    assert min(times) * (1 - 1e-12) <= expected(times) <= max(times) * (1 + 1e-12)


def test_a_call_in_three_that_takes_longer_counts() -> None:
    assert expected([1.0, 1.0, 4.0] * 4) == pytest.approx(1.9)  # of twelve, the lowest and the highest are left out


@given(st.lists(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=5), min_size=1, max_size=4))
def test_passes_of_a_sample_are_told_apart(passes: list[list[float]]) -> None:
    first, *others = (sample("memory", COPY, values) for values in passes)
    for one in others:
        first = first.and_again(one)
    assert [list(values) for values in first.by_pass] == passes
    assert sorted(first.values) == sorted(value for values in passes for value in values)


def test_a_core_that_is_slower_in_another_pass_is_no_less_even() -> None:
    fast, slow = ([x * y for y in (0.9, 0.9, 1.1, 1.1)] for x in (1.0, 2.0))
    one, other = sample("memory", COPY, fast), sample("memory", COPY, slow)
    assert spread(measured(one.and_again(other))) == pytest.approx(spread(measured(one)))


# cores that share caches and memory


def crowd(ranks: int, **copies: float) -> CoreContention:
    """With copies of so many bytes that took so many times as long on two ranks."""
    figures = [FigureSample(name="crowded copy", ranks=2, bytes=int(size[1:])) for size in copies]
    found = [sample("crowded", about, [times]) for about, times in zip(figures, copies.values(), strict=True)]
    product = sample("crowded", FigureSample(name="crowded product", ranks=2), [1.25])
    return CoreContention.of(measured(product, *found), ranks)


def test_what_a_cores_own_cache_has_room_for_nobody_slows() -> None:
    two = crowd(2, _1024=1.0, _1048576=2.0)
    assert [two.copied(size) for size in (5, 11, 16, 21, 30)] == [1.0, 1.0, 1.5, 2.0, 2.0]  # log2 of bytes moved
    assert two.product == 1.25
    assert crowd(1, _1024=1.0, _1048576=2.0).copied(30) == 1.0


@given(st.floats(0, 40), st.floats(0, 40), st.floats(1, 3), st.floats(0, 2))
def test_more_data_is_slowed_no_less(one: float, other: float, first: float, more: float) -> None:
    two = crowd(2, _1024=first, _65536=first + more / 2, _1048576=first + more)
    less, most = sorted((one, other))
    assert two.copied(less) <= two.copied(most) + 1e-12


def test_a_record_of_one_size_is_for_all() -> None:
    assert {crowd(2, _0=1.5).copied(size) for size in (0, 10, 30)} == {1.5}


# what the computing thread does for weights


def step(plan: str, batch: int = 8) -> Prediction:
    return predict(Assignment(model=LLAMA, plan=plan, batch=batch).setting, CORES)


def test_gradients_of_one_micro_batch_are_added_to_nothing() -> None:
    alone, halves = step("dp1", batch=4), step("dp1 +m2", batch=8)
    parameters = 2 * (128 * 128 * 3 + 3 * 128 * 256 + 2 * 128) + 2 * 512 * 128 + 128
    adding = halves.breakdown["backward"] - 2 * alone.breakdown["backward"]
    least = 12 * parameters / CORES.device.memory_bandwidth  # two are read, one is written
    assert least <= adding <= 3 * least


@pytest.mark.parametrize(
    "plan",
    ["dp1 +m4", "dp4", "dp4 +m2", "dp4:zero1", "dp4:zero2", "dp4:zero3 +m2", "pp2:1f1b +m4", "pp2:gpipe dp2 +m4"],
)
def test_a_step_of_cores_is_simulated_with_their_chores(plan: str) -> None:
    """The judge of the composition plays what the computing thread does for weights, too.

    The composition adds gradients up in every pass and takes the first time off at the end: buckets hide behind it.
    """
    setting = Assignment(model=LLAMA, plan=plan, batch=16).setting
    played = simulate(priced(setting, CORES))
    assert predict(setting, CORES).step_seconds == pytest.approx(played.step_seconds, rel=0.06)


def test_copies_are_a_processors_own() -> None:
    """On a GPU buckets and units are filled beside computation: nothing is added for them."""
    gather = Communicate("all-gather", ("dp",), 8, 2**20, "weights", "layers.0")
    update = Update("adamw", 2**20, OperatorPart(), False, 12)
    for where, there in ((CORES, True), (cluster("8xh100"), False)):
        chores = CpuHostWork(Prices((), where, form_of("fp32"), PYTORCH))
        seconds = (
            *chores.buckets(2**20, 4),
            chores.accumulated(2**20, 4),
            chores.of_unit(gather),
            chores.of_update(update),
        )
        assert all(one > 0 for one in seconds) if there else not any(seconds)


def test_copies_of_weights_in_shares_cost_what_was_timed() -> None:
    gather = Communicate("all-gather", ("dp",), 8, 2**20, "weights", "layers.0")
    seconds = {
        byte: CpuHostWork(
            Prices(
                (),
                calibrated(
                    CORES, PYTORCH, measured(*CALLS, sample("shares", FigureSample(name="shared byte"), [byte]))
                ).cluster,
                form_of("fp32"),
                PYTORCH,
            )
        ).of_unit(gather)
        for byte in (1e-9, 2e-9)
    }
    assert seconds[2e-9] - seconds[1e-9] == pytest.approx(1e-9 * 8 * 2**20 / 3)  # a third in each visit of a step


def test_the_search_holds_images_in_blocks_as_predictions_do() -> None:
    best = foretell.plan("lenet", "2xcpu-core", 32, only=("dp", "filter")).best
    assert best is not None
    found = foretell.predict("lenet", "2xcpu-core", best.plan, 32, calibration="none")
    assert (found.memory_bytes, found.step_seconds) == (best.memory_bytes, best.step_seconds)


def test_the_update_of_weights_in_shares_goes_through_python() -> None:
    plain, shares = step("dp8:zero1"), step("dp8:zero3")
    assert shares.breakdown["optimizer"] > plain.breakdown["optimizer"]


# what a library holds for convolutions


def images(channels: int, filters: int, samples: int = 32, kernel: int = 3) -> tuple[Convolution, dict[str, int]]:
    one = Convolution(kernel=(kernel,) * 2, stride=(1, 1), padding=(kernel // 2,) * 2, dilation=(1, 1))
    return one, {"sample": samples, "group": 1, "in": channels, "out": filters, "height": 8, "width": 8}


@given(st.integers(1, 100), st.integers(1, 100), st.sampled_from(["forward", "input_gradient", "weight_gradient"]))
def test_copies_of_convolutions_are_whole_blocks(channels: int, filters: int, part: str) -> None:
    operator, n = images(channels, filters)
    fuller = {**n, "in": -(-channels // 16) * 16, "out": -(-filters // 16) * 16}
    held = working_elements(operator, n, part, 16)
    made = {"forward": "y", "input_gradient": "x", "weight_gradient": "w"}[part]
    assert held >= operator.elements(made, fuller)  # the result in blocks, at least
    assert held <= sum(operator.elements(operand, fuller) for operand in "xwy")


@pytest.mark.parametrize(
    ("channels", "filters", "part", "seen"),
    [  # allocations of PyTorch 2.13 on a core with AVX-512: 128 images of 28 x 28, filters of 5 x 5
        (1, 6, "forward", 6422528),
        (1, 6, "input_gradient", 2 * 6422528 + 25600 - 401408),
        (1, 6, "weight_gradient", 6422528 + 1000),
    ],
)
def test_copies_of_a_convolution_are_those_that_were_seen(channels: int, filters: int, part: str, seen: int) -> None:
    operator = Convolution(kernel=(5, 5), stride=(1, 1), padding=(2, 2), dilation=(1, 1))
    n = {"sample": 128, "group": 1, "in": channels, "out": filters, "height": 28, "width": 28}
    assert 4 * working_elements(operator, n, part, 16) == pytest.approx(seen, rel=0.01)


def test_few_samples_of_single_pixels_are_a_plain_product() -> None:
    assert not working_elements(*images(64, 64, samples=8, kernel=1), "forward", 16)
    assert working_elements(*images(64, 64, samples=16, kernel=1), "forward", 16)
