"""Plans on mixed clusters: what the search says is what `predict` says, and no other plan of it is faster."""

from __future__ import annotations

import msgspec
import pytest

from foretell.oracle.mixed import DeviceKinds, alone
from foretell.oracle.mixed_search import BATCHES, EVEN, STAGES, answered_mixed
from foretell.oracle.planning import PlanningAnswer, answered
from foretell.oracle.predicted import predicted
from foretell.oracle.request import Request, read

SMALL = "llama:layers=8,hidden=2048,heads=16,ffn=5504,vocab=4096,seq=1024"


def question(on: str, model: str = SMALL, **words: str) -> Request:
    return read(model=model, on=on, batch=32, precision="bf16", only="dp,pp", **words)


@pytest.fixture(scope="module", params=["2xh100+2xa100-80", "2xh100+2xh100@2x", "3xh100+1xh100@1.5x"])
def answer(request: pytest.FixtureRequest) -> PlanningAnswer:
    return answered_mixed(question(request.param))


def test_each_way_is_what_predict_says(answer: PlanningAnswer) -> None:
    assert answer.found.ways
    for way in answer.found.ways:
        if not way.alone and way.way != EVEN:
            found = predicted(answer.question.changed(plan=read(model="x", plan=way.plan).plan))[1]
            assert found.step_seconds == pytest.approx(way.step_seconds, rel=1e-9)
            assert found.memory_bytes == way.memory_bytes
            assert found.plan == way.plan


def test_uneven_shares_and_equal_ones_are_both_told(answer: PlanningAnswer) -> None:
    found = {one.way: one.step_seconds for one in answer.found.ways}
    assert EVEN in found and found.keys() & {BATCHES, STAGES}
    assert min(found.get(BATCHES, 1e9), found.get(STAGES, 1e9)) <= found[EVEN]
    assert any("alone" in way for way in found)


def test_no_other_plan_of_the_kinds_searches_is_faster(answer: PlanningAnswer) -> None:
    """Every plan that both searches priced, with its best shares: the one that was found is as fast, to a hundredth."""
    asked, kinds = answer.question, DeviceKinds.in_cluster(answer.question.place)
    whole = asked.changed(effort=msgspec.structs.replace(asked.effort, exhaustive=True), top=10_000)
    each = [answered(alone(whole, device)).found.top for device in kinds.devices]
    common = set.intersection(*({one.plan for one in own} for own in each))
    best = min(one.step_seconds for one in answer.found.ways if not one.alone)
    seen = 0
    for one in each[0][:60]:
        if one.plan in common and ":dualpipe" not in one.plan:
            step = predicted(asked.changed(plan=one.value))[1]
            assert not step.fits or step.step_seconds >= 0.99 * best, one.plan
            seen += 1
    assert seen > 10
