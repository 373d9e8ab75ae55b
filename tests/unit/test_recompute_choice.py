"""How many layers of a stage run again: the fewest that leave room, as going through all of them finds."""

from __future__ import annotations

import pytest

from foretell.hardware.catalog import cluster
from foretell.oracle.planning import answered
from foretell.oracle.predict import predict
from foretell.oracle.recompute_choice import best_count, may_count
from foretell.oracle.refinement import refine
from foretell.oracle.resolve import PlanEvaluator
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from questions import asked

MODEL = "gpt:layers=12,hidden=512,heads=8,vocab=2000,seq=2048"
ON = "4xa100-40"
ROUNDING = 1 + 1e-9
PLANS = {
    "dp4:zero1 +m2 +bf16": 12,
    "pp2:1f1b dp2:zero1 +m4 +bf16": 6,
    "pp2:interleaved,v2 dp2 +m4 +bf16": 3,
}
"""Layers of a stage."""


def setting(plan: str, name: str = "megatron-core") -> Setting:
    (question,) = asked(MODEL, ON, 16, trainer=name)
    return PlanEvaluator(question).setting(parse(plan))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_the_fewest_that_leave_room(plan: str, share: float) -> None:
    where, block = cluster(ON), setting(f"{plan} +recompute:block")
    told = {n: predict(setting(f"{plan} +recompute:first{n}"), where) for n in range(1, PLANS[plan])}
    most, least = predict(setting(plan), where).memory_bytes, predict(block, where).memory_bytes
    room = least + share * (most - least)
    found = best_count(block, where, room, float("inf"))
    fitting = [n for n, one in told.items() if one.memory_bytes <= room]
    assert found.least_seconds == predict(setting(plan), where).step_seconds
    if not fitting:
        assert found.best is None
        return
    one = told[min(fitting)]
    assert found.best is not None
    assert (found.best.plan, found.best.step_seconds, found.best.memory_bytes) == (
        one.plan,
        one.step_seconds,
        one.memory_bytes,
    )
    assert found.least_seconds <= one.step_seconds * ROUNDING
    assert one.step_seconds <= predict(block, where).step_seconds * ROUNDING
    assert best_count(block, where, room, one.step_seconds).best is None


@pytest.mark.parametrize(
    ("word", "share"), [("first1", 2 / 12), ("first4", 8 / 12), ("first9", 1), ("nth2", 1 / 2), ("nth4", 2 / 12)]
)
def test_hardware_flops_count_the_layers_that_run_again(word: str, share: float) -> None:
    """Two stages of six layers each."""
    plain, some, every = (
        predict(setting(f"pp2:1f1b dp2 +m4 +bf16{more}"), cluster(ON)).hardware_flops
        for more in ("", f" +recompute:{word}", " +recompute:block")
    )
    assert some - plain == pytest.approx(share * (every - plain), rel=1e-12)


def test_only_where_the_trainer_says_a_number() -> None:
    assert may_count(setting("dp4 +recompute:block +bf16"))
    assert not may_count(setting("dp4 +bf16"))
    assert not may_count(setting("dp4:zero3 +recompute:block +bf16", "torchtitan"))


def test_the_search_finds_a_number_of_layers() -> None:
    """Where memory is short of what the rules of modules leave, and there is room for a few layers."""
    most, least = (predict(setting(f"dp4:zero1 +m2 +bf16{more}"), cluster(ON)) for more in ("", " +recompute:block"))
    limit = least.memory_bytes + 0.2 * (most.memory_bytes - least.memory_bytes)
    words = {"only": ("dp", "recompute"), "fix": "dp4:zero1 +m2", "max_memory": limit}
    (question,) = asked(MODEL, ON, 16, trainer="megatron-core", **words)
    found = refine(answered(question)).found
    (told,) = (one for one in found.finer if one.what == "recompute")
    assert told.plan.startswith("dp4:zero1 +m2 +recompute:first") and found.best is not None
    assert found.best.plan == told.plan and found.best.memory_bytes <= limit
    assert found.best.step_seconds == predict(setting(told.plan), cluster(ON)).step_seconds
    assert found.least_seconds <= most.step_seconds <= found.best.step_seconds
