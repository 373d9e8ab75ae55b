"""Laws that every pipeline schedule obeys, checked by going through the lists with code of their own."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.plan.schedule import PassTimes, Schedule, Slot, find, replay, schedules

Order = tuple[tuple[Slot, ...], ...]
Case = tuple[str, int, int, int]
"""Name, ranks, micro-batches, chunks."""


def _cases() -> list[Case]:
    found: list[Case] = []
    for name, schedule in schedules().items():
        most = schedule.most_chunks or 4
        sizes = ((p, m, v) for p in range(1, 9) for m in range(1, 25) for v in range(schedule.least_chunks, most + 1))
        found += [(name, *size) for size in sizes if not any(schedule.refusals(*size))]
    return found


CASES = _cases()
cases = st.sampled_from(CASES)


def cases_of(name: str) -> st.SearchStrategy[Case]:
    return st.sampled_from([case for case in CASES if case[0] == name])


times = st.integers(1, 9).map(Fraction)


def shares(schedule: Schedule, chunks: int) -> Fraction:
    """Slots of a rank for each micro-batch in 1/ranks of the model."""
    return Fraction(chunks, schedule.copies)


def spans(order: Order, seconds: dict[str, Fraction], pairs: set[Slot] | None = None) -> list[tuple[Fraction, ...]]:
    """First start, last end and time at work of each rank; fails where ranks wait for each other.

    What a micro-batch's slot waits for is read from the list itself: a micro-batch visits stages in
    rising order, and comes back in falling order.
    """
    visits: dict[int, list[int]] = defaultdict(list)
    for slots in order:
        for kind, stage, microbatch in slots:
            if kind == "F":
                visits[microbatch].append(stage)
    ends: dict[tuple[str, int, int], Fraction] = {}

    def before(slot: Slot) -> tuple[str, int, int] | None:
        kind, stage, microbatch = slot
        way = sorted(visits[microbatch])
        at = way.index(stage)
        if kind == "W":
            return ("back", stage, microbatch)
        if kind == "F":
            return ("F", way[at - 1], microbatch) if at else None
        return ("back", way[at + 1], microbatch) if at + 1 < len(way) else ("F", stage, microbatch)

    reached = [0] * len(order)
    clocks = [Fraction(0)] * len(order)
    starts: list[Fraction | None] = [None] * len(order)
    moved = True
    while moved:
        moved = False
        for rank, slots in enumerate(order):
            if reached[rank] == len(slots):
                continue
            now = slots[reached[rank]]
            group = slots[reached[rank] : reached[rank] + (2 if pairs and now in pairs else 1)]
            needs = [need for slot in group if (need := before(slot))]
            if any(need not in ends for need in needs):
                continue
            start = max([clocks[rank], *(ends[need] for need in needs)])
            clocks[rank] = start + sum(seconds[slot.kind] for slot in group)
            for kind, stage, microbatch in group:
                ends["back" if kind in "BI" else kind, stage, microbatch] = clocks[rank]
            starts[rank] = start if starts[rank] is None else starts[rank]
            reached[rank] += len(group)
            moved = True
    assert reached == [len(slots) for slots in order], "ranks wait for each other"
    work = [sum((seconds[slot.kind] for slot in slots), Fraction(0)) for slots in order]
    return [(start or Fraction(0), clock, busy) for start, clock, busy in zip(starts, clocks, work, strict=True)]


def idle(case: Case, forward: Fraction, input_gradient: Fraction, weight_gradient: Fraction) -> Fraction:
    """Idle time of the worst rank between its first slot and its last."""
    name, ranks, microbatches, chunks = case
    schedule = find(name)
    parts = {"F": forward, "I": input_gradient, "W": weight_gradient, "B": input_gradient + weight_gradient}
    seconds = {kind: time / shares(schedule, chunks) for kind, time in parts.items()}
    blocks = schedule.blocks(ranks, microbatches, chunks)
    pairs = {block[0] for row in blocks for block in row if len(block) == 2}
    return max(end - start - busy for start, end, busy in spans(schedule.order(*case[1:]), seconds, pairs))


@given(cases)
def test_every_micro_batch_goes_once_through_every_part_of_the_model_and_back(case: Case) -> None:
    name, ranks, microbatches, chunks = case
    schedule = find(name)
    seen: dict[tuple[int, int], list[str]] = defaultdict(list)
    for rank, slots in enumerate(schedule.order(ranks, microbatches, chunks)):
        for kind, stage, microbatch in slots:
            assert schedule.rank_of(stage, ranks, chunks) == rank
            seen[schedule.part_of(stage, ranks, chunks), microbatch].append(kind)
    parts = schedule.parts(ranks, chunks)
    assert set(seen) == {(part, microbatch) for part in range(parts) for microbatch in range(microbatches)}
    allowed = {("F", "B"), ("F", "I", "W")} if schedule.splits_backward else {("F", "B")}
    assert {tuple(kinds) for kinds in seen.values()} <= allowed


@given(cases)
def test_ranks_never_wait_for_each_other(case: Case) -> None:
    spans(find(case[0]).order(*case[1:]), dict.fromkeys("FBIW", Fraction(1)))


@given(cases)
def test_micro_batches_keep_their_turn_at_every_stage(case: Case) -> None:
    for slots in find(case[0]).order(*case[1:]):
        turns: dict[tuple[str, int], list[int]] = defaultdict(list)
        for kind, stage, microbatch in slots:
            turns["W" if kind == "W" else "F" if kind == "F" else "back", stage].append(microbatch)
        assert all(taken == sorted(taken) for taken in turns.values())


@given(cases)
def test_the_activations_in_flight_are_those_that_the_list_reaches(case: Case) -> None:
    name, ranks, microbatches, chunks = case
    schedule = find(name)
    if not schedule.flushes:
        microbatches += 2 * ranks  # the next rounds follow without a pause
    _in_flight(schedule, ranks, microbatches, chunks, case[2])


@pytest.mark.parametrize("name", ["1f1b", "interleaved"])
@given(st.data())
def test_pairs_hold_no_more_than_the_forward_before_them(name: str, data: st.DataObject) -> None:
    """Layer by layer the backward of a pair lets go of what its forward makes: the count of the schedule alone."""
    _, ranks, microbatches, chunks = data.draw(cases_of(name))
    schedule = find(name).in_pairs()
    _in_flight(schedule, ranks, microbatches, chunks, microbatches)
    blocks = schedule.blocks(ranks, microbatches, chunks)
    assert all([slot.kind for slot in block] == ["B", "F"] for row in blocks for block in row if len(block) == 2)


def _in_flight(schedule: Schedule, ranks: int, microbatches: int, chunks: int, told: int) -> None:
    """Walks the lists of all ranks: the most that each holds is what the schedule says of so many micro-batches."""
    for rank, slots in enumerate(schedule.order(ranks, microbatches, chunks)):
        held, most = 0, 0
        for kind, _, _ in slots:
            held += {"F": 1, "I": 0}.get(kind, -1)
            most = max(most, held)
        assert held == 0
        assert schedule.in_flight(rank, ranks, told, chunks) == float(most / shares(schedule, chunks))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-h1"])
@given(st.data(), times, times, times)
def test_the_papers_bubble_is_that_of_the_list(
    name: str, data: st.DataObject, forward: Fraction, inputs: Fraction, weights: Fraction
) -> None:
    case = data.draw(cases_of(name))
    assert find(name).bubble(*case[1:], forward, inputs, weights) == idle(case, forward, inputs, weights)


@pytest.mark.parametrize("name", sorted(set(schedules()) - {"stash"}))
@given(st.data(), times)
def test_the_papers_bubble_when_the_three_parts_take_equally_long(
    name: str, data: st.DataObject, time: Fraction
) -> None:
    case = data.draw(cases_of(name))
    assert find(name).bubble(*case[1:], time, time, time) == idle(case, time, time, time)


@given(st.data(), times, times, times)
def test_going_through_the_list_finds_what_the_checker_finds(
    data: st.DataObject, forward: Fraction, inputs: Fraction, weights: Fraction
) -> None:
    case = data.draw(cases)
    found = find(case[0]).idle(*case[1:], PassTimes(forward, inputs, weights, forward + inputs + weights))
    assert found == pytest.approx(float(idle(case, forward, inputs, weights)))


@given(cases_of("zb-v"))
def test_zb_v_has_no_bubble_once_the_pipeline_is_full(case: Case) -> None:
    _, ranks, microbatches, _ = case
    missing = max(0, 2 * ranks - 1 - microbatches)
    assert find("zb-v").bubble(*case[1:], 2, 2, 2) == (2 * missing if ranks > 1 else 0)


@pytest.mark.parametrize("together", [2, 2.5, 3])
@pytest.mark.parametrize(("name", "ranks"), [("dualpipe", 2), ("dualpipe", 6), ("dualpipe", 8), ("dualpipe-v", 4)])
def test_the_two_way_bubble_is_the_papers_whatever_running_together_gains(
    name: str, ranks: int, together: float
) -> None:
    """F = I = W = 1. The paper counts from the start of the step to the end of the worst rank."""
    schedule = find(name)
    seconds = PassTimes(1, 1, 1, together).per_slot(2 / schedule.copies)
    rows = replay(schedule, ranks, 3 * ranks, 2, seconds)
    worst = max(runs[-1].end - sum(end - start for _, start, end in runs) for runs in rows)
    assert worst == pytest.approx(schedule.bubble(ranks, 3 * ranks, 2, 1, 1, 1, together))


@given(st.sampled_from([case for case in CASES if case[1] == 1]), times, times, times)
def test_one_rank_waits_for_nobody(case: Case, forward: Fraction, inputs: Fraction, weights: Fraction) -> None:
    assert find(case[0]).bubble(*case[1:], forward, inputs, weights) == 0


@given(cases)
def test_times_may_be_arrays(case: Case) -> None:
    schedule = find(case[0])
    many = schedule.bubble(*case[1:], np.array([1.0, 2.0, 5.0]), np.array([1.0, 3.0, 5.0]), np.array([1.0, 1.0, 5.0]))
    each = [schedule.bubble(*case[1:], *one) for one in ((1.0, 1.0, 1.0), (2.0, 3.0, 1.0), (5.0, 5.0, 5.0))]
    assert np.array_equal(many, each)


@given(cases)
def test_ranks_hold_equally_many_stages_and_copies_lie_on_mirrored_ranks(case: Case) -> None:
    name, ranks, microbatches, chunks = case
    schedule = find(name)
    held = [schedule.stages_of(rank, ranks, chunks) for rank in range(ranks)]
    assert sorted(stage for stages in held for stage in stages) == list(range(ranks * chunks))
    assert {len(stages) for stages in held} == {chunks}
    copies = Counter(schedule.part_of(stage, ranks, chunks) for stage in range(ranks * chunks))
    assert set(copies.values()) == {schedule.copies}
    for stage in range(ranks * chunks):
        through = schedule.microbatches_of(stage, ranks, microbatches, chunks)
        assert all(
            (stage in schedule.path(microbatch, ranks, microbatches, chunks)) == (microbatch in through)
            for microbatch in range(microbatches)
        )


@given(st.sampled_from(sorted(schedules())), st.integers(1, 12), st.integers(1, 40), st.integers(1, 4))
def test_a_refusal_offers_numbers_that_work(name: str, ranks: int, microbatches: int, chunks: int) -> None:
    schedule = find(name)
    for refusal in schedule.refusals(ranks, microbatches, chunks):
        offers = [int(number) for number in re.findall(r"\+m(\d+)", refusal.way_out)]
        assert all(refusal.rule not in {r.rule for r in schedule.refusals(ranks, m, chunks)} for m in offers)
        assert offers or refusal.rule in ("stages per rank", "an even number of ranks")


@given(st.integers(1, 8), st.integers(0, 24))
def test_stashed_versions_and_staleness_are_those_of_updates_after_each_backward(ranks: int, more: int) -> None:
    stash = find("stash")
    for rank, slots in enumerate(stash.order(ranks, 2 * ranks + more, 1)):
        version, read, held, stale = 0, dict[int, int](), 0, 0
        for kind, _, microbatch in slots:
            if kind == "F":
                read[microbatch] = version
            else:
                stale = max(stale, version - read.pop(microbatch))
                version += 1
            held = max(held, len({*read.values(), version}))
        assert held == stash.weight_versions(rank, ranks)
        assert stale == stash.staleness(rank, ranks)


@given(st.integers(1, 8), st.integers(1, 16), times, times)
def test_without_flushing_one_more_mini_batch_costs_only_its_own_work(
    ranks: int, microbatches: int, forward: Fraction, backward: Fraction
) -> None:
    def ends(count: int) -> list[Fraction]:
        return [end for _, end, _ in spans(find("stash").order(ranks, count, 1), {"F": forward, "B": backward})]

    many = ends(microbatches + 1)
    assert [late - early for late, early in zip(many, ends(microbatches), strict=True)] == [forward + backward] * ranks
    assert find("stash").bubble(ranks, microbatches, 1, forward, backward / 2, backward / 2) == 0
