"""Laws of lower bounds: no plan is priced below its own, and pruning by them finds what pricing every plan finds."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

import numpy
import pytest

from foretell.oracle import parts, planning, search
from foretell.oracle.lower_bounds import roofline
from foretell.oracle.mesh_rows import MeshRows
from foretell.oracle.planning import questions
from foretell.oracle.refinement import refined_answer
from foretell.oracle.request import Request, SearchEffort, read
from foretell.plan.plan import Plan
from foretell.plan.trained import as_trained_by
from questions import asked

DENSE = "llama:layers=12,hidden=1024,heads=16,kv_heads=8,ffn=2816,vocab=32000,seq=1024"
MIXTURE = "mixture:layers=6,hidden=512,heads=8,kv_heads=8,head_dim=64,ffn=512,vocab=4096,seq=256,experts=8,top_k=2"
LATENT = (
    "deepseek:layers=8,hidden=512,heads=8,query_rank=128,kv_rank=64,head_dim=32,rotary_dim=16,value_dim=32,vocab=4096,"
    "seq=512,ffn=1024,experts=16,top_k=4,expert_ffn=256,groups=4,top_groups=2,first_dense=0"
)

MESHES = ("dp", "tp", "pp")

SPACES: dict[str, tuple[Any, ...]] = {
    "dense, eager": (DENSE, "16xh100", 64, "pytorch", {}),
    "dense, Megatron": (DENSE, "2x8xa100-80", 48, "megatron-core", {}),
    "dense, torchtitan": (DENSE, "16xh100", 32, "torchtitan", {}),
    "dense, with offload": (DENSE, "8xrtx4090", 16, "pytorch", {"also": ("offload",)}),
    "dense, other launches": (DENSE, "8xh100", 32, "pytorch", {"fix": "+compiled"}),
    "dense, tied": ("gpt2", "8xa100-80", 16, "megatron-lm", {}),
    "experts": (MIXTURE, "16xh100", 32, "megatron-core", {}),
    "experts, Muon": (MIXTURE, "8xh100", 16, "megatron-core", {"optimizer": "muon", "only": MESHES}),
    "experts, overlapped": (MIXTURE, "8xh100", 16, "megatron-core", {"fix": "+a2a-overlap"}),
    "inputs in shares": (DENSE, "8xh100", 16, "deepspeed", {"fix": "+recompute:block +partitioned"}),
    "experts beside pairs": (LATENT, "16xh100", 64, "deepseek", {}),
    "images": ("resnet50", "8xv100-16", 64, "pytorch", {}),
    "volumes": ("cosmoflow", "8xv100-16", 16, "chainer", {}),
    "adapters": (DENSE, "8xh100", 16, "fsdp", {"fix": "+lora16"}),
}
"""Models, clusters, batches and trainers whose spaces are priced as a whole."""


WAITED = ("dense, eager", "dense, Megatron", "experts", "images")
"""Spaces with meshes in which messages that nothing hides are a good part of the step."""


def _question(name: str) -> Request:
    model, on, batch, trainer, said = SPACES[name]
    (question,) = asked(model, on, batch, trainer=trainer, **said)
    return question


@functools.cache
def _priced(name: str) -> Any:
    """A search of the whole space that remembers where each plan lies."""
    space = planning.space_of(_question(name))
    found = search._Search(space, 0.0, lambda plans: None, 5, SearchEffort(exhaustive=True))
    found.run()
    return found


@pytest.mark.parametrize("name", SPACES)
def test_no_plan_is_priced_below_its_bounds(name: str) -> None:
    """Every plan of a space: seconds and bytes are at least what the bound of its policies and its variant says."""
    found = _priced(name)
    names, seconds, memory = (numpy.concatenate(parts) for parts in zip(*found.priced, strict=True))
    price = {tuple(where): (seconds[at], memory[at]) for at, where in enumerate(names.tolist())}
    checked, tightest, fullest, longest = 0, 0.0, 0.0, 0.0
    for number, axes in enumerate(found.meshes):
        for own in found.alike:
            rows = MeshRows(found.parts, axes, own)
            variants = rows._variants()
            for which in rows.allowed if rows.ways else ():
                least_seconds = rows.least_seconds(found.bounds, which)
                least_bytes = rows.least_bytes(found.bounds, which)
                waits = rows.least_waits(which)
                assert waits <= least_seconds.min() * (1 + 1e-12), (axes, which)
                longest = max(longest, waits / least_seconds.min())
                for at in range(len(variants.own)):
                    where = (number, which, int(variants.place[at]), int(variants.microbatches[at]))
                    taken, held = price[where]
                    assert least_seconds[at] <= taken, (axes, where)
                    assert least_bytes[at] <= held, (axes, where)
                    tightest = max(tightest, least_seconds[at] / taken)
                    fullest = max(fullest, least_bytes[at] / held)
                    checked += 1
    assert checked == len(price) > 50
    assert tightest > 0.7  # and it is no empty promise
    assert fullest > 0.7
    assert longest > 0.3 or name not in WAITED


@pytest.mark.parametrize("name", SPACES)
def test_what_recomputes_or_moves_more_is_bounded_by_what_does_less(name: str) -> None:
    """A mesh is left out by the bounds of its plainest policies: those of all others are no lower."""
    found = _priced(name)
    for axes in found.meshes[:40]:
        for own in found.alike:
            rows = MeshRows(found.parts, axes, own)
            if rows.ways and rows.allowed:
                plainest = min(float(rows.least_seconds(found.bounds, which).min()) for which in rows.plainest())
                others = [float(rows.least_seconds(found.bounds, which).min()) for which in rows.allowed]
                assert plainest <= min(others) * (1 + 1e-12)


@pytest.mark.parametrize("name", SPACES)
def test_a_search_that_prunes_finds_what_pricing_every_plan_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same best plan, and every plan within the margin of the fastest with head-room, to the last digit."""
    question = _question(name)
    whole = planning.answered(question.changed(effort=SearchEffort(exhaustive=True))).found
    monkeypatch.setattr(search, "SMALL", 0)
    monkeypatch.setattr(search, "FIRST", 20)
    monkeypatch.setattr(search, "WAVE", 200)
    pruned = planning.answered(question).found
    assert pruned.best == whole.best and pruned.best is not None
    assert pruned.evaluated + pruned.excluded == whole.evaluated
    assert pruned.refused == whole.refused and len(set(pruned.plans.rows())) == pruned.evaluated
    assert pruned.least_seconds == pruned.best.step_seconds
    roomy = min(one[1] for one in whole.plans.rows() if one[2] <= 0.92 * whole.capacity)
    near = {one for one in whole.plans.rows() if one[3] and one[1] <= 1.05 * roomy}
    assert near <= set(pruned.plans.rows())
    assert pruned.complete and not pruned.stopped


