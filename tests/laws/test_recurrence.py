"""Laws of the recurrence: one text for one plan and for thousands, compiled or not, cut short or played to the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foretell.compiling import available
from foretell.cost.price import PricedProgram, priced
from foretell.hardware.catalog import cluster
from foretell.model.source import load
from foretell.plan.fitness import fits
from foretell.plan.job import Job
from foretell.plan.schedule import SLOT_KINDS, Slot, schedules
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram, RankKind
from foretell.program.lower import lower
from foretell.timeline import engine
from foretell.timeline import unroll as orders
from foretell.timeline.plan_table import PlanTable
from foretell.timeline.result import composed

ON = cluster("16xh100")
MODEL = "gpt:layers=12,hidden=256,heads=8,vocab=1000,seq=128"
TRAINERS = ("pytorch", "pytorch-compiled", "nanotron", "megatron-core", "megatron-deepspeed", "deepspeed")


def of(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


PIPELINE = of(
    "", "pp2:1f1b", "pp4:gpipe", "pp2:interleaved,v2", "pp4:zb-h1", "pp2:zb-v", "pp2:dualpipe", "pp2:dualpipe-v"
)
DATA = of("", "dp2", "dp4:zero1", "dp2:zero2", "dp4:zero3", "dp2:zero3,shard2")
POLICY = of(
    *("", "+recompute:block", "+recompute:full", "+recompute:first1", "+no-overlap"),
    *("+offload:activations", "+offload:optimizer"),
)


def drawn(count: int, pipeline: str, data: str, tensor: str, policy: str, trained_by: str) -> Setting:
    words = (pipeline, data, tensor, f"+m{count}", policy)
    plan = parse(" ".join(word for word in words if word))
    return Setting(load(MODEL, 8), Job(batch=8 * count), plan, trainer(trained_by))


def settings() -> st.SearchStrategy[Setting]:
    """Any plan of up to sixteen ranks that fits."""
    any_of_them = st.builds(drawn, st.sampled_from((4, 8, 16)), PIPELINE, DATA, of("", "tp2:sp"), POLICY, of(*TRAINERS))
    return any_of_them.filter(lambda setting: fits(setting, ON))


def together(plans: list[PricedProgram], kernels: Any, arrays: bool) -> tuple[list[float], list[float]]:
    """Step times and memory of plans, as one batch."""
    table = PlanTable(ON)
    for plan in plans:
        table.add(plan)
    tables, rows = table.tables(compiled=arrays), table.plans(compiled=arrays)
    seconds, memory, all_of_them = [0.0] * len(plans), [0.0] * len(plans), list(range(len(plans)))
    if arrays:
        import numpy

        seconds, memory, all_of_them = numpy.zeros(len(plans)), numpy.zeros(len(plans)), numpy.arange(len(plans))
    kernels.evaluate(tables, rows, 0, len(plans), seconds)
    kernels.evaluate_memory(tables, rows, all_of_them, memory)
    return [float(one) for one in seconds], [float(one) for one in memory]


@given(st.lists(settings(), min_size=1, max_size=6), st.integers(1, 5))
def test_a_plan_alone_and_among_others_has_the_same_digits(chosen: list[Setting], times: int) -> None:
    plans = [priced(setting, ON) for setting in chosen]
    seconds, memory = together(plans * times, engine, arrays=False)
    for at, plan in enumerate(plans * times):
        alone = composed(plan, ON)
        assert (seconds[at], memory[at]) == (alone.step_seconds, alone.memory_bytes)


@pytest.mark.skipif(not available(), reason="no compiler")
def test_thousands_of_plans_compiled_have_the_digits_of_each_alone() -> None:
    texts = [
        f"{pipe} {data} +m{count}"
        for pipe in ("", "pp2:1f1b", "pp4:zb-h1", "pp2:interleaved,v2")
        for data in ("", "dp2:zero1", "dp2:zero3", "dp4")
        for count in (4, 8, 32)
    ]
    found = [
        Setting(load(MODEL, 8), Job(batch=8 * parse(text).microbatches), parse(text), trainer(name))
        for text in texts
        for name in TRAINERS
    ]
    plans = [priced(setting, ON) for setting in found if fits(setting, ON)]
    alone = together(plans, engine, arrays=False)
    many = together(plans * 20, engine.kernels(fast=True), arrays=True)
    assert len(plans) * 20 > 2000
    assert many == (alone[0] * 20, alone[1] * 20)


# Steps that are cut short. ---------------------------------------------------------------------------


@given(settings(), st.integers(2, 6))
def test_a_long_step_is_as_long_as_if_it_were_played_to_the_end(setting: Setting, times: int) -> None:
    count = 16 * times
    text = " ".join(word for word in str(setting.plan).split() if not word.startswith("+m"))
    longer = Setting(setting.graph, Job(batch=8 * count), parse(f"{text} +m{count}"), setting.trainer)
    assume(fits(longer, ON))
    plan = priced(longer, ON)
    short, full = composed(plan, ON), composed(plan, ON, whole=True)
    assert short.step_seconds == pytest.approx(full.step_seconds, rel=0.01)
    assert short.memory_bytes == pytest.approx(full.memory_bytes, rel=1e-12)


# Memory, slot by slot. -------------------------------------------------------------------------------


def activations(program: ExpandedProgram, kind: RankKind) -> float:
    """The most that a rank holds for micro-batches in flight, from its slots one after the other."""
    held, most = 0.0, 0.0
    for slot in kind.slots:
        stage = program.stages[slot.stage].memory
        forward = slot.kind == "F"
        peak = stage.forward_peak if forward else stage.backward_peak
        most = max(most, held + (stage.kept if forward else 0.0) + max(0.0, peak - stage.kept))
        held += stage.kept if forward else -stage.kept if slot.kind in ("B", "W") else 0.0
    assert held == pytest.approx(0.0, abs=1.0)
    return most


@given(settings())
def test_the_fullest_moment_is_that_of_the_slots_played_through(setting: Setting) -> None:
    quiet = Setting(setting.graph, setting.job, setting.plan, trainer("pytorch-compiled"))
    assume(fits(quiet, ON))
    program = expand(lower(quiet))
    used = composed(priced(quiet, ON), ON).memory
    worst = max(range(len(used.by_stage)), key=lambda at: used.by_stage[at])
    assume("update" not in used.peak_moment)
    found = used.by_kind["activations"] + used.by_kind["working"]
    least = activations(program, program.kinds[worst])
    rest = sum(program.stages[stage].memory.gradients for stage in program.kinds[worst].stages)
    made = rest - used.by_kind["gradients"]  # gradients that the backward pass makes lie among what it works with
    assert least * (1 - 1e-12) <= found <= (least + made) * (1 + 1e-12)


# Slots and weights, written down in short. -----------------------------------------------------------


@pytest.mark.parametrize("fast", [False, *([True] if available() else [])])
@given(st.sampled_from(list(schedules())), st.integers(1, 6), st.integers(1, 24), st.integers(0, 2))
def test_orders_have_the_slots_of_their_schedule(fast: bool, name: str, ranks: int, count: int, more: int) -> None:
    schedule = schedules()[name]
    chunks = schedule.least_chunks + (more if schedule.most_chunks is None else 0)
    assume(not any(schedule.refusals(ranks, count, chunks)))
    found = orders.ordered(schedule, ranks, count, chunks, fast)
    rows: list[list[tuple[str, int]]] = [[] for _ in range(ranks)]
    for rank, kind, stage in zip(found.rank, found.kind, found.stage, strict=True):
        rows[rank].append((SLOT_KINDS[kind], stage))
    said = schedule.order(ranks, count, chunks)
    assert rows == [[(slot.kind, slot.stage) for slot in row] for row in said]
    paths = [schedule.path(at, ranks, count, chunks) for at in range(count)]
    assert_everything_is_taken_where_it_was_put(found, said, paths)
    for place, row in enumerate(said):
        own = range(found.moments.begin[place], found.moments.begin[place + 1])
        assert most_in_flight(row, found.held[place]) == most_told([found.moments.one(at) for at in own])


def assert_everything_is_taken_where_it_was_put(
    found: orders.SlotOrder, said: Sequence[Sequence[Slot]], paths: list[range]
) -> None:
    """What a slot takes is what the one before it on the micro-batch's path has put there, and nothing lies on it."""
    own, lying = [iter(row) for row in said], dict[int, tuple[bool, int, int]]()
    for rank, takes, puts in zip(found.rank, found.takes, found.puts, strict=True):
        slot = next(own[rank])
        path, forward = paths[slot.microbatch], slot.kind == "F"
        if slot.kind == "W" or (forward and slot.stage == path[0]):
            assert takes == 0
        else:
            turns = not forward and slot.stage == path[-1]  # what was made forward goes back
            where = slot.stage if turns else slot.stage - 1 if forward else slot.stage + 1
            assert lying.pop(takes) == (forward or turns, where, slot.microbatch)
        assert puts < found.places and puts not in lying
        if puts:
            lying[puts] = (forward, slot.stage, slot.microbatch)
    assert not lying


