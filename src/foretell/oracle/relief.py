"""What would bring memory down, or make it cheaper to have little of it: only what a plan does not do already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from foretell.plan.plan import Plan
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.recompute import Recompute
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.together import storage


class Remedy(NamedTuple):
    """One thing to do, and whether a plan does it."""

    text: str
    taken: Callable[[Plan], bool]


def _has(*kinds: type[Tensor | Context | Pipeline]) -> Callable[[Plan], bool]:
    return lambda plan: all((axis := plan.axis(kind)) is not None and axis.world > 1 for kind in kinds)


def _sequence(plan: Plan) -> bool:
    tensor = plan.axis(Tensor)
    return tensor is not None and tensor.sequence


def _shares(part: str) -> Callable[[Plan], bool]:
    return lambda plan: getattr(storage(plan), part)


def _offloads(plan: Plan) -> bool:
    return plan.policy(Offload).optimizer


def _layers_again(plan: Plan) -> bool:
    return bool(plan.policy(Recompute).rule.together(1))


def _attention_again(plan: Plan) -> bool:
    return plan.policy(Recompute).granularity == "attention"


def _never(plan: Plan) -> bool:
    return False


ZERO1: Final = Remedy("zero1", _shares("states"))
ZERO2: Final = Remedy("zero2", _shares("gradients"))
ZERO3: Final = Remedy("zero3", _shares("weights"))
SMALLER: Final = Remedy("smaller micro-batches", _never)
ON_HOST: Final = Remedy("+offload:optimizer", _offloads)
WIDER: Final = (Remedy("TP", _has(Tensor)), Remedy("PP", _has(Pipeline)))

WAYS: Final[Mapping[str, tuple[Remedy, ...]]] = {
    "activations": (
        Remedy("+recompute:block", _layers_again),
        SMALLER,
        Remedy("TP and CP", _has(Tensor, Context)),
    ),
    "working": (SMALLER, Remedy("TP (which shards the vocabulary too)", _has(Tensor))),
    "states": (ZERO1, ON_HOST, *WIDER),
    "weights": (ZERO3, *WIDER),
    "gradients": (ZERO2, *WIDER),
    "redundancy": (ZERO1, ZERO2, ZERO3, *WIDER),
    "update": (Remedy("zero1, which shards it", _shares("states")), Remedy("a larger batch", _never)),
    "recompute": (
        Remedy("+recompute:attention", _attention_again),
        Remedy("no recompute, if memory allows", _never),
    ),
    "replicated": (
        Remedy("tp:sp", _sequence),
        Remedy("a trainer that keeps the logits sharded (--trainer)", _never),
        Remedy("a smaller degree", _never),
    ),
}
"""By what is largest, or what takes the time; where one is named before another, it costs less."""

OTHERWISE: Final = "more ranks, or smaller micro-batches"


def relief(of: str, plan: Plan | None) -> str:
    """The ways that a plan does not take yet, as people say them; of no plan all of them."""
    ways = [way.text for way in WAYS.get(of, ()) if plan is None or not way.taken(plan)]
    if not ways:
        return OTHERWISE
    *first, last = ways
    return f"{', '.join(first)}, or {last}" if first else last
