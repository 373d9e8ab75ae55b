"""Which runs a constant was chosen on, and what a trainer and a device are without those of one source."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from foretell.cost.kernels._reached import reached_by
from foretell.hardware.cluster import Cluster
from foretell.plan.trainer import CONSTANTS, Trainer, trainer
from foretell.plan.trainer_levels import levels

FILE: Final = Path(__file__).with_name("in_view.toml")

MANY: Final = "many"


TOGETHER: Final = ("host.launch", "host.layer", "host.layer_recomputes")
"""One way to count the host's time or the other: a trainer has all of it from one place."""


class Slot(NamedTuple):
    """A constant and whose it is: a trainer's, or what units of an architecture or device reach."""

    kind: str  # trainers, kernels
    owner: str
    key: str


Chosen = Mapping[Slot, Any]
"""Values of constants that were chosen again."""


@functools.cache
def in_view() -> dict[Slot, frozenset[str]]:
    """The sources that each constant was chosen on; those that are not here saw no run that is scored."""
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    many = content.pop(MANY)
    found: dict[Slot, frozenset[str]] = {}
    for kind, owners in content.items():
        for owner, sources in owners.items():
            for source, keys in sources.items():
                for key in keys:
                    slot = Slot(kind, owner, key)
                    found[slot] = found.get(slot, frozenset()) | (frozenset(many) if source == MANY else {source})
    return found


def slots_of(source: str) -> list[Slot]:
    """The constants that a source was in view of."""
    return [slot for slot, sources in in_view().items() if source in sources]


def in_groups(slots: Iterable[Slot]) -> list[tuple[Slot, ...]]:
    """Constants that are chosen at once: those of a trainer that count one time in two ways, and each other alone."""
    groups: dict[tuple[str, ...], list[Slot]] = {}
    for slot in slots:
        together = slot.kind == "trainers" and slot.key in TOGETHER
        groups.setdefault((slot.kind, slot.owner, TOGETHER[0] if together else slot.key), []).append(slot)
    return list(map(tuple, groups.values()))


def chain(name: str) -> list[Trainer]:
    """A trainer, the one it is based on, and so on."""
    return levels(trainer(name))


@functools.cache
def own(name: str) -> frozenset[str]:
    """The constants that a trainer gives itself."""
    return frozenset(key for key, source in trainer(name).sources if not source.startswith("carried over from "))


def holder(name: str, key: str) -> str:
    """The trainer that gives another one a constant; none for those that nobody gives."""
    return next((level.name for level in chain(name) if key in own(level.name)), "")


def constants_without(name: str, source: str, chosen: Chosen) -> dict[str, Any]:
    """Constants of a trainer that differ when a source was never seen: those chosen again, or of the trainer below."""
    made, found = trainer(name), dict[str, Any]()
    touched = {slot.key for slot in slots_of(source) if slot.kind == "trainers"}
    above = chain(name)
    for key in touched:
        value = _without(above, key, source, chosen)
        if value != made.constant(key):
            found[key] = value
    return found


def _without(above: list[Trainer], key: str, source: str, chosen: Chosen) -> Any:
    for level in above:
        if key not in own(level.name):
            continue
        slot = Slot("trainers", level.name, key)
        if source not in in_view().get(slot, ()):
            return level.constant(key)
        if slot in chosen:
            return chosen[slot]
    return above[-1].constant(key)


def staying(source: str, chosen: Chosen) -> list[Slot]:
    """Constants that a source was in view of and that stay as they are: no software below or beside has another one."""
    return [
        slot
        for slot in slots_of(source)
        if slot.kind == "trainers" and slot not in chosen and not _below(slot, source, chosen)
    ]


def _below(slot: Slot, source: str, chosen: Chosen) -> bool:
    """Whether a trainer below has the constant, and did not have it from the source alone."""
    slots = [Slot("trainers", level.name, slot.key) for level in chain(slot.owner)[1:] if slot.key in own(level.name)]
    return any(one in chosen or source not in in_view().get(one, ()) for one in slots)


def changed(made: Trainer, constants: Mapping[str, Any]) -> Trainer:
    """A trainer with other constants."""
    for key, value in constants.items():
        if key not in CONSTANTS:
            raise KeyError(key)
        section, _, name = key.partition(".")
        part = msgspec.structs.replace(getattr(made, section), **{name: value})
        made = msgspec.structs.replace(made, **{section: part})
    return made


def cluster_without(cluster: Cluster, source: str, chosen: Chosen) -> Cluster:
    """A cluster whose units reach what was chosen without a source."""
    return with_reached(cluster, {slot: chosen[slot] for slot in slots_of(source) if slot in chosen})


def with_reached(cluster: Cluster, chosen: Chosen) -> Cluster:
    """A cluster whose units reach other shares of their peaks."""
    device = cluster.device
    reached = dict(device.reached)
    for slot, value in chosen.items():
        if slot.kind == "kernels" and slot.owner in (device.name, device.architecture):
            if slot.owner == device.architecture and slot.key in device.reached:
                continue  # the device's own figure holds
            reached[slot.key] = msgspec.structs.replace(reached_by(device, slot.key), products=value)
    if reached == device.reached:
        return cluster
    other = msgspec.structs.replace(device, reached=reached)
    groups = tuple(msgspec.structs.replace(group, device=other) for group in cluster.groups)
    return msgspec.structs.replace(cluster, groups=groups)
