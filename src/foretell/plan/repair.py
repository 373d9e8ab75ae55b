"""Plans beside a plan that breaks rules, and the nearest of them that breaks none.

Each rule mends a plan for itself. The search mends rule by rule until nothing is broken, and goes back to
another mend where one leads nowhere: what is told as a way out has passed every rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from foretell.errors import BadInput
from foretell.plan.members import strategies
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.strategy import Strategy

if TYPE_CHECKING:
    from foretell.plan.plan import Plan

MOST_TRIED: Final = 100
"""Plans that are looked at before a person is told to find one."""

NOTHING_NEAR: Final = f"another plan: none of {MOST_TRIED} near this one passes every rule"


# the search


def nearest(plan: Plan, broken: Callable[[Plan], Iterator[Refusal]], most: int = 0) -> Plan | None:
    """The first plan on the way of mends, from this one on, that breaks no rule."""
    return next(mended(plan, broken, most), None)


def mended(plan: Plan, broken: Callable[[Plan], Iterator[Refusal]], most: int = 0) -> Iterator[Plan]:
    """Plans on the way of mends, from this one on, that break no rule, the nearest first.

    They have no more ranks than the plan, unless there are known to be more (`most`).
    """
    tried: set[Plan] = set()
    left = [plan]
    while left and len(tried) < MOST_TRIED:
        here = left.pop()
        if here in tried:
            continue
        tried.add(here)
        refusal = next(broken(here), None)
        if refusal is None:
            plain = next(iter(_made(here, here.axes)))
            yield plain if next(broken(plain), None) is None else here
            continue
        left += [mend for mend in reversed(refusal.mends) if mend.ranks <= max(plan.ranks, most)]


def told(
    found: Iterable[Refusal], passing: Plan | None, otherwise: str = NOTHING_NEAR, ranks: int = 0
) -> Iterator[Refusal]:
    """Refusals as a person reads them: each with the plan that passes, and with what would do outside the plan.

    Another batch comes first where the plan that passes leaves some of the asked `ranks` idle.
    """
    plan = f"--plan '{passing}'" if passing is not None else otherwise if otherwise != NOTHING_NEAR else ""
    for refusal in found:
        ways = [way for way in (plan, refusal.way_out) if way]
        if refusal.batches and passing is not None and passing.ranks < ranks:
            ways.reverse()
        yield Refusal(refusal.rule, refusal.why, ", or ".join(ways) or NOTHING_NEAR)


# mends


def replaced(plan: Plan, axis: Strategy, *others: Strategy) -> tuple[Plan, ...]:
    """The plan with one of these for an axis: on as many ranks where data ranks can take the rest; then on fewer."""
    found: list[Plan] = []
    for other in others:
        axes = tuple(other if one is axis else one for one in plan.axes)
        times, rest = divmod(axis.world, other.world)
        if axis.word != DATA and times > 1 and not rest:
            found += _made(plan, _with_data(axes, times))
        found += _made(plan, axes)
    return tuple(found)


def removed(plan: Plan, axis: Strategy) -> tuple[Plan, ...]:
    """The plan without an axis: its ranks as data ranks, or not there."""
    axes = tuple(one for one in plan.axes if one is not axis)
    return (*_made(plan, _with_data(axes, axis.world)), *_made(plan, axes))


def changed(plan: Plan, policy: Policy) -> tuple[Plan, ...]:
    """The plan with this policy instead of its own of that kind."""
    others = tuple(other for other in plan.policies if other.word != policy.word)
    return (msgspec.structs.replace(plan, policies=(*others, policy)),)


def fewer(axis: Strategy, passes: Callable[[int], bool] = lambda _: True) -> Iterator[Strategy]:
    """The axis with fewer ranks that divide those it has and pass, the most first; a prime number has the next below.

    Of ranks that divide its own the rest can be data ranks.
    """
    dividing = divisors(axis.ranks)[1:]
    next_below = islice(filter(passes, range(axis.ranks - 1, 1, -1)), 1) if dividing == [1] else ()
    for ranks in (*next_below, *filter(passes, dividing)):
        yield with_fields(axis, ranks=ranks)


def near(axis: Strategy, passes: Callable[[int], bool]) -> Iterator[Strategy]:
    """The axis with the next number of ranks above and below its own that passes, the nearer by ratio first."""
    below = islice(filter(passes, range(axis.ranks - 1, 0, -1)), 1)
    above = islice(filter(passes, range(axis.ranks + 1, 2 * axis.ranks + 1)), 1)
    for ranks in sorted((*below, *above), key=lambda ranks: max(ranks / axis.ranks, axis.ranks / ranks)):
        yield with_fields(axis, ranks=ranks)


def divisors(number: int) -> list[int]:
    """All whole numbers that divide this one, the largest first."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)}, reverse=True)


def with_fields(axis: Strategy, **fields: Any) -> Strategy:
    """The axis with other options."""
    return msgspec.structs.replace(axis, **fields)


DATA: Final = "dp"


def _with_data(axes: tuple[Strategy, ...], times: int) -> tuple[Strategy, ...]:
    """So many times the data ranks; outside the other axes but the pipeline if there were none."""
    data = next((axis for axis in axes if axis.word == DATA), None)
    if data is not None:
        more = with_fields(data, ranks=data.ranks * times)
        return tuple(more if axis is data else axis for axis in axes)
    place = 1 + max((at for at, axis in enumerate(axes) if axis.word == "pp"), default=-1)
    return (*axes[:place], strategies()[DATA](ranks=times), *axes[place:])


def _made(plan: Plan, axes: tuple[Strategy, ...]) -> list[Plan]:
    """The plan with these axes, those of one rank left out; none where it cannot be written (too many ranks)."""
    try:
        return [msgspec.structs.replace(plan, axes=tuple(axis for axis in axes if axis.world > 1))]
    except BadInput:
        return []
