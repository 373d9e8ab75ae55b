"""Other hardware and other jobs: one thing of a question changed by a factor, to be predicted or searched again.

Hardware is changed by functions from a cluster to a cluster. Nothing else knows that it was changed: kernels and
collectives are priced for the new figures as for any others, with the efficiencies that were measured on the old.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster, Device, DeviceGroup, Level, Link
from foretell.model.source import load
from foretell.oracle.planning import space_of
from foretell.oracle.request import Request, Upgrade
from foretell.plan.facts import facts
from foretell.plan.plan import Plan
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.syntax import MOST

TIMES: Final = (1.25, 1.5, 2.0, 4.0)
"""How many times as good hardware is tried."""

ClusterChange = Callable[[Cluster, float], Cluster]


class Knob(NamedTuple):
    """One thing that can be turned; `changed` gives None where it cannot be turned so far."""

    name: str
    kind: str  # hardware, or job
    changed: Callable[[Request, float], Request | None]
    plan: Callable[[Plan, float], Plan] = lambda plan, times: plan  # the plan that goes with it


def hardware(cluster: Cluster) -> tuple[Knob, ...]:
    """Everything of a cluster that could be better: of its devices, then of each of its links."""
    return tuple(Knob(name, "hardware", _on(change, name)) for name, change in _changes(cluster).items())


def jobs(question: Request) -> tuple[Knob, ...]:
    """The batch, and the sequence if there is one."""
    length = question.seq or facts(space_of(question).graph).sequence
    found = (Knob("batch", "job", _batch, _accumulated),)
    return (*found, Knob("sequence", "job", _sequence(length))) if length and _free(question, length) else found


def _free(question: Request, length: int) -> bool:
    """Whether the model takes sequences of other lengths: not if it is a graph, or its name says how long they are."""
    if question.graph is not None:
        return False
    try:
        load(question.model, 1, length)
    except BadInput:
        return False
    return True


def _batch(question: Request, times: float) -> Request | None:
    return _scaled(question, "batch", question.batch * times)


def _accumulated(plan: Plan, times: float) -> Plan:
    """The plan with the micro-batch size that it has: a larger batch is more micro-batches, as gradients add up."""
    count = plan.microbatches * times
    if count != int(count) or not 1 <= count <= MOST:
        return plan
    others = tuple(policy for policy in plan.policies if not isinstance(policy, Microbatches))
    return msgspec.structs.replace(plan, policies=(*others, Microbatches(count=int(count))))


def _sequence(length: int) -> Callable[[Request, float], Request | None]:
    def changed(question: Request, times: float) -> Request | None:
        return _scaled(question, "seq", length * times)

    return changed


def _scaled(question: Request, field: str, value: float) -> Request | None:
    return question.changed(**{field: int(value)}) if value == int(value) >= 1 else None


def _on(change: ClusterChange, name: str) -> Callable[[Request, float], Request]:
    return lambda question, times: question.changed(upgrade=Upgrade(name, times, change))


# clusters


def _changes(cluster: Cluster) -> dict[str, ClusterChange]:
    found: dict[str, ClusterChange] = {
        "compute rate": lambda old, times: _with_devices(old, lambda device: _faster(device, times)),
        "memory bandwidth": lambda old, times: _with_devices(
            old, lambda device: msgspec.structs.replace(device, memory_bandwidth=device.memory_bandwidth * times)
        ),
        "memory": lambda old, times: _with_devices(
            old, lambda device: msgspec.structs.replace(device, memory_bytes=int(device.memory_bytes * times))
        ),
    }
    for link, where in _links(cluster).items():
        found[f"{where} bandwidth"] = _linked(link, _wider)
        found[f"{where} latency"] = _linked(link, _prompter)
    return found


def _links(cluster: Cluster) -> dict[str, str]:
    """Links that carry something, with the levels they are at: neighbouring levels of one link change together."""
    found: dict[str, list[str]] = {}
    for level in cluster.levels:
        if level.size > 1:
            found.setdefault(level.link.name, []).append(level.name)
    return {link: "/".join(levels) for link, levels in found.items()}


def _with_devices(cluster: Cluster, changed: Callable[[Device], Device]) -> Cluster:
    groups = tuple(DeviceGroup(changed(group.device), group.ranks) for group in cluster.groups)
    return msgspec.structs.replace(cluster, groups=groups)


def _faster(device: Device, times: float) -> Device:
    """All units at once, as a higher clock makes them; memory, and the time to start a kernel, stay."""
    return msgspec.structs.replace(
        device,
        peak={name: rate * times for name, rate in device.peak.items()},
        vector={name: rate * times for name, rate in device.vector.items()},
        clock_hz=device.clock_hz * times,
    )


def _linked(name: str, change: Callable[[Link, float], Link]) -> ClusterChange:
    def changed(cluster: Cluster, times: float) -> Cluster:
        def level(old: Level) -> Level:
            other = old.link.name != name
            return old if other else msgspec.structs.replace(old, link=change(old.link, times))

        return msgspec.structs.replace(cluster, levels=tuple(map(level, cluster.levels)))

    return changed


def _wider(link: Link, times: float) -> Link:
    return msgspec.structs.replace(link, bandwidth=link.bandwidth * times, ceiling=link.ceiling * times)


def _prompter(link: Link, times: float) -> Link:
    """So many times as quick: the latency is divided."""
    latency, hop = link.latency_seconds / times, link.hop_seconds / times
    return msgspec.structs.replace(link, latency_seconds=latency, hop_seconds=hop)
