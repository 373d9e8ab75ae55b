"""What a person wants to see of very many plans: the best of each layout, and the plainest that is as good.

The plans behind the best are mostly the best again, with another storage or one micro-batch more. A layout is a mesh:
the axes and their ranks. Plans that take the same time and memory to the last digit, whatever their mesh, are one too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy

from foretell.oracle.priced_plans import Candidate, plainness
from foretell.oracle.search import SearchResult

NEAR: Final = 0.01
"""The share by which plans may differ and are still as good as each other: less than any prediction can tell apart."""

AHEAD: Final = (20, 400)
"""Plans that are looked at for each layout that is told: first few, then many if these are too few layouts."""

MOST: Final = 5_000
"""Plans among which a plainer one is looked for."""


class BestOfLayout(NamedTuple):
    """The best plan of a layout, and its others that are as good."""

    plan: Candidate
    others: tuple[Candidate, ...]


def layouts(found: SearchResult, by: str = "time") -> list[BestOfLayout]:
    """The best plan of each layout that fits, best first; as many as `top` has, at most."""
    told: list[BestOfLayout] = []
    for ahead in AHEAD:
        told = list(_folded(found, _ordered(found, by, ahead * len(found.top)), by))
        if len(told) == len(found.top) or ahead * len(found.top) >= len(found.plans):
            break
    return told


def _ordered(found: SearchResult, by: str, count: int) -> list[Candidate]:
    chosen = (Candidate(one.plan, one.step_seconds, one.memory_bytes) for one in reversed(found.finer) if one.plan)
    every = found.plans.smallest(count) if by == "memory" else (*chosen, *found.plans.fastest(count))
    return [one for one in every if one.memory_bytes <= found.capacity]


def _folded(found: SearchResult, ordered: Sequence[Candidate], by: str) -> Iterator[BestOfLayout]:
    first: dict[Hashable, Candidate] = {}
    others: dict[Candidate, list[Candidate]] = {}
    known: dict[tuple[float, float], Candidate] = {}
    for one in ordered:
        mesh = _mesh(one)
        leader = known.get((one.step_seconds, one.memory_bytes)) or first.get(mesh, one)
        first.setdefault(mesh, leader)  # a twin speaks for its mesh too: what comes behind it is not the best of that
        if leader is one:
            others[one] = []
        elif _figure(one, by) <= (1 + NEAR) * _figure(leader, by):
            others[leader].append(one)
        known.setdefault((one.step_seconds, one.memory_bytes), leader)
    for leader, own in list(others.items())[: len(found.top)]:
        yield BestOfLayout(leader, tuple(own))


def _mesh(one: Candidate) -> Hashable:
    return tuple((axis.word, axis.world) for axis in one.value.axes)


def _figure(one: Candidate, by: str) -> float:
    return one.memory_bytes if by == "memory" else one.step_seconds


def plainer(found: SearchResult) -> Candidate | None:
    """The plainest plan that is as fast as the best to a hundredth, if it has fewer words or options than the best."""
    best, plans = found.best, found.plans
    if best is None:
        return None
    near = numpy.flatnonzero(plans.fits & (plans.seconds <= (1 + NEAR) * best.step_seconds))
    near = near[numpy.argsort(plans.seconds[near], kind="stable")][:MOST]
    plainest = min((plans[int(at)] for at in near), key=lambda one: (*_words(one), one.step_seconds), default=best)
    return plainest if _words(plainest) < _words(best) else None


def _words(one: Candidate) -> tuple[int, int]:
    return plainness(one)[:2]
