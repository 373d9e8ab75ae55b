"""Limits and bottlenecks of the oracle paper (Kahira et al. 2021, table 6), provoked between hosts.

Each is what `predict` names for the network, and what `compare` names for the run across it; what is not provoked is
named by neither. Provocations are so strong that a busy machine, whose ranks compute ten times as long, changes no
name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from foretell.hardware.cluster import Cluster
from foretell.hardware.disturbance import BackgroundTraffic, Disturbance, SlowRank
from foretell.lab.describe import described
from foretell.lab.hosts import Lab
from foretell.lab.network import LabNetwork
from foretell.lab.traffic import sending
from foretell.runtime import hosts
from foretell.runtime.assignment import Assignment
from foretell.runtime.comparison import Comparison, compared, foreseen
from foretell.runtime.launch import Ranks
from foretell.runtime.recording import observed
from foretell.scratch import LOCK

LONG = 300.0
FAST = LabNetwork(hosts=2, rate=125e6, delay=1e-4)
SLOW = msgspec.structs.replace(FAST, rate=1e6)
"""8 Mb/s: whatever travels is what limits."""

LLAMA = "llama:layers=6,hidden=32,heads=4,kv_heads=2,ffn=64,vocab=64,seq=16"
MLP = "mlp:layers=2,hidden=1024"
SMALL_MLP = "mlp:layers=2,hidden=160"
"""As many gradients as LeNet, and no convolutions."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(FAST) as found:
        yield found


@pytest.fixture(scope="module")
def ranks(lab: Lab) -> Iterator[Ranks]:
    """Whose processes lie on the hosts."""
    before = dict(os.environ)
    os.environ.update(hosts.told([host.namespace for host in lab.hosts]))
    try:
        with Ranks() as found:
            yield found
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def at_rate(lab: Lab, rate: float) -> Iterator[None]:
    """While this holds, all ports have this rate."""
    ports = [f"{way} {host.number}" for way in ("out", "in") for host in lab.hosts]
    try:
        for port in ports:
            lab.throttle(port, rate)
        yield
    finally:
        for port in ports:
            lab.throttle(port, lab.network.rate)


def _compared(ranks: Ranks, asked: Assignment, where: Cluster) -> Comparison:
    reports = ranks.run(asked, LONG)
    places = tuple(report.place.get("pp", 0) for report in reports)
    return compared(asked, observed(asked, reports), places[0], where, "none", places)


def _with_memory(cluster: Cluster, size: float) -> Cluster:
    """The cluster whose hosts have so little."""
    (group,) = cluster.groups
    device = msgspec.structs.replace(group.device, memory_bytes=size)
    return msgspec.structs.replace(cluster, groups=(msgspec.structs.replace(group, device=device),))


def _asked(model: str, plan: str, batch: int, **more: Any) -> Assignment:
    return Assignment(model=model, plan=plan, batch=batch, steps=2, dropped=2, **more)


CALMLY = Disturbance(ranks=(SlowRank(0, 10.0), SlowRank(1, 10.0)))
"""Both ranks take ten times as long to compute, nine of them asleep: a busy machine hardly makes that longer."""


class Provoked(NamedTuple):
    """A run that has one limit, on a network, on hosts with little memory (0: as this machine has it)."""

    asked: Assignment
    network: LabNetwork = FAST
    memory: float = 0.0


PROVOKED = {
    "gradient exchange": Provoked(_asked("lenet", "dp2", 4), SLOW),
    "layer-wise collectives": Provoked(_asked("lenet", "filter2", 4), SLOW),
    "messages between neighbours": Provoked(_asked("lenet", "spatial2[features.0..features.5]", 4), SLOW),
    "number of ranks": Provoked(_asked("lenet", "dp2", 2), SLOW),
    "weight update": Provoked(_asked(MLP, "filter2", 2, optimizer="adamw", disturbance=CALMLY)),
    "workload balancing": Provoked(_asked(LLAMA, "pp2:gpipe,split=1/5 +m4", 16, disturbance=CALMLY)),
    "computation redundancy": Provoked(_asked("lenet", "channel2", 128, disturbance=CALMLY)),
    "memory redundancy": Provoked(_asked(MLP, "dp2", 2, optimizer="adamw"), memory=64e6),
    "memory": Provoked(_asked(MLP, "dp2", 2, optimizer="adamw"), memory=48e6),
}

MESSAGES = ("gradient exchange", "layer-wise collectives", "messages between neighbours")
"""Of which a slow network has the one that the plan sends."""

MEMORY = ("memory", "memory redundancy")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROVOKED)
def test_what_is_provoked_is_what_both_sides_name(name: str, lab: Lab, ranks: Ranks) -> None:
    asked, network, memory = PROVOKED[name]
    where = _with_memory(described(network), memory) if memory else described(network)
    with at_rate(lab, network.rate):
        found = _compared(ranks, asked, where)
    sides = [one.name for one in found.predicted.bottlenecks], [one.name for one in found.limits]
    for side in sides:
        assert name in side
        if name in MESSAGES:
            assert [one for one in side if one in MESSAGES] == [name] == side[:1]
        assert set(side).isdisjoint(MEMORY) or memory
    assert "network congestion" not in sides[0]  # a busy machine has messages late as another job would


@pytest.mark.slow
def test_another_job_is_congestion_for_both_sides(lab: Lab, ranks: Ranks) -> None:
    """A tenth of the link is left: messages take five to ten times as long, more than the band of this prediction.

    Not more than that of convolutions that wait for messages all the step: published runs of those are so far off that
    nobody could tell another job from an error of the prediction.
    """
    asked, other = _asked(SMALL_MLP, "dp2", 4), BackgroundTraffic(0, 1, 0.9 * SLOW.rate)
    calm = foreseen(asked, described(SLOW), "none")
    disturbed = foreseen(asked, described(SLOW), "none", Disturbance(traffic=(other,)))
    assert "network congestion" not in {one.name for one in calm.bottlenecks}
    assert "network congestion" in {one.name for one in disturbed.bottlenecks}
    assert calm.interval[1] < 4 * calm.step_seconds
    with at_rate(lab, SLOW.rate), sending(lab, [other]):
        found = _compared(ranks, asked, described(SLOW))
    (slow,) = [one for one in found.outside if one.name == "exposed.dp"]
    assert slow.kind == "congestion"
    assert slow.why == "messages along dp take longer than over free links"
    assert "network congestion" in {one.name for one in found.limits}


# Ten runs. ---------------------------------------------------------------------------------------------


def _listening() -> set[str]:
    """Ports that somebody listens on, here."""
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    return {words[1] for line in lines if (words := line.split())[3] == "0A"}


def _children(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


@pytest.mark.slow
def test_ten_runs_in_a_row_leave_no_process_and_no_port(lab: Lab, ranks: Ranks) -> None:
    asked = Assignment(model="lenet", plan="dp2", batch=2, steps=1, dropped=1)
    for at in range(10):
        assert len(ranks.run(asked, LONG)) == 2
        assert _children(ranks._child.pid) == [], f"after run {at}"
        assert [path for path in ranks.folder.iterdir() if path.name != LOCK] == []
    assert lab.each(lambda host: sorted(_listening()), LONG) == [[], []]