FIXED = {
    "gpt3": "pp16:1f1b tp8:sp",
    "llama-8b": "tp4:sp",
    "llama-70b": "pp4:1f1b tp4:sp",
    "llama-70b-512": "pp8:1f1b tp8:sp",
    "resnet-50": "dp8",
    "mixtral": "pp4:1f1b tp2:sp",
    "deepseek": "pp16:1f1b dp64:zero1 tp2:sp",
    "llama-405b": "pp16:1f1b tp8:sp",
}
"""Of each space that `benchmarks/search.py` times a part that is small enough to price as a whole."""


@pytest.mark.parametrize("name", FIXED)
def test_in_the_spaces_that_are_timed_both_find_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = tomllib.loads((Path(__file__).parents[2] / "benchmarks" / "search_spaces.toml").read_text())
    assert set(spaces) == set(FIXED)
    (question,) = questions(read(**{**spaces[name], "also": (), "fix": FIXED[name]}))
    whole = planning.answered(question.changed(effort=SearchEffort(exhaustive=True))).found
    monkeypatch.setattr(search, "SMALL", 0)
    monkeypatch.setattr(search, "FIRST", 20)
    monkeypatch.setattr(search, "WAVE", 200)
    pruned = planning.answered(question).found
    assert pruned.best == whole.best and pruned.best is not None
    assert pruned.evaluated + pruned.excluded == whole.evaluated > pruned.evaluated
    assert set(pruned.plans.rows()) <= set(whole.plans.rows())


def test_micro_batches_that_are_priced_alone_are_left_out_by_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where arrays keep a few samples exactly alone, the answer is the same, and larger ones were never priced."""
    question = _question("dense, with offload").changed(batch=512)
    whole = planning.answered(question.changed(effort=SearchEffort(exhaustive=True))).found
    monkeypatch.setattr(search, "SMALL", 0)
    monkeypatch.setattr(search, "FIRST", 20)
    monkeypatch.setattr(parts, "EXACT", 2**42)
    pruned = planning.answered(question).found
    assert pruned.best == whole.best and pruned.best is not None
    assert pruned.evaluated + pruned.excluded == whole.evaluated
    assert pruned.refused == whole.refused
    assert set(pruned.plans.rows()) <= set(whole.plans.rows())


LONG = "llama:layers=2,hidden=1024,heads=8,kv_heads=8,ffn=2048,vocab=1024,seq=65536"
ROOFS = {**SPACES, "long sequences": (LONG, "8xh100", 8, "megatron-core", {"only": ("dp", "cp", "tp")})}


@pytest.mark.parametrize("name", ROOFS)
def test_no_plan_is_faster_than_the_roofline(name: str) -> None:
    """Products with weights at the peak; masked attention, convolutions and what is not trained are left out."""
    model, on, batch, trainer, said = ROOFS[name]
    (question,) = asked(model, on, batch, trainer=trainer, **said)
    answer = planning.answered(question)
    space = answer.space
    trained = as_trained_by(Plan(axes=(), policies=tuple(space.policies[0])), space.graph)
    least = roofline(trained, space.job, space.precision, space.cluster)
    assert answer.found.plans.seconds.min() >= least > 0


def test_other_stages_may_be_faster_than_what_is_proven_of_the_space() -> None:
    """What is proven after stages were chosen is not above the plan that they made."""
    deep = "llama:layers=14,hidden=1024,heads=16,kv_heads=8,ffn=2816,vocab=128256,seq=1024"
    (question,) = asked(deep, "8xa100-40", 32, trainer="megatron-core", fix="pp4:1f1b")
    found = refined_answer(question).found
    assert found.best is not None and found.finer
    assert found.least_seconds <= found.best.step_seconds


def test_some_searches_leave_most_plans_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SMALL", 0)
    monkeypatch.setattr(search, "FIRST", 20)
    found = planning.answered(_question("dense, Megatron")).found
    assert found.excluded > found.evaluated


def test_out_of_time_there_is_an_answer_and_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumps an hour with each look: one mesh is priced, and nothing is claimed of the others."""
    question = _question("dense, eager")
    whole = planning.answered(question).found
    clock = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(search.time, "perf_counter", lambda: float(next(clock)))
    found = planning.answered(question.changed(effort=SearchEffort(seconds=20))).found
    assert (found.complete, found.stopped) == (False, "out of time")
    assert found.best is not None and whole.best is not None
    assert 0 < found.evaluated < whole.evaluated
    assert 0 < found.seen < 1
    space = planning.space_of(question)
    assert found.least_seconds == roofline(space.graph, space.job, space.precision, space.cluster)
    assert found.least_seconds <= whole.best.step_seconds
