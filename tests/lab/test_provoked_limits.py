"""Limits and bottlenecks of the oracle paper (Kahira et al. 2021, table 6), provoked between hosts.

Each is what `predict` names for the network, and what `compare` names for the run across it. Provocations are so strong
that a busy machine, whose ranks compute ten times as long, changes no name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.hardware.cluster import Cluster
from foretell.hardware.disturbance import Traffic
from foretell.lab.describe import described
from foretell.lab.hosts import Lab
from foretell.lab.network import Network
from foretell.lab.traffic import sending
from foretell.runtime import hosts
from foretell.runtime.assignment import Assignment
from foretell.runtime.comparison import Comparison, compared
from foretell.runtime.launch import Ranks
from foretell.runtime.recording import observed

LONG = 300.0
SLOW = Network(hosts=2, rate=1e6, delay=1e-3)
"""8 Mb/s: whatever travels is what limits."""

LLAMA = "llama:layers=6,hidden=32,heads=4,kv_heads=2,ffn=64,vocab=64,seq=16"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(SLOW) as found:
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


def _compared(ranks: Ranks, asked: Assignment, where: Cluster) -> Comparison:
    reports = ranks.run(asked, LONG)
    places = tuple(report.place.get("pp", 0) for report in reports)
    return compared(asked, observed(asked, reports), places[0], where, "none", places)


PROVOKED = {
    "gradient exchange": ("lenet", "dp2", 4),
    "layer-wise collectives": ("lenet", "filter2", 4),
    "messages between neighbours": ("lenet", "spatial2[features.0..features.5]", 4),
    "number of ranks": ("lenet", "dp2", 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROVOKED)
def test_what_is_provoked_is_what_both_sides_name(name: str, ranks: Ranks) -> None:
    model, plan, batch = PROVOKED[name]
    found = _compared(ranks, Assignment(model=model, plan=plan, batch=batch, steps=2, dropped=2), described(SLOW))
    assert name in {one.name for one in found.predicted.bottlenecks}
    assert name in {one.name for one in found.limits}


@pytest.mark.slow
def test_an_uneven_split_is_named(ranks: Ranks) -> None:
    """Stages of one and of five layers; the share of the step that it costs is not much where messages are all."""
    asked = Assignment(model=LLAMA, plan="pp2:gpipe,split=1/5 +m4", batch=16, steps=2, dropped=2)
    fast = described(Network(hosts=2, rate=125e6, delay=1e-4))
    found = _compared(ranks, asked, fast)
    assert "workload balancing" in {one.name for one in found.predicted.bottlenecks}
    work = [sum(found.measured.busy_by_rank[name][rank] for name in ("forward", "backward")) for rank in (0, 1)]
    assert work[1] > 1.5 * work[0]


@pytest.mark.slow
def test_another_job_is_told_as_congestion_of_the_axis(lab: Lab, ranks: Ranks) -> None:
    """A tenth of the link is left: messages take ten times as long, more than any band of a prediction."""
    asked = Assignment(model="lenet", plan="dp2", batch=4, steps=2, dropped=2)
    calm = _compared(ranks, asked, described(SLOW))
    with sending(lab, [Traffic(0, 1, 0.9 * SLOW.rate)]):
        found = _compared(ranks, asked, described(SLOW))
    assert found.measured.breakdown["exposed.dp"] > 1.5 * calm.measured.breakdown["exposed.dp"]
    slow = [one for one in found.outside if one.name == "exposed.dp"]
    assert slow and "messages along dp take longer than over free links" in slow[0].why


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
        assert list(ranks.folder.iterdir()) == []
    assert lab.each(lambda host: sorted(_listening()), LONG) == [[], []]
