"""A collective of all ranks in one process: what comes of it, what travels, and how long it takes on ideal links.

It plays the rounds that processes would, and is the judge of the formulas: they share no code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from foretell.runtime.collectives._choice import AlgorithmChoice
from foretell.runtime.collectives._schedule import Message, Round, Team


class Tally(NamedTuple):
    """What one rank sends."""

    messages: int
    elements: int


def tally(choice: AlgorithmChoice, kind: str, rank: int, ranks: int, size: int) -> Tally:
    """Messages and elements that a rank sends; empty messages are none."""
    rounds = choice.rounds(kind, Team.of(rank, ranks, size))
    sizes = [message.span.size for one in rounds for message in one.sends if message.span.size]
    return Tally(len(sizes), sum(sizes))


class PlayedCollective(NamedTuple):
    tensors: list[Any]
    seconds: float


class _Sent(NamedTuple):
    values: Any
    ready: float  # when its last byte has left


class _PlayedRank:
    """One rank: its rounds, its tensor, its clock, and when its port is free each way."""

    def __init__(self, rounds: list[Round], tensor: Any) -> None:
        self.rounds = deque(rounds)
        self.source, self.tensor = tensor, tensor.copy()
        self.clock = self.outgoing = self.incoming = 0.0
        self.sent = False


Wires: TypeAlias = Callable[[int, int], tuple[float, float]]
"""Seconds of a message between two ranks: before its first element, and of each."""


def play(
    choice: AlgorithmChoice,
    kind: str,
    tensors: Sequence[Any],
    alpha: float = 0.0,
    beta: float = 0.0,
    wires: Wires | None = None,
) -> PlayedCollective:
    """Do a collective over numpy arrays, a rank each, where a message of m elements takes alpha + m beta, or what
    `wires` say of its pair.

    A port carries one message at a time each way, and what is on its way holds both of its ports.
    """

    def alike(source: int, target: int) -> tuple[float, float]:
        return alpha, beta

    between = wires or alike
    count, size = len(tensors), len(tensors[0])
    ranks = [_PlayedRank(list(choice.rounds(kind, Team.of(at, count, size))), one) for at, one in enumerate(tensors)]
    lines: dict[tuple[int, int], deque[_Sent]] = {(a, b): deque() for a in range(count) for b in range(count)}
    while any(rank.rounds for rank in ranks):
        moved = [_went_on(at, rank, lines, kind, between) for at, rank in enumerate(ranks)]
        assert any(moved), f"{choice.text} {kind} among {count} ranks stands still"
    return PlayedCollective([rank.tensor for rank in ranks], max(rank.clock for rank in ranks))


def _went_on(at: int, rank: _PlayedRank, lines: dict[tuple[int, int], deque[_Sent]], kind: str, wires: Wires) -> bool:
    """Whether a rank could begin or end a round."""
    if not rank.rounds:
        return False
    now = rank.rounds[0]
    began = not rank.sent
    if began:
        _send(at, rank, now.sends, lines, kind, wires)
    if not all(lines[message.peer, at] for message in now.receives):
        return began
    come = [(message, lines[message.peer, at].popleft()) for message in now.receives]
    for message, sent in sorted(come, key=lambda pair: pair[1].ready):
        _receive(rank, message, sent, now.adds, *wires(message.peer, at))
    rank.rounds.popleft()
    rank.sent = False
    return True


def _send(
    at: int,
    rank: _PlayedRank,
    sends: tuple[Message, ...],
    lines: dict[tuple[int, int], deque[_Sent]],
    kind: str,
    wires: Wires,
) -> None:
    values = rank.source if kind == "all-to-all" else rank.tensor
    for message in sends:
        rank.outgoing = max(rank.outgoing, rank.clock) + message.span.size * wires(at, message.peer)[1]
        sent = values[message.span.start : message.span.stop].copy()
        lines[at, message.peer].append(_Sent(sent, rank.outgoing))
    rank.sent = True


def _receive(rank: _PlayedRank, message: Message, sent: _Sent, adds: bool, alpha: float, beta: float) -> None:
    start, stop = message.span
    rank.tensor[start:stop] = rank.tensor[start:stop] + sent.values if adds else sent.values
    rank.incoming = max(rank.incoming + message.span.size * beta, sent.ready + alpha)
    rank.clock = max(rank.clock, rank.incoming)
