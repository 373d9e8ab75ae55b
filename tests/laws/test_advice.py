"""Advice at any scale: it holds what it promises, and whatever happens to it, the answer stands beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import pytest

from foretell.errors import BadInput
from foretell.oracle import predict as predicting
from foretell.oracle import proposals, resolve, ways_out, why
from foretell.oracle.advice import AdviceFailed
from foretell.oracle.fit import would_fit
from foretell.oracle.predict import Prediction
from foretell.oracle.predicted import predicted
from foretell.oracle.request import Request, read
from foretell.oracle.resolve import PlanEvaluator
from foretell.oracle.whatif import whatif
from foretell.plan.plan import Plan
from foretell.plan.refusal import PlanRefused
from foretell.plan.text import parse

RANKS = (16_384, 65_536, 100_000)


class Shape(NamedTuple):
    """A kind of run that is made at scale: its plan has `data` ranks in it, all that other axes leave."""

    model: str
    plan: str
    others: int  # ranks of the other axes
    batch: int  # for each data rank
    trainer: str

    def request(self, ranks: int, **more: Any) -> Request:
        data = ranks // self.others
        words: dict[str, Any] = {"batch": self.batch * data, "trainer": self.trainer, "calibration": "none"}
        return read(model=self.model, on=f"{ranks}xh100", plan=self.plan.format(data=data), **(words | more))


SHAPES = {
    "dense": Shape("llama3-405b", "pp4:1f1b dp{data}:zero1 tp8:sp +m4 +bf16", 32, 4, "pytorch"),
    "experts": Shape("deepseek-v3", "pp4:1f1b dp{data}:zero1,ep8 +m4 +bf16", 4, 4, "pytorch"),
    "long": Shape("llama3-8b", "dp{data}:zero3 cp8:ring tp4:sp +bf16", 32, 1, "torchtitan"),
    "fits": Shape("llama3-70b", "dp{data}:zero3 tp8:sp +recompute:block +bf16", 8, 1, "pytorch"),
}


MISSED = {("experts", 100_000)}
"""No change is found that fits: a sample for each rank of what holds a buffer for each micro-batch."""


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_answered_and_what_would_fit_does(name: str, ranks: int) -> None:
    question, found = predicted(SHAPES[name].request(ranks))
    assert found.ranks == ranks and found.step_seconds > 0
    assert found.fits == (name in ("long", "fits"))
    changes = () if found.fits else would_fit(question.request, found, question.setting)
    assert found.fits or changes or (name, ranks) in MISSED
    for one in changes[:2]:
        there = question.request.changed(plan=parse(one.plan), seq=one.seq)
        again = predicted(_on(there, one.cluster))[1]
        assert again.fits and again.memory_bytes == pytest.approx(one.memory_bytes, rel=1e-12)


def _on(request: Request, cluster: str) -> Request:
    from foretell.hardware import catalog

    return request.changed(cluster=catalog.cluster(cluster))


# ways out

BROKEN = {
    "batch divides": ("dp{ranks}:zero3 +m3 +recompute:block +bf16", "llama3-8b"),
    "layers divide": ("pp16:1f1b dp{narrow}:zero1 tp2:sp +m16 +bf16", "llama3-405b"),
    "heads divide": ("dp{wide}:zero3 tp96:sp +bf16", "llama3-8b"),
}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("rule", BROKEN)
def test_every_way_out_passes_all_rules_and_fits(rule: str, ranks: int) -> None:
    plan, model = BROKEN[rule]
    text = plan.format(ranks=ranks, narrow=ranks // 32, wide=ranks // 96)
    words: dict[str, Any] = {"batch": 16 * ranks, "trainer": "megatron-core", "calibration": "none"}
    request = read(model=model, on=f"{ranks}xh100", plan=text, **words)
    with pytest.raises(PlanRefused) as problem:
        resolve.resolve(request)
    assert rule in {one.rule for one in problem.value.refusals}
    offered = 0
    for refusal in problem.value.refusals:
        for found in re.finditer(r"--plan '([^']+)'|--batch (\d+)", refusal.way_out):
            there = request.changed(plan=parse(found[1])) if found[1] else request.changed(batch=int(found[2]))
            trial = PlanEvaluator(there)
            assert there.plan is not None and trial.legal(there.plan)
            assert trial.fits(trial.predicted(there.plan)), found[0]
            offered += 1
    assert offered or "fits in memory" in problem.value.told()["fix"]


def test_a_batch_that_would_not_fit_is_not_offered() -> None:
    words: dict[str, Any] = {"model": "llama3-8b", "on": "64xh100", "batch": 488, "calibration": "none"}
    for plan, offered in (("dp64:zero3 +bf16", False), ("dp64:zero3 +m8 +recompute:block +bf16", True)):
        with pytest.raises(PlanRefused) as problem:
            resolve.resolve(read(plan=plan, **words))
        assert ("--batch 512" in problem.value.told()["fix"]) == offered


# whatever happens to advice

WHERE: dict[str, tuple[Any, str]] = {
    "limits of the step": (predicting, "bottlenecks"),
    "causes of them": (predicting, "causes"),
    "smaller passes": (proposals, "smaller_passes"),
    "policies": (proposals, "policies"),
    "axes": (proposals, "axes"),
    "more ranks": (proposals, "more_ranks"),
}
"""Places where advice is made, beside a prediction that does not fit."""


def _fails(problem: Exception) -> Callable[..., NoReturn]:
    def failing(*given: object, **named: object) -> NoReturn:
        raise problem

    return failing


def _answer(request: Request) -> tuple[Prediction, int]:
    question, found = predicted(request)
    return found, len(would_fit(question.request, found, question.setting))


@pytest.mark.parametrize("mistake", [BadInput("no such plan"), IndexError("a mistake"), ZeroDivisionError("another")])
@pytest.mark.parametrize("where", WHERE)
def test_a_prediction_stands_whatever_happens_to_its_advice(
    where: str, mistake: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = SHAPES["dense"].request(16_384)
    whole, changes = _answer(request)
    monkeypatch.setattr(*WHERE[where], _fails(mistake))
    if isinstance(mistake, BadInput):
        found, fewer = _answer(request)
    else:
        with pytest.warns(AdviceFailed, match=str(mistake)):
            found, fewer = _answer(request)
    assert (found.step_seconds, found.memory_bytes, found.fits) == (whole.step_seconds, whole.memory_bytes, False)
    assert fewer <= changes
    assert fewer < changes or len(found.bottlenecks) < len(whole.bottlenecks)


@pytest.mark.parametrize("mistake", [BadInput("no such plan"), IndexError("a mistake")])
@pytest.mark.parametrize(
    "place", [(resolve, "all_passing"), (ways_out.PlansNear, "way_out"), (PlanEvaluator, "_holds")]
)
def test_a_refusal_stands_whatever_happens_to_its_way_out(
    place: tuple[Any, str], mistake: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*place, _fails(mistake))
    request = read(model="llama3-8b", on="64xh100", plan="dp64:zero3 +bf16", batch=488, calibration="none")
    with pytest.raises(PlanRefused) as problem:
        if isinstance(mistake, BadInput):
            resolve.resolve(request)
        else:
            with pytest.warns(AdviceFailed, match=str(mistake)):
                resolve.resolve(request)
    assert [one.rule for one in problem.value.refusals] == ["batch divides"]


@pytest.mark.parametrize("mistake", [BadInput("no such plan"), IndexError("a mistake")])
@pytest.mark.parametrize("name", ["Walk", "_wins", "would_fit"])
def test_why_stands_whatever_happens_to_its_advice(
    name: str, mistake: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: dict[str, Any] = {"only": ("dp", "tp"), "batch": 64, "calibration": "none"}
    request = read(model="llama3-8b", on="8xh100", plan="tp8:sp +m64 +bf16", **words)
    large = read(model="llama3-8b", on="8xh100", plan="dp8 +m8 +bf16", **words)
    asked = request if name == "Walk" else large
    whole = why.why(asked)
    monkeypatch.setattr(why, name, _fails(mistake))
    if isinstance(mistake, BadInput):
        found = why.why(asked)
    else:
        with pytest.warns(AdviceFailed, match=str(mistake)):
            found = why.why(asked)
    assert (found.verdict, found.best, found.gap_seconds) == (whole.verdict, whole.best, whole.gap_seconds)
    assert (found.path, found.hardware, found.fixes) != (whole.path, whole.hardware, whole.fixes)


@pytest.mark.parametrize("mistake", [BadInput("no such plan"), IndexError("a mistake")])
def test_whatif_leaves_out_what_cannot_be_tried(mistake: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    request = SHAPES["fits"].request(16_384)
    whole, broken = whatif(request), PlanEvaluator.broken

    def fails(self: PlanEvaluator, plan: Plan) -> Any:
        if self.request.upgrade is not None and self.request.upgrade.what == "memory bandwidth":
            raise mistake
        return broken(self, plan)

    monkeypatch.setattr(PlanEvaluator, "broken", fails)
    if isinstance(mistake, BadInput):
        found = whatif(request)
        assert {one.refused for one in found.hardware if one.what == "memory bandwidth"} == {"no such plan"}
    else:
        with pytest.warns(AdviceFailed, match=str(mistake)):
            found = whatif(request)
        assert not [one for one in found.hardware if one.what == "memory bandwidth"]
    others = [one for one in whole.hardware if one.what != "memory bandwidth"]
    assert [one for one in found.hardware if one.what != "memory bandwidth"] == others
    assert found.jobs == whole.jobs and found.prediction == whole.prediction
