"""Nothing falls over at scale, and advice never takes an answer down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from foretell.errors import BadInput
from foretell.oracle import proposals
from foretell.oracle.advice import AdviceFailed, harmless
from foretell.oracle.fit import fit, would_fit
from foretell.oracle.planning import questions
from foretell.oracle.predicted import predicted
from foretell.oracle.proposals import LARGEST, Proposal
from foretell.oracle.request import Request, read
from foretell.oracle.resolve import PlanEvaluator, resolve
from foretell.oracle.whatif import whatif
from foretell.oracle.why import why
from foretell.plan.plan import Plan
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.text import parse

RANKS = (16_384, 65_536, 100_000)

KINDS = ("smaller_passes", "policies", "storages", "axes", "shorter", "larger_devices", "more_ranks")
"""Functions that propose something else."""


def asked(ranks: int, plan: str | None = "dp{data}:zero1 tp8:sp +bf16", **more: object) -> Request:
    data = ranks // 8
    text = plan.format(data=data) if plan else None
    words: dict[str, object] = {"batch": data, "trainer": "megatron-core", "calibration": "none"}
    return read(model="llama3-70b", on=f"{ranks}xh100", plan=text, **(words | more))  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", RANKS)
def test_a_plan_that_is_too_large_is_predicted_with_what_would_fit(ranks: int) -> None:
    question, found = predicted(asked(ranks))
    assert not found.fits and found.ranks == ranks
    changes = would_fit(question.request, found, question.setting)
    assert {"+recompute:attention", "sequences of 4096"} & {one.what for one in changes}
    assert all(parse(one.plan).ranks <= LARGEST for one in changes)


@pytest.mark.parametrize("ranks", RANKS)
def test_fit_answers(ranks: int) -> None:
    assert not fit(asked(ranks)).fits
    assert fit(asked(ranks, None, batch=None)).fits


@pytest.mark.parametrize("ranks", RANKS)
def test_whatif_answers_for_every_change(ranks: int) -> None:
    found = whatif(asked(ranks))
    assert len(found.hardware) == 28 and all(one.step_seconds for one in found.hardware)
    assert [one.times for one in found.jobs] == [0.5, 2.0, 4.0] * 2
    assert "batch divides" in found.jobs[0].refused


@pytest.mark.parametrize("ranks", RANKS)
def test_why_answers(ranks: int) -> None:
    found = why(asked(ranks, only=("dp", "tp", "recompute")))
    assert found.verdict == "too large" and found.fixes and found.path
    assert [one.what for one in found.hardware] == ["memory"]


# advice


def no_proposals(*given: object) -> Iterator[Proposal]:
    raise BadInput("a proposal that cannot be made")


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_proposal_takes_the_answer_down(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    question, found = predicted(asked(16_384))
    monkeypatch.setattr(proposals, kind, no_proposals)
    would_fit(question.request, found, question.setting)
    assert not fit(asked(16_384)).fits
    assert why(asked(16_384, only=("dp", "tp", "recompute"))).verdict == "too large"


def test_a_mistake_in_advice_is_a_warning_beside_the_answer() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise IndexError("list index out of range")

    with pytest.warns(AdviceFailed, match="IndexError: list index out of range"):
        assert list(harmless(broken)) == [1]


def test_a_proposal_that_is_no_plan_is_passed_over() -> None:
    too_many = Plan((Pipeline(ranks=1_000), *parse("dp1000").axes)).axes
    wider = tuple(axis if axis.word != "dp" else type(axis)(ranks=1_001) for axis in too_many)
    assert Proposal("more", "ranks", wider, ()).plan() is None
    assert Proposal("as many", "ranks", too_many, ()).plan() is not None


# ways out


UNEVEN = "pp16:1f1b dp8 tp8:sp +m64 +bf16"


def refusal(question: Request) -> str:
    with pytest.raises(BadInput) as problem:
        resolve(question)
    return str(problem.value.told()["fix"])


def test_a_way_out_fits_in_memory() -> None:
    question = _large(UNEVEN, 1024)
    offered = refusal(question).removeprefix("--plan '").removesuffix("'")
    plan = parse(offered)
    pipeline = plan.axis(Pipeline)
    assert pipeline is not None and pipeline.split == (7, *[8] * 14, 7)
    trial = PlanEvaluator(question)
    assert trial.legal(plan) and trial.fits(trial.predicted(plan))
    nearest = trial.nearest(parse(UNEVEN))
    assert nearest is not None and not trial.fits(trial.predicted(nearest))  # that one would have been offered


def test_where_nothing_near_fits_the_numbers_are_told() -> None:
    told = refusal(_large("pp16:1f1b dp4 +m64 +bf16", 64))
    assert "of 76.8 GiB usable" in told and "fits in memory" in told and "--plan" not in told


def test_without_a_cluster_the_nearest_legal_plan_is_offered() -> None:
    question = read(model="llama3-405b", plan=UNEVEN, batch=512, trainer="megatron-core")
    assert refusal(question).startswith("--plan 'pp16:1f1b,split=")


def _large(plan: str, ranks: int) -> Request:
    on = f"{ranks}xh100"
    return read(model="llama3-405b", on=on, plan=plan, batch=512, trainer="megatron-core", calibration="none")


# whatif keeps the micro-batch size


def test_a_larger_batch_is_more_micro_batches() -> None:
    plan = "dp8:zero3 +m4 +recompute:block +bf16"
    (question,) = questions(read(model="llama3-8b", on="8xh100", plan=plan, batch=64, calibration="none"))
    found = whatif(question)
    batches = {one.times: one for one in found.jobs if one.what == "batch"}
    assert {times: one.microbatches for times, one in batches.items()} == {0.5: 2, 2.0: 8, 4.0: 16}
    assert "+m8" in batches[2.0].plan
    as_asked = PlanEvaluator(question.changed(batch=128)).predicted(parse(plan.replace("+m4", "+m8")))
    assert batches[2.0].step_seconds == as_asked.step_seconds
    assert batches[2.0].memory_bytes == pytest.approx(found.prediction.memory_bytes, rel=1e-3)
    longer = [one for one in found.jobs if one.what == "sequence"]
    assert all(one.microbatches == 4 for one in longer)
