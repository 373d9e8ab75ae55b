"""foretell diff, why and whatif: their pages, their keys, and what they say of plans that are not legal."""

from __future__ import annotations

import json
from typing import Any

import pytest

import foretell as package
from foretell.errors import BadInput
from foretell.oracle.planning import answered
from foretell.oracle.upgrades import hardware
from foretell.plan.text import parse
from questions import asked

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
FREE = "gpt:layers=4,hidden=64,heads=4,vocab=256"  # its sequence is not said
JOB = (TINY, "--on", "8xh100", "--batch", "16")
SMALL = (*JOB, "--only", "dp,tp")


def _narrow(text: str) -> bool:
    return max(map(len, text.splitlines())) <= 80


# diff -------------------------------------------------------------------------------------------------


def test_diff_puts_two_plans_side_by_side(foretell: Any) -> None:
    plans = ("dp8 +bf16", "dp2:zero3 tp4:sp +m2 +bf16")
    ran = foretell("diff", *JOB, *plans)
    assert ran.code == 0 and not ran.err and _narrow(ran.out)
    changes = ("DP / 4, TP x 4", "2 micro-batches instead of 1", "one change at a time")
    for word in ("step time", "memory", "total", *changes):
        assert word in ran.out
    answer = json.loads(foretell("diff", *JOB, *plans, "--json").out)
    for name, plan in zip(("first", "second"), plans, strict=True):
        assert answer[name]["step_seconds"] == package.predict(TINY, "8xh100", plan, batch=16).step_seconds
    for part, total in (("time", "step_seconds"), ("memory", "memory_bytes")):
        for name in ("first", "second"):
            assert sum(row[name] for row in answer[part]) == pytest.approx(answer[name][total])
    assert answer["path"] == json.loads(json.dumps(answer["path"])) and answer["together"] == []


def test_diff_says_which_change_needs_which(foretell: Any) -> None:
    plans = ("dp8 +bf16", "pp4:zb-h1 dp2 +m4 +bf16")
    answer = json.loads(foretell("diff", *JOB, *plans, "--json").out)
    moved, counted = answer["differences"]
    assert moved["needs"] == [counted["what"]] and moved["rule"] == "micro-batches fill the pipeline"
    assert counted["needs"] == [moved["what"]] and counted["rule"] == "batch divides"
    assert answer["together"] == [[moved["what"], counted["what"]]]
    assert "these changes are only legal together" in foretell("diff", *JOB, *plans).out


def test_diff_of_one_plan(foretell: Any) -> None:
    assert "The two plans are the same." in foretell("diff", *JOB, "dp8 +m1 +bf16", "dp8 +bf16").out


def test_diff_refuses_what_is_refused(foretell: Any) -> None:
    ran = foretell("diff", *JOB, "dp8", "tp8")
    assert ran.code == 2 and "heads divide" in ran.err and not ran.out
    assert foretell("diff", TINY, "--batch", "16", "dp8", "tp8").code == 2
    assert "PLAN2" in foretell("diff", *JOB, "dp8", "what8").err


# why --------------------------------------------------------------------------------------------------


def test_why_a_plan_is_refused(foretell: Any) -> None:
    answer = json.loads(foretell("why", *SMALL, "--plan", "tp8 +bf16", "--json").out)
    assert answer["verdict"] == "refused"
    assert answer["refusals"][0]["rule"] == "heads divide"
    assert answer["plan"] == "dp2 tp4 +bf16" == answer["prediction"]["plan"]
    out = foretell("why", *SMALL, "--plan", "tp8 +bf16").out
    assert "4 heads are not a multiple of tp8" in out and "nearest       dp2 tp4 +bf16" in out and _narrow(out)


def test_why_a_plan_loses(foretell: Any) -> None:
    answer = json.loads(foretell("why", *SMALL, "--plan", "dp2 tp4 +m2 +bf16", "--json").out)
    best = package.plan(TINY, "8xh100", batch=16, only=["dp", "tp"]).fastest
    assert best is not None
    assert answer["verdict"] == "loses" and answer["best"]["plan"] == best.plan == answer["path"][-1]["plan"]
    own = package.predict(TINY, "8xh100", "dp2 tp4 +m2 +bf16", batch=16)
    assert answer["gap_seconds"] == own.step_seconds - best.step_seconds
    assert sum(step["gain_seconds"] for step in answer["path"]) == pytest.approx(answer["gap_seconds"])
    out = foretell("why", *SMALL, "--plan", "dp2 tp4 +m2 +bf16").out
    assert "gap" in out and "one change at a time, the largest gain first" in out and _narrow(out)


