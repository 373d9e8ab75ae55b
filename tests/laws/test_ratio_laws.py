"""Laws of ratios: symmetric, nothing for a plan and itself, and never narrower for plans with more differences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.oracle.priced_plans import Candidate
from foretell.oracle.ratios import differences, ratio_uncertainty, told_apart
from foretell.oracle.simplicity import simplicity
from foretell.plan.plan import Plan
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from law_examples import examples, reached
from laws.test_plan_laws import plans

CHANGES: tuple[Policy, ...] = (
    Microbatches(count=7919),
    Recompute(granularity="full"),
    Recompute(every=97),
    Precision(name="nvfp4"),
)


def changed(plan: Plan, policy: Policy) -> Plan:
    return Plan(plan.axes, (*(old for old in plan.policies if old.word != policy.word), policy))


@examples(60)
@given(one=plans(), other=plans())
def test_ratios_are_symmetric_and_of_a_plan_and_itself_exact(one: Plan, other: Plan) -> None:
    assert ratio_uncertainty(one, other) == ratio_uncertainty(other, one)
    assert ratio_uncertainty(one, one).width == 0
    assert (ratio_uncertainty(one, other).width > 0) == (one != other)


@pytest.mark.reaches(more=20)
@examples(60)
@given(plan=plans(), changes=st.permutations(CHANGES))
def test_more_differences_are_never_known_better(plan: Plan, changes: list[Policy]) -> None:
    other, before, width = plan, set[str](), 0.0
    for change in changes:
        other = changed(other, change)
        now = ratio_uncertainty(plan, other)
        if before <= set(now.differences):
            assert now.width >= width
            if before < set(now.differences):
                reached("more")
        before, width = set(now.differences), now.width


@pytest.mark.reaches(apart=5, together=5)
@examples(60)
@given(one=plans(), other=plans(), ratio=st.floats(1.0, 4.0), more=st.floats(1.0, 2.0))
def test_what_is_told_apart_stays_so_when_it_is_further_apart(
    one: Plan, other: Plan, ratio: float, more: float
) -> None:
    first, second = Candidate.of(one, 1.0, 1.0), Candidate.of(other, ratio, 1.0)
    apart = told_apart(first, second)
    reached("apart" if apart else "together")
    assert apart == told_apart(second, first)
    assert told_apart(first, Candidate.of(other, ratio * more, 1.0)) >= apart


@examples(60)
@given(plan=plans())
def test_a_simpler_plan_has_no_more_policies(plan: Plan) -> None:
    """What a plan names beside its axes never makes it simpler."""
    assert simplicity(Plan(plan.axes)) <= simplicity(plan)


@examples(60)
@given(plan=plans())
def test_traits_are_those_of_an_equal_plan(plan: Plan) -> None:
    again = Plan(plan.axes, tuple(reversed(plan.policies)))
    assert differences(plan, again) == ()
