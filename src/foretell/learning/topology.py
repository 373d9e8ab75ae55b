"""Which ways messages take: from workers to a server and back, round after round of a collective, to neighbours.

Nodes are numbered: workers first, then the servers of the topology. A topology is what it says of these:

    single(1)   a worker pushes to node n;  the server replies to each worker in turn
    ring        no server; a round of messages from each worker to the next, so many times
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from foretell.errors import BadInput


class ShareMessage(NamedTuple):
    """A message with a share of the model."""

    source: int
    target: int
    share: float = 1.0


class MessageRound(NamedTuple):
    """Messages that start together, each of `share` of the model, `times` in a row; then what came in is summed."""

    pairs: tuple[tuple[int, int], ...]
    share: float = 1.0
    sums: bool = False
    times: int = 1


@dataclass(frozen=True)
class Topology:
    """One file in `topologies/`: a class with its paper."""

    paper: ClassVar[str]
    summary: ClassVar[str]
    collective: ClassVar[bool] = False  # all workers exchange at once, or nobody does
    replicated: ClassVar[bool] = False  # every worker runs the same optimizer: sums of gradients travel, not weights
    central: ClassVar[bool] = True  # there is somebody to push to

    def servers(self, workers: int) -> int:
        """Nodes beside the workers."""
        return 0

    def beside(self, workers: int) -> Sequence[int]:
        """The worker whose rank each server shares, where servers have no hosts of their own."""
        return [server % workers for server in range(self.servers(workers))]

    def owners(self, workers: int) -> int:
        """Nodes that share sums and updates."""
        return 1

    def up(self, worker: int, workers: int) -> Sequence[Sequence[ShareMessage]]:
        """Legs of a push, one after the other; the hops of a leg start together."""
        raise self._no_server()

    def down(self, worker: int, workers: int) -> Sequence[Sequence[ShareMessage]]:
        """Legs of a reply."""
        back = reversed(self.up(worker, workers))
        return [[ShareMessage(hop.target, hop.source, hop.share) for hop in leg] for leg in back]

    def gather(self, workers: int) -> Sequence[MessageRound]:
        """Rounds of a collective from gradients to their sum where it is needed."""
        raise NotImplementedError

    def spread(self, workers: int) -> Sequence[MessageRound]:
        """Rounds from the new weights to all."""
        raise NotImplementedError

    def neighbours(self, worker: int, workers: int) -> Sequence[int]:
        """Whom a worker may send its model to."""
        return [other for other in range(workers) if other != worker]

    def _no_server(self) -> BadInput:
        name = type(self).__module__.rpartition(".")[2]
        return BadInput(f"{name} has no server that one worker alone could push to", fix="single, sharded, every")