def test_why_the_best_plan_is_the_best(foretell: Any) -> None:
    best = package.plan(TINY, "8xh100", batch=16, only=["dp", "tp"]).fastest
    assert best is not None
    ran = foretell("why", *SMALL, "--plan", best.plan)
    assert "this plan is the best of all that were searched" in ran.out
    found = package.why(TINY, "8xh100", best.plan, 16, only=["dp", "tp"])
    assert (found.verdict, found.path, found.hardware, found.tried) == ("best", (), (), ())


def test_why_a_plan_does_not_fit() -> None:
    found = package.why("llama3.2-1b", "2xa100", "dp2 +bf16", 4, max_memory="25 GB", only=["dp", "recompute"])
    assert found.verdict == "too large"
    assert found.prediction is not None
    assert found.too_much == found.prediction.memory_bytes - 25e9
    assert all(change.memory_bytes <= 25e9 for change in found.fixes)


def test_the_least_memory_with_which_a_plan_fits() -> None:
    found = package.why("llama3-8b", "8xh100", "dp8 +bf16", 16, only=["dp"])
    assert found.verdict == "too large" and found.prediction is not None
    (win,) = found.hardware
    assert win.what == "memory"
    assert found.prediction.memory_bytes <= win.times * found.capacity
    assert found.prediction.memory_bytes > win.times / 2 * found.capacity
    assert found.fixes[0].plan == "dp8:zero3 +m2 +bf16"


def test_hardware_that_makes_a_plan_win_is_searched() -> None:
    plan, only = "dp16 +bf16", ("dp",)
    found = package.why("resnet50", "16xh100", plan, 256, only=only)
    assert [(win.what, win.times) for win in found.hardware] == [("memory bandwidth", 2.0)]
    question = asked("resnet50", "16xh100", 256, precision="bf16", only=only)[0]
    knob = next(one for one in hardware(question.cluster) if one.name == "memory bandwidth")
    for times, wins in ((1.5, False), (2.0, True)):
        changed = knob.changed(question, times)
        assert changed is not None
        best = answered(changed).found.best
        assert best is not None and (best.plan == plan) == wins


def test_the_best_is_like_the_plan() -> None:
    found = package.why(TINY, "4xh100", "tp4 +compiled", 8, only=["dp", "tp"])
    assert found.best is not None
    assert "+compiled" in found.best.plan and "bf16" not in found.best.plan


@pytest.mark.parametrize("fix", ["", "+bf16"])
def test_the_way_ends_at_the_best(fix: str) -> None:
    """In words of the plan, which names no precision; one that is asked for is a step of the way."""
    found = package.why(TINY, "4xh100", "dp4:zero3", 8, only=["dp", "tp"], fix=fix)
    assert found.best is not None and fix in found.best.plan
    assert found.path[-1].step_seconds == pytest.approx(found.best.step_seconds)
    assert any(fix in one for step in found.path for one in step.changes)
    assert fix or not any("fp32" in one for step in found.path for one in step.changes)


def test_why_with_nothing_that_fits(foretell: Any) -> None:
    ran = foretell("why", *SMALL, "--plan", "dp8 +bf16", "--max-memory", "1 MB")
    assert ran.code == 0 and "none: no plan fits" in ran.out and _narrow(ran.out)
    assert foretell("why", *SMALL).code == 2


# whatif -----------------------------------------------------------------------------------------------


def test_whatif_of_the_best_plan(foretell: Any) -> None:
    asked = (FREE, "--seq", "32", *SMALL[1:])
    ran = foretell("whatif", *asked, "--plan", "best", "--again")
    assert ran.code == 0 and _narrow(ran.out)
    for word in ("the best of the search", "compute rate", "x1.25", "batch 32", "sequence 64", "searched again"):
        assert word in ran.out
    answer = json.loads(foretell("whatif", *asked, "--plan", "best", "--json").out)
    step = package.predict(FREE, "8xh100", answer["plan"], batch=16, seq=32)
    for one in answer["hardware"]:
        assert one["faster"] == pytest.approx(step.step_seconds / one["step_seconds"])
    twice = [one["faster"] for one in answer["hardware"] if one["times"] == 2.0]
    assert twice == sorted(twice, reverse=True)
    double = next(one for one in answer["jobs"] if one["what"] == "batch" and one["times"] == 2.0)
    assert double["step_seconds"] == package.predict(FREE, "8xh100", double["plan"], batch=32, seq=32).step_seconds
    longer = next(one for one in answer["jobs"] if one["what"] == "sequence" and one["times"] == 2.0)
    assert longer["step_seconds"] == package.predict(FREE, "8xh100", answer["plan"], batch=16, seq=64).step_seconds


