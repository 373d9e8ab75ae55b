"""What an algorithm is made of: teams of ranks, spans of a tensor, rounds of messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class ElementSpan(NamedTuple):
    """Elements of a flat tensor, from the first to before the last."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def meets(self, other: ElementSpan) -> bool:
        """Whether both have an element in common."""
        return max(self.start, other.start) < min(self.stop, other.stop)


class Message(NamedTuple):
    peer: int  # rank
    span: ElementSpan


class Round(NamedTuple):
    """Messages that one rank sends and waits for before it goes on."""

    sends: tuple[Message, ...] = ()
    receives: tuple[Message, ...] = ()
    adds: bool = False  # what comes is added to what is there; else it takes its place


@dataclass(frozen=True)
class Team:
    """Ranks that do a collective over a span, as one of them sees it."""

    members: tuple[int, ...]
    at: int  # place of this rank among them
    span: ElementSpan

    @classmethod
    def of(cls, rank: int, ranks: int, size: int) -> Team:
        """All ranks, over a whole tensor."""
        return cls(tuple(range(ranks)), rank, ElementSpan(0, size))

    def __len__(self) -> int:
        return len(self.members)

    def peer(self, at: int) -> int:
        """The rank at a place, counted round."""
        return self.members[at % len(self.members)]

    def block(self, at: int) -> ElementSpan:
        """The share of the rank at a place, counted round; the first have an element more where it does not divide."""
        return part(self.span, at % len(self.members), len(self.members))

    def send(self, at: int, span: ElementSpan) -> Message:
        return Message(self.peer(at), span)


def part(span: ElementSpan, at: int, parts: int) -> ElementSpan:
    """One of several nearly equal parts of a span."""
    short, longer = divmod(span.size, parts)
    start = span.start + at * short + min(at, longer)
    return ElementSpan(start, start + short + (at < longer))


def joined(first: ElementSpan, last: ElementSpan) -> ElementSpan:
    """From the start of one to the end of another."""
    return ElementSpan(first.start, last.stop)


class ScheduledAlgorithm(Protocol):
    """A member of the open set: a module with these names.

    Before and after, in a tensor of n blocks: an all-reduce has everything and gets the sum; a reduce-scatter has
    everything and gets the sum of the block of its place; an all-gather has that block and gets everything; a
    broadcast gets what the first of the team has; an all-to-all of equal blocks sends block j to j, gets i from i.
    """

    KINDS: tuple[str, ...]

    def rounds(self, kind: str, team: Team) -> Iterator[Round]: ...


class Numbered(ScheduledAlgorithm, Protocol):
    """One that takes a number."""

    def numbered(self, kind: str, team: Team, number: int) -> Iterator[Round]: ...
