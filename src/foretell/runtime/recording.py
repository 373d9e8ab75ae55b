"""A run that was measured, written down: with the machine, the versions, and every sample of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretell.cost.collectives import library_of
from foretell.cost.samples import MeasuredMachine
from foretell.hardware import this_machine
from foretell.hardware.cluster import Cluster, Device, DeviceGroup
from foretell.model.source import packed
from foretell.records.home import home
from foretell.records.record import record
from foretell.records.store import write
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.measure import Measurement, critical_rank, measurement
from foretell.runtime.restart_log import events, restarts

FAILED = "failed-run"
"""The kind of a record of a run that did not come to its end: nothing is compared with it."""

HERE = "this-machine"
"""The cluster of a run of which nobody said where it was."""


def observed(assignment: Assignment, reports: Sequence[Report]) -> Measurement:
    """The measurement of what ranks have seen."""
    setting = assignment.setting
    found = measurement(assignment, str(setting.plan), setting.job.batch, reports)
    past = events(Path(assignment.checkpoints)) if assignment.checkpoints else []
    if not past:
        return found
    life = restarts(past, reports[0].steps, assignment.checkpoint_every, assignment.fail_every, assignment.fail_at)
    return msgspec.structs.replace(found, lives=life)


def recorded(
    assignment: Assignment, reports: Sequence[Report], folder: str = "", cluster: str = "", failure: str = ""
) -> Measurement:
    """The same with the file that it was written to, beside all that every rank has said, and why it ended early."""
    found, graph = observed(assignment, reports), assignment.setting.graph
    whole = msgspec.structs.replace(assignment, graph=packed(assignment.model, graph))
    content: dict[str, Any] = {
        "assignment": msgspec.to_builtins(whole),
        "machine": msgspec.to_builtins(machine(assignment.device)),
        "measurement": msgspec.to_builtins(found),
        "place": critical_rank(reports).place.get("pp", 0),
        "reports": [msgspec.to_builtins(msgspec.structs.replace(report, trace=[])) for report in reports],
        **({"failure": failure} if failure else {}),
    }
    about = {"model": assignment.model, "plan": found.plan, "fingerprint": graph.fingerprint}
    made = record(FAILED if failure else "run", content, versions=reports[0].versions, cluster=cluster or HERE, **about)
    return msgspec.structs.replace(found, record=str(write(Path(folder) if folder else home(), made)))


def machine(device: str) -> MeasuredMachine:
    """What the ranks of this machine run on: its processor, or its GPUs."""
    cluster = this_machine.processor() if device == "cpu" else this_machine.machine().cluster
    one = cluster.device
    return MeasuredMachine(
        device=one.name, title=one.title, kind=device, count=cluster.ranks_per_node, memory_bytes=one.memory_bytes
    )


def cluster_of(found: MeasuredMachine) -> Cluster:
    """The machine of a record as a cluster, wherever the record is read."""
    if found.kind == "cpu":
        return this_machine.processor(found.count, found.title, found.memory_bytes)
    return this_machine.of_devices(found.device, found.count)


def standing_in(cluster: Cluster, device: Device, silent: bool = False) -> Cluster:
    """A cluster with another device in the place of its own; its links and their library stay, or are `silent`."""
    library = "instant" if silent else library_of(cluster).name
    return msgspec.structs.replace(cluster, groups=(DeviceGroup(device, cluster.ranks),), library=library)