def test_whatif_names_the_rule_of_a_batch_that_does_not_divide(foretell: Any) -> None:
    out = foretell("whatif", TINY, "--on", "8xh100", "--batch", "8", "--plan", "dp8 +bf16").out
    assert "refused: a batch of 4 is not a multiple of 8" in " ".join(out.split())


def test_whatif_searches_for_the_best_of_the_other_hardware() -> None:
    found = package.whatif(TINY, "4xh100", batch=8, again=True, only=["dp"])
    for one in (*found.hardware, *found.jobs):
        assert (one.best is not None) == (one.times == 2.0)
        assert one.best is None or one.best_faster >= one.faster * (1 - 1e-12) or not one.fits


def test_whatif_again_begins_with_the_best_plan_as_things_are(foretell: Any) -> None:
    asked = (TINY, "--on", "4xh100", "--batch", "8", "--only", "dp", "--plan", "dp4:zero3 +bf16")
    answer = json.loads(foretell("whatif", *asked, "--again", "--json").out)
    best = package.plan(TINY, "4xh100", batch=8, only=["dp"], precision="bf16").fastest
    assert best is not None and answer["best"]["plan"] == best.plan != "dp4:zero3 +bf16"
    ratio = answer["prediction"]["step_seconds"] / best.step_seconds
    assert answer["best_faster"] == pytest.approx(ratio) and ratio > 1
    out = foretell("whatif", *asked, "--again").out
    table = out[out.index("searched again") :].splitlines()
    assert table[2].split() == ["as", "it", "is", f"{100 * (ratio - 1):+.1f}", "%", *best.plan.split()]


def test_whatif_asks_for_a_plan_that_is_legal(foretell: Any) -> None:
    assert foretell("whatif", *JOB, "--plan", " ").code == 2
    assert "heads divide" in foretell("whatif", *JOB, "--plan", "tp8").err
    with pytest.raises(BadInput, match="fp8"):
        package.whatif(TINY, "4xh100", "dp4 +bf16", 8, precision="fp8")
    with pytest.raises(BadInput, match="no plan"):
        package.whatif(TINY, "4xh100", batch=8, only=["dp"], max_memory="1 MB")


def test_why_compares_with_what_plan_answers() -> None:
    """Stages are chosen for the best in both."""
    model = "llama:layers=9,hidden=512,heads=8,kv_heads=8,ffn=1408,vocab=256,seq=4096"
    asked = {"only": ["dp", "pp"], "fix": "pp4:1f1b dp2 +m8"}
    best = package.plan(model, "8xh100", 16, **asked).best
    assert best is not None and "split=" in best.plan
    found = package.why(model, "8xh100", "pp4:1f1b dp2 +m8 +bf16", 16, **asked)
    assert found.best == best and found.verdict == "loses"
    assert found.path[-1].plan == best.plan
    assert any("split=" in change for step in found.path for change in step.changes)
    assert package.whatif(model, "8xh100", "best", 16, **asked).plan == best.plan


def test_what_would_fit_names_every_change() -> None:
    found = package.why("llama3-8b", "8xh100", "dp8 +bf16", 256, only=["dp"])
    assert found.fixes
    for one in found.fixes:
        count = parse(one.plan).microbatches
        assert count == 1 or f"+m{count}" in one.what or f"{count} micro-batches" in one.what
        assert package.predict("llama3-8b", one.cluster, one.plan, 256).fits


def test_precision_that_nobody_named_is_no_change_on_the_way() -> None:
    found = package.why(TINY, "4xh100", "dp2 tp2", 8, only=("dp", "tp"))
    assert found.verdict == "loses" and found.best is not None and "+fp32" in found.best.plan
    assert found.path and not any("fp32" in change for step in found.path for change in step.changes)
    assert found.path[-1].step_seconds == pytest.approx(found.best.step_seconds)
