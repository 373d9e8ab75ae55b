# pyright: basic
"""Hivemind: peers that find each other by a distributed hash table and average their weights, no group and no master.

Each peer updates its own weights by its own samples, and averages them with the others after every step. Averaged
weights after steps of Adam's are not a step by averaged gradients: losses are its own.
"""

from __future__ import annotations

import importlib
import os
import secrets
import time
from typing import TYPE_CHECKING, Any

from foretell.bench.engine import Engine

if TYPE_CHECKING:
    from foretell.runtime.clock import Clock
    from foretell.runtime.subject import Subject

ENGINE = Engine(
    title="Hivemind, weights averaged after each step",
    plan="dp{n}",
    one_host=True,
    package="hivemind",
    synchronous=False,
    settings={"averaging": "weights, every step", "compression": "none"},
)

PATIENCE = 60.0
"""Seconds in which peers must have found each other for a round."""


def apply(subject: Subject) -> None:
    import torch.distributed as dist

    from foretell.bench.wrapping import optimizer_of, own_samples
    from foretell.processes import end_with_parent

    os.register_at_fork(after_in_child=end_with_parent)  # peers are processes: none outlives its rank
    hivemind: Any = importlib.import_module("hivemind")
    rank, world = dist.get_rank(), dist.get_world_size()
    told: list[Any] = [None, None]
    table = hivemind.DHT(host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True) if rank == 0 else None
    if table is not None:
        told = [[str(one) for one in table.get_visible_maddrs()], secrets.token_hex(8)]
    dist.broadcast_object_list(told, src=0)
    if table is None:
        table = hivemind.DHT(host_maddrs=["/ip4/127.0.0.1/tcp/0"], initial_peers=told[0], start=True)
    weights = subject.weights()
    averager: Any = hivemind.averaging.DecentralizedAverager(
        averaged_tensors=[weight.detach().cpu().clone() for weight in weights],
        dht=table,
        prefix=f"foretell{told[1]}",
        target_group_size=max(2, world),
        min_group_size=max(2, world),
        min_matchmaking_time=1.0,
        start=True,
    )
    own_samples(subject)
    inner: Any = _Averaged(optimizer_of(subject), weights, averager, world)
    subject.summed.append(inner.hear)
    subject.optimizer = lambda rule, own: inner


class _Averaged:
    """An optimizer after whose step weights are averaged with those of other peers."""

    def __init__(self, inner: Any, weights: list[Any], averager: Any, world: int) -> None:
        self._inner, self._weights, self._averager, self._world = inner, weights, averager, world
        self.param_groups, self.zero_grad = inner.param_groups, inner.zero_grad
        self._clock: Clock | None = None

    def hear(self, clock: Clock) -> None:
        """Whom to tell how long peers were waited for."""
        self._clock = clock

    def step(self) -> None:
        import torch

        self._inner.step()
        if self._world == 1:
            return
        with self._averager.get_tensors() as shared:
            for mine, theirs in zip(self._weights, shared, strict=True):
                theirs.copy_(mine.detach())
        start = time.perf_counter()
        self._averager.step(timeout=PATIENCE, allow_retries=True)
        if self._clock is not None:
            self._clock.waited("dp", time.perf_counter() - start)
        with self._averager.get_tensors() as shared, torch.no_grad():
            for mine, theirs in zip(self._weights, shared, strict=True):
                mine.copy_(theirs)