def most_in_flight(row: Sequence[Slot], held: tuple[int, ...]) -> dict[tuple[int, bool], float]:
    """By stage and way the most micro-batches in flight before a slot, all stages of the rank counted alike."""
    flying, most = dict.fromkeys(held, 0), dict[tuple[int, bool], float]()
    for slot in row:
        key = (slot.stage, slot.kind == "F")
        most[key] = max(most.get(key, 0), sum(flying.values()))
        flying[slot.stage] += {"F": 1, "I": 0}.get(slot.kind, -1)
    return most


def most_told(moments: Sequence[orders.RankSlot]) -> dict[tuple[int, bool], float]:
    most: dict[tuple[int, bool], float] = {}
    for one in moments:
        way = one.slot.stage, one.forward
        most[way] = max(most.get(way, 0), sum(one.flying))
    return most


@given(settings())
def test_weights_of_equal_layers_stand_for_all_of_them(setting: Setting) -> None:
    outline = lower(setting)
    for at in range(outline.partition.count):
        each, counted = Counter[Any](), Counter[Any]()
        for weight in outline.own(at):
            each[weight.key[:2], weight.rows, weight.columns, weight.summed, weight.shared] += 1
        for weight in outline.partition.weights(outline.rank_program, at, outline.weight_state, folded=True):
            counted[weight.key[:2], weight.rows, weight.columns, weight.summed, weight.shared] += weight.times
        assert each == counted
