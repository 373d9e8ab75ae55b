"""Three verdicts, communicators and contexts of devices: by hand, and in the order that they have to be."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.communicators import Communicator, communicator_bytes, communicators, registered_bytes
from foretell.cost.memory import MemoryUse, device_context
from foretell.hardware.catalog import cluster
from foretell.oracle.bands import ALWAYS
from foretell.oracle.memory_band import ADAPTERS, LIBRARIES, REASONS, SOFTWARE, band, doubts, spread
from foretell.oracle.predict import predict
from foretell.oracle.resolve import PlanEvaluator
from foretell.oracle.verdict import (
    FAILS,
    FITS,
    RETRIES,
    STUCK,
    VERDICTS,
    chance,
    interval_bytes,
    needed_bytes,
    sure_bytes,
    verdict,
)
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.mesh import mesh
from foretell.validation.calibrated import calibration
from foretell.validation.score import Verdict
from questions import asked

MIB, GIB = 2**20, 2**30
SPREAD = 0.1
USE = MemoryUse(60.0, 66.0, 69.0, (69.0,), {}, "")


def held(on: str, plan: str) -> dict[tuple[str, str], float]:
    """MiB of each communicator of a plan, by its axis and kind."""
    where = cluster(on)
    return {
        (one.axis, one.kind): communicator_bytes(one, where) / MIB for one in communicators(mesh(parse(plan)), where)
    }


def test_what_a_run_needs_is_its_tensors_what_is_stuck_between_them_and_the_context() -> None:
    assert needed_bytes(USE) == pytest.approx(STUCK * 60 + 3)
    assert [verdict(USE, usable, usable) for usable in (69.0, 68.9, 64.2, 64.1)] == [FITS, RETRIES, RETRIES, FAILS]


def test_the_chance_goes_with_the_room() -> None:
    found = [chance(USE, usable, SPREAD) for usable in (50.0, 60.0, 70.0, 80.0)]
    assert found == sorted(found) and 0 < found[0] < 0.05 and found[-1] > 0.95
    assert chance(USE, needed_bytes(USE), SPREAD) == pytest.approx(0.5)


SIZES = st.floats(1e6, 1e12)


@given(SIZES, st.floats(1.0, 1.3), st.floats(0.0, 1e10), st.floats(0.5, 2.0))
def test_the_chance_says_on_which_side_of_what_it_needs_a_run_has_room(
    allocated: float, kept: float, context: float, room: float
) -> None:
    reserved = allocated * kept
    device = reserved + context
    use = MemoryUse(allocated, reserved, device, (device,), {}, "")
    needed = needed_bytes(use)
    most = needed * room
    assert (chance(use, most, SPREAD) >= 0.5) == (most >= needed)
    assert chance(use, needed / sure_bytes(1.0, 0.9, SPREAD), SPREAD) == pytest.approx(0.9)
    low, high = interval_bytes(use, most, SPREAD)
    if most < needed:
        assert low < device < high  # what it would take
    else:
        assert 0 < low <= high <= most and low <= device
    tight = MemoryUse(allocated, STUCK * allocated, STUCK * allocated + context, (), {}, "")  # nothing is kept back
    ends = interval_bytes(tight, float("inf"), SPREAD)
    for end, share in zip(ends, (0.05, 0.95), strict=True):  # the interval and the chance are one thing
        assert chance(tight, end, SPREAD) == pytest.approx(share)


def test_less_that_is_known_is_a_wider_interval_and_a_smaller_chance() -> None:
    spreads = [spread(reasons) for reasons in ((ALWAYS,), (ALWAYS, ADAPTERS), tuple(REASONS))]
    assert spreads == sorted(spreads) and len(set(spreads)) == 3
    chances = [chance(USE, 80.0, own) for own in spreads]
    assert chances == sorted(chances, reverse=True)
    assert math.prod(band(REASONS).values()) == pytest.approx(math.exp(1.645 * spread(REASONS)), rel=1e-3)


def test_reasons_go_with_software_vendor_and_plan() -> None:
    def told(name: str, device: str, plan: str) -> tuple[str, ...]:
        return doubts(trainer(name), cluster(device).device, parse(plan))

    assert told("megatron-core", "8xh100", "dp8") == (ALWAYS,)
    assert told("fsdp", "8xmi300x", "dp8 +lora16") == (ALWAYS, LIBRARIES, ADAPTERS)
    assert told("megatron-lm-2021", "8xa100-80", "dp8") == (ALWAYS, SOFTWARE)
    assert told("torchtitan-2025", "8xh100", "dp8") == (ALWAYS,)  # the same software as today's
    assert told("pytorch", "4xcpu", "dp4") == (ALWAYS,)


def test_what_was_measured_of_communicators() -> None:
    """Four and two A100 by NVLink, all-reduces of 4 MiB: 688 and 544 MiB. Eight H100, all-to-all: 3.28 GB more."""
    assert held("4xa100-80", "dp4")["dp", "collective"] + 4 == 688
    assert held("2xa100-80", "dp2")["dp", "collective"] + 4 == 544
    exchange = held("8xh100", "dp8:ep8")["ep", "exchange"] - 12
    assert exchange * MIB == pytest.approx(3.28e9, rel=0.01)


def test_communicators_by_number_and_kind() -> None:
    inside = held("64xh100", "pp2:1f1b dp4:zero1 tp8:sp")
    assert set(inside) == {("pp", "point"), ("dp", "collective"), ("tp", "collective"), ("all", "collective")}
    assert inside["all", "collective"] == 12 + 16 * 28 + 8 * 32
    assert inside["tp", "collective"] == 12 + 24 * 28 + 8 * 32  # channels of NVLink, and the switch's sums
    assert inside["dp", "collective"] == 12 + 2 * 28  # one rank of each node
    assert inside["pp", "point"] == 12 + 2 * 14
    assert held("64xh100", "dp64:zero3")["dp", "collective"] == 12 + 16 * 28 + 8 * 32
    assert set(held("8xh100", "dp8:ep8")) == {("ep", "exchange"), ("ep", "collective")}
    assert held("8xl40s", "dp8")["dp", "collective"] == 12 + 2 * 28


def test_hybrid_ep_has_room_for_all_tokens_of_its_group() -> None:
    """DeepSeek-V3, 64 ranks in one NVLink domain, 4,096 tokens each in 16 bits with weights of 256 experts in 32."""
    rack = Communicator("ep", "exchange", 64, 64)
    assert registered_bytes(rack, 4096, 7168, 256) == 64 * 4096 * (2 * 7168 + 4 * 256)
    nodes = Communicator("ep", "exchange", 16, 8)  # half of the experts to a node, whose rows come from one other node
    one = 2 * 7168 + 4 * 128
    assert registered_bytes(nodes, 4096, 7168, 256) == 16 * 4096 * one + 4096 * (2 * 7168 + 3 * one)


def test_contexts_go_with_the_multiprocessors() -> None:
    assert device_context(cluster("8xh100").device) == 3 * 132 * MIB
    small, large = (predicted(on, "dp1 +bf16") for on in ("1xa100-80", "1xh100"))
    assert large["context"] - small["context"] == 3 * (132 - 108) * MIB


def predicted(on: str, plan: str) -> dict[str, float]:
    (question,) = asked("gpt2:layers=2", on, 8)
    found = predict(PlanEvaluator(question).setting(parse(plan)), cluster(on))
    assert found.needed_bytes <= found.memory_bytes == pytest.approx(sum(found.memory.by_kind.values()))
    assert (found.verdict == FITS) == found.fits
    assert found.memory_interval == interval_bytes(found.memory, found.most, spread(found.memory_band))
    return found.memory.by_kind


def test_communicators_are_told_apart() -> None:
    assert "communicators" not in predicted("8xh100", "dp1 +bf16")
    assert predicted("8xh100", "dp8 +bf16")["communicators"] == (12 + 24 * 28 + 8 * 32) * MIB


def test_verdicts_go_in_their_order_as_the_batch_grows() -> None:
    """Between those that fit and those that fail lies a batch that runs while the allocator gives back memory."""
    found: list[str] = []
    for batch in range(4, 80):
        (question,) = asked("gpt2", "1xrtx3090", batch)
        setting = PlanEvaluator(question).setting(parse("dp1 +bf16"))
        found.append(predict(setting, cluster("1xrtx3090")).verdict)
    assert list(dict.fromkeys(found)) == [FITS, RETRIES, FAILS]
    assert found == sorted(found, key=VERDICTS.index)


def test_of_those_foretold_with_a_chance_so_many_ran() -> None:
    told = [Verdict(True, True, 0.95)] * 9 + [
        Verdict(True, False, 0.93),
        Verdict(False, False, 0.05),
        Verdict(True, True, 1.0),
    ]
    found = calibration(told)
    assert [(one.least, one.most, one.runs, one.ran) for one in found] == [
        (0.99, 1.0, 1, 1.0),
        (0.9, 0.99, 10, 0.9),
        (0.0, 0.1, 1, 0.0),
    ]
    assert found[1].chance == pytest.approx(0.948)
