"""Laws of memory over a step: one rule gives the peak, its parts, every slot of the chart, and what is alive then."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foretell.cost.memory import WORK, MemoryUse
from foretell.cost.price import PricedProgram, priced
from foretell.hardware.catalog import cluster
from foretell.plan.fitness import fits
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.expand import expand
from foretell.timeline.memory_timeline import MemoryMoment, MemoryTimeline, memory_timeline
from foretell.timeline.peak_breakdown import alive
from foretell.timeline.result import composed
from law_examples import reached
from program_cases import load

ON = cluster("64xh100")
SIZES = "hidden=64,heads=8,vocab=256,seq=32"
MODELS = (
    f"gpt:layers=12,{SIZES}",
    f"llama:layers=9,{SIZES},kv_heads=4,head_dim=8,ffn=96",
    f"mixture:layers=8,{SIZES},kv_heads=8,head_dim=8,ffn=32,experts=8,top_k=2",
    "llama:layers=4,hidden=256,heads=8,vocab=2000,seq=4,kv_heads=4,head_dim=32,ffn=512",  # more weights than samples
    "resnet18",
)
TRAINERS = (
    "pytorch",
    "fsdp",
    "nanotron",
    "torchtitan",
    "nanotron",
    "megatron-core",
    "megatron-deepspeed",
    "deepspeed",
    "axonn",
)
SOME = ("+recompute:first2", "+recompute:nth2")
ON_TOP = ("allocator", "context", "communicators")
BY_KIND = ("+recompute:full", "+recompute:every2", "+offload:activations")
"""Of what these plans hold no layer has a trace."""


def of(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


class Case(NamedTuple):
    """A plan, what its prediction says of memory, and its fullest rank over the step."""

    plan: PricedProgram
    used: MemoryUse
    held: MemoryTimeline

    def __repr__(self) -> str:
        program = self.plan.program
        return f"{program.graph.name} {program.plan} {program.trainer.name}"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any plan that fits, also with so many micro-batches that predictions do not play all of them."""
    pipeline = draw(of("", "pp2:1f1b", "pp4:gpipe", "pp2:interleaved,v2", "pp4:zb-h1", "pp2:zb-v", "pp2:dualpipe"))
    count = draw(st.sampled_from((1, 4, 8, 64)))
    words = (
        pipeline,
        draw(of("", "dp2", "dp4:zero1", "dp2:zero2", "dp4:zero3", "dp2:zero3,shard2")),
        draw(of("", "tp2:sp", "tp2")),
        f"+m{count}",
        draw(of("", "", "+recompute:block", "+recompute:attention", *SOME, *BY_KIND)),
    )
    plan = parse(" ".join(word for word in words if word))
    setting = Setting(load(draw(of(*MODELS)), 8), Job(batch=8 * count), plan, trainer(draw(of(*TRAINERS))))
    assume(fits(setting, ON))
    known = priced(setting, ON)
    return Case(known, composed(known, ON).memory, memory_timeline(known, ON))


@given(cases())
def test_parts_add_up(case: Case) -> None:
    for moment in case.held.moments:
        assert math.fsum(moment.parts.values()) == pytest.approx(moment.allocated, rel=1e-12)
    assert math.fsum(case.used.by_kind.values()) == pytest.approx(case.used.device, rel=1e-12)


@given(cases())
def test_the_fullest_slot_of_the_chart_is_the_prediction(case: Case) -> None:
    """To the last digit, though the prediction looks at some slots of some rounds alone."""
    assert max(moment.allocated for moment in case.held.moments) == case.used.allocated
    assert case.held.device == case.used.device
    fullest = [moment for moment in case.held.moments if moment.allocated == case.used.allocated]
    same = {name: size for name, size in case.used.by_kind.items() if name not in ON_TOP}
    assert same in [moment.parts for moment in fullest]
    assert case.used.peak_moment.partition(" on pipeline")[0] in map(str, fullest)


@pytest.mark.reaches(new_gradients=1, made=1)
@given(cases())
def test_every_slot_holds_what_a_walk_by_micro_batches_finds(case: Case) -> None:
    *slots, update = case.held.moments
    wanted = list(_walked(case))
    assert [moment.slot for moment in slots] == [slot for slot, _ in wanted]
    for moment, (_, size) in zip(slots, wanted, strict=True):
        assert moment.allocated == pytest.approx(size, rel=1e-12)
    assert update.slot is None
    for branch, found in (("new_gradients", _new), ("made", _made)):
        if any(map(found, slots)):
            reached(branch)


def _new(moment: MemoryMoment) -> bool:
    return "new gradients" in moment.parts


def _made(moment: MemoryMoment) -> bool:
    return moment.parts["gradients"] == 0


def _walked(case: Case) -> Iterator[tuple[object, float]]:
    """Each slot with its bytes, from sets of the micro-batches that have gone forward and not yet back."""
    plan, constants = case.plan, case.plan.constants
    kind = expand(plan.program, borders=False).kinds[case.held.rank]
    rests = [plan.traffic[plan.stages[stage]].resting for stage in kind.stages]
    trained = sum(one.trained for one in rests)
    made = bool(constants.made) and len(kind.slots) == 2 and len(kind.stages) == 1
    persistent = sum(one.weights + one.states + (0.0 if made else one.gradients) for one in rests)
    persistent += constants.copies * trained + constants.workspace
    flying: set[tuple[int, int]] = set()
    for slot in kind.slots:
        own = (slot.stage, slot.microbatch)
        others = sum(plan.peaks[plan.stages[stage]].kept for stage, _ in flying - {own})
        peaks = plan.peaks[plan.stages[slot.stage]]
        if slot.kind == "F":
            busy = max(peaks.forward_peak, peaks.kept)
        else:
            busy = max(peaks.making_peak if made else peaks.backward_peak, peaks.kept, constants.fresh * trained)
        size = persistent + others + busy + constants.cached * trained
        yield slot, size + min(constants.streams, max(0.0, constants.limit - size))
        flying = flying | {own} if slot.kind == "F" else flying - {own} if slot.kind in ("B", "W") else flying


@pytest.mark.reaches(by_name=10)
@given(cases())
def test_what_is_alive_adds_up_to_the_parts(case: Case) -> None:
    """Tensors of the passes by name add up to activations and working, and all together to the device's bytes."""
    found = alive(case.plan, ON, case.used, most=10**6)
    assert math.fsum(one.bytes for one in found) == pytest.approx(case.used.device, rel=1e-9)
    assert all(one.count >= 1 and one.bytes > 0 for one in found)
    passes = [one for one in found if one.kind in ("activation", "gradient", "gathered", *WORK)]
    parts = sum(case.used.by_kind.get(name, 0.0) for name in WORK)
    assert math.fsum(one.bytes for one in passes) == pytest.approx(parts, rel=1e-9)
    if not any(word in str(case.plan.program.plan) for word in BY_KIND):
        assert not any(one.kind in WORK for one in found)
        reached("by_name")
