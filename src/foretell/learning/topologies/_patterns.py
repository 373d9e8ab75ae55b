"""Who sends to whom in a round."""

from __future__ import annotations

from typing import TypeAlias

Pairs: TypeAlias = tuple[tuple[int, int], ...]


def circle(nodes: int) -> Pairs:
    """Everybody to the next one."""
    return tuple((at, (at + 1) % nodes) for at in range(nodes)) if nodes > 1 else ()


def tree(nodes: list[int]) -> list[Pairs]:
    """Rounds of a binomial tree that ends at the first node; the rounds of a broadcast are these, turned round."""
    rounds: list[Pairs] = []
    apart = 1
    while apart < len(nodes):
        senders = range(apart, len(nodes), 2 * apart)
        rounds.append(tuple((nodes[at], nodes[at - apart]) for at in senders))
        apart *= 2
    return rounds


def back(pairs: Pairs) -> Pairs:
    return tuple((target, source) for source, target in pairs)
