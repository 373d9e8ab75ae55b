"""What a person can choose from: every name that a question can have."""

from __future__ import annotations

import msgspec

from foretell.dialects import names as dialect_names
from foretell.dialects.launchers import names as launcher_names
from foretell.hardware import members
from foretell.model import zoo
from foretell.model.optimizer import OPTIMIZERS
from foretell.plan.policies.precision import FORMATS
from foretell.plan.policies.recompute import Recompute
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.pipeline import SCHEDULES
from foretell.plan.trainer import era
from foretell.plan.trainer import names as trainer_names


class HardwareChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A device, a machine or a site."""

    name: str
    title: str
    kind: str  # device, machine (several can be joined), site (whole, or a part of it)
    node: int  # ranks of a node
    ranks: int  # of all of it


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Names of everything."""

    models: tuple[str, ...]
    places: tuple[HardwareChoice, ...]
    networks: tuple[str, ...]
    trainers: tuple[str, ...]  # today's first
    historical: dict[str, str]  # trainers that are kept to repeat published runs, with their years
    optimizers: tuple[str, ...]
    precisions: tuple[str, ...]
    storages: tuple[str, ...]
    schedules: tuple[str, ...]
    recomputes: tuple[str, ...]
    dialects: tuple[str, ...]
    launchers: tuple[str, ...]


def choices() -> Choices:
    """All that ships."""
    return Choices(
        models=tuple(sorted(zoo.names())),
        places=tuple(_devices() + _machines()),
        networks=tuple(name for name in members.names("links") if members.link(name).per_port),
        trainers=tuple(sorted(trainer_names(), key=lambda name: (era(name) != "", name))),
        historical={name: era(name) for name in sorted(trainer_names()) if era(name)},
        optimizers=tuple(sorted(OPTIMIZERS)),
        precisions=tuple(FORMATS),
        storages=tuple(STORAGES),
        schedules=tuple(SCHEDULES),
        recomputes=tuple(policy.option for policy in Recompute.choices()),
        dialects=tuple(dialect_names()),
        launchers=launcher_names(),
    )


def _devices() -> list[HardwareChoice]:
    found = [members.device(name) for name in members.names("devices") if name != "cpu"]
    return [HardwareChoice(name=one.name, title=one.title, kind="device", node=one.node.size, ranks=1) for one in found]


def _machines() -> list[HardwareChoice]:
    found: list[HardwareChoice] = []
    for name in members.names("clusters"):
        machine = members.machine(name)
        kind, whole = "site" if machine.network is None else "machine", machine.cluster
        if not whole.mixed:
            found.append(
                HardwareChoice(name=name, title=whole.title, kind=kind, node=whole.ranks_per_node, ranks=whole.ranks)
            )
    return found
