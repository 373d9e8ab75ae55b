"""Which algorithm runs: the one that an axis of the plan means, or another one on the same ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from foretell.learning.algorithms.local import Local as LocalSteps
from foretell.learning.members import Composed, composed, of_policy
from foretell.plan.plan import Plan
from foretell.plan.policies.compression import Compression
from foretell.plan.strategies.gossip import Gossip
from foretell.plan.strategies.local import Local
from foretell.plan.strategies.ring import Ring
from foretell.plan.strategies.server import Server
from foretell.plan.strategy import Strategy

CARRIED: Final = ("single", "sharded", "replicated", "ring", "mesh", "tree")
"""Topologies whose ways real letters take."""


def _served(axis: Server) -> str:
    """An axis is priced with a push and a pull for each step: no cache of old weights (Li et al. 2014)."""
    name = {"sync": "sync", "ssp": f"ssp:s={axis.staleness},cache=0", "async": "downpour"}[axis.mode]
    return f"{name}@single" if axis.servers == 1 else f"{name}@sharded:k={axis.servers}"


MEANT: Final[dict[type[Strategy], Callable[[Any], str]]] = {
    Server: _served,
    Local: lambda axis: f"local:tau={axis.period}@replicated",
    Ring: lambda axis: "dpsgd",
    Gossip: lambda axis: "gosgd:p=1",
}
"""What the axes of a plan say in the words of `foretell simulate`."""


def axis_of(plan: Plan) -> Strategy | None:
    """The axis whose ranks keep versions of the weights, if there is one."""
    return next((axis for axis in plan.axes if type(axis) in MEANT and axis.world > 1), None)


def method(plan: Plan, said: str = "") -> Composed | None:
    """What runs under a plan; none where all ranks step together on one version of the weights."""
    axis = axis_of(plan)
    if axis is None:
        return None
    found = composed(said or MEANT[type(axis)](axis))
    return found if found.compressor else found._replace(compressor=of_policy(plan.policy(Compression)))


def round_of(found: Composed | None) -> int:
    """Steps after which everything has happened once; one where all ranks step together."""
    return int(getattr(found.algorithm, "tau", 1)) if found is not None else 1


def carrier(said: str, ranks: int) -> str:
    """A plan whose ranks keep versions as an algorithm does, for people who name only the algorithm."""
    found = composed(said)
    if isinstance(found.algorithm, LocalSteps):
        return f"local{ranks}:tau{found.algorithm.tau}"
    if not found.topology.central:
        return f"{'ring' if found.algorithm.topology == 'ring' else 'gossip'}{ranks}"
    return f"ps{ranks}:{'sync' if found.algorithm.barrier else 'async'}"


def refusals(found: Composed) -> Iterator[tuple[str, str]]:
    """Why an algorithm does not run on processes, though it can be simulated."""
    name = found.text
    topology = type(found.topology).__module__.rpartition(".")[2]
    if not found.algorithm.apart:
        yield f"{name}: workers and server read each other's memory, which only virtual time has", "foretell simulate"
    if topology not in CARRIED:
        yield f"{name}: nobody carries letters by {topology} yet", f"one of {', '.join(CARRIED)}"
    if found.topology.collective and not found.algorithm.barrier:
        yield f"{name} does not wait for all, and {topology} carries everybody's at once", "single, sharded"
    if found.compressor is not None and topology != "single":
        yield f"{name}: compressed gradients go to one server; weights are never compressed", "ps:async +compress:topk"
