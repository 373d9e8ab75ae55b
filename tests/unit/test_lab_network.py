"""Networks as they are typed, as the switch is told of them, and as clusters; none of it needs hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.cost.collectives import collective_seconds, library_of
from foretell.cost.fabric import Group
from foretell.errors import BadInput
from foretell.hardware import catalog, disturbance
from foretell.hardware.quantity import line_rate
from foretell.lab import describe
from foretell.lab.network import PAYLOAD, LabNetwork, Wire, check_traffic, window, wiring
from foretell.lab.text import network
from foretell.model.source import load
from foretell.oracle.predict import predict
from foretell.plan.job import make_job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer


def test_rates_are_read_as_network_people_write_them() -> None:
    assert line_rate("1Gbit", "") == line_rate("1 Gb/s", "") == line_rate("125 MB/s", "") == 125e6
    assert line_rate("100Mbit/s", "") == 12.5e6
    with pytest.raises(BadInput):
        line_rate("100", "--rate")


def test_a_network_with_everything() -> None:
    found = network(4, "1Gbit", "0.5ms", 2, "100Mbit,2ms", ("3:10Mbit",), ("0-1:50Mbit,1ms",))
    assert found.between(0, 1) == Wire(50e6 / 8, 1e-3)
    assert found.between(0, 2) == Wire(12.5e6, 2.5e-3)
    assert found.between(2, 3) == Wire(10e6 / 8, 0.5e-3)
    assert found.between(3, 0) == found.between(0, 3)


def test_other_jobs_leave_something_of_every_pipe() -> None:
    """Of ports, of the way out of an island and of a pair's own link: each carries what goes through it, no more."""
    found = network(4, "1Gbit", "0.5ms", 2, "100Mbit,2ms", (), ("0-1:50Mbit,1ms",))
    check_traffic(found, disturbance.read((), (), ("0-1:40Mbit", "1-0:40Mbit", "0-2:60Mbit", "2-1:90Mbit")).traffic)
    for flows in (("0-1:50Mbit",), ("0-2:60Mbit", "1-3:60Mbit"), ("2-3:600Mbit", "2-3:500Mbit")):
        with pytest.raises(BadInput, match="other jobs send"):
            check_traffic(found, disturbance.read((), (), flows).traffic)


def test_the_switch_is_told_of_every_pipe_and_path() -> None:
    found = network(4, "1Gbit", "0.5ms", 2, "100Mbit,2ms", (), ("0-1:50Mbit,1ms",))
    lines = wiring(found).splitlines()
    pipes = [line for line in lines if line.startswith("pipe")]
    paths = {tuple(line.split()[1:3]): line.split()[3:] for line in lines if line.startswith("path")}
    assert len(pipes) == 4 * 2 + 2 * 2 + 2  # a port, a way out and a link have two directions each
    assert len(paths) == 12
    out, link = "0", "12"
    assert paths["0", "1"] == ["1000000", out, link, "/", "3"]
    assert paths["0", "2"] == ["2500000", out, "8", "/", "11", "5"]
    assert lines[-1] == "go"


@pytest.mark.parametrize(
    "given",
    [
        {"hosts": 1},
        {"hosts": 65},
        {"hosts": 3, "island": 2, "uplink": Wire(1e6, 0.0)},
        {"hosts": 4, "island": 2},
        {"hosts": 4, "island": -2, "uplink": Wire(1e6, 0.0)},
        {"hosts": 2, "ports": {2: 1e6}},
        {"hosts": 2, "links": {(0, 2): Wire(1e6, 0.0)}},
    ],
)
def test_networks_that_cannot_be_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        LabNetwork(rate=1e6, delay=1e-3, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [{"links": ("0-1:1Gbit,1ms", "1-0:1Mbit,1ms")}, {"ports": ("1:1Gbit", "1:1Mbit")}],
    ids=["links", "ports"],
)
def test_nothing_is_said_twice(said: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(BadInput, match="given twice"):
        network(2, "1Gbit", "1ms", **said)  # type: ignore[arg-type]


def test_a_long_fat_pipe_has_the_largest_window_and_a_longer_one_is_refused() -> None:
    assert 1.25e9 * 0.4 < window(LabNetwork(hosts=2, rate=1.25e9, delay=0.2)) < 2**30
    with pytest.raises(BadInput, match="on their way"):
        window(LabNetwork(hosts=2, rate=1.25e9, delay=0.5))


@pytest.mark.parametrize(
    "made",
    [
        LabNetwork(hosts=2, rate=125e6, delay=5e-4),
        LabNetwork(hosts=4, rate=125e6, delay=5e-4, island=2, uplink=Wire(12.5e6, 2e-3)),
    ],
    ids=["flat", "islands"],
)
def test_the_description_reads_back_as_the_same_cluster(made: LabNetwork, tmp_path: Path) -> None:
    said = describe.described(made, overhead=1e-4)
    describe.write(said, tmp_path / "mine.toml")
    found = catalog.cluster(str(tmp_path / "mine.toml"))
    assert found.device == said.device
    assert found.ranks == made.hosts
    for mine, theirs in zip(said.levels, found.levels, strict=True):
        assert (mine.size, mine.link.kind, mine.ports) == (theirs.size, theirs.link.kind, theirs.ports)
        assert theirs.link.bandwidth == pytest.approx(mine.link.bandwidth)
        assert theirs.link.latency_seconds == pytest.approx(mine.link.latency_seconds)
        assert theirs.link.hop_seconds == pytest.approx(mine.link.hop_seconds)
        assert theirs.link.efficiency == pytest.approx(mine.link.efficiency, rel=1e-5)
    assert library_of(found).name == "gloo"


def test_where_ports_differ_the_slowest_counts() -> None:
    made = LabNetwork(hosts=3, rate=125e6, delay=1e-3, ports={2: 1e6}, links={(0, 1): Wire(1e9, 7e-3)})
    link = describe.described(made).levels[-1].link
    assert (link.bandwidth, link.hop_seconds) == (1e6, 7e-3)


def test_where_ports_of_islands_differ_the_slowest_counts() -> None:
    made = LabNetwork(
        hosts=4,
        rate=125e6,
        delay=1e-3,
        island=2,
        uplink=Wire(12.5e6, 2e-3),
        ports={3: 1e6},
        links={(0, 1): Wire(125e6, 7e-3), (0, 2): Wire(5e5, 3e-3)},
    )
    inside, out = (level.link for level in describe.described(made, overhead=0.0).levels)
    assert (inside.bandwidth, inside.latency_seconds) == (1e6, 7e-3)
    assert (out.bandwidth, out.hop_seconds) == (5e5, pytest.approx(5e-3))


@pytest.mark.parametrize(
    ("kind", "hops", "tensors"),
    [
        ("all-reduce", 12, 1.5),
        ("reduce-scatter", 12, 1.5),
        ("all-gather", 6, 0.75),
        ("broadcast", 3, 2.0),
        ("all-to-all", 2, 0.75),
    ],
)
def test_gloo_is_priced_as_what_it_does(kind: str, hops: int, tensors: float) -> None:
    """On four hosts: latencies that wait for each other, and tensors over the busiest port."""
    cluster = describe.described(LabNetwork(hosts=4, rate=12.5e6, delay=4e-3), overhead=1e-3)
    size = 1 << 20
    payload = size / 4 if kind == "all-gather" else size
    found = collective_seconds(kind, payload, Group(4), cluster).seconds
    assert found == pytest.approx(hops * 5e-3 + tensors * size / (12.5e6 * PAYLOAD))


@pytest.mark.parametrize(
    ("plan", "limit"),
    [
        ("dp2", "gradient exchange"),
        ("filter2", "layer-wise collectives"),
        ("spatial2", "messages between neighbours"),
    ],
)
def test_a_slow_link_is_named_as_the_limit_it_is(plan: str, limit: str) -> None:
    """Table 6 of Kahira et al. 2021, provoked: what a strategy sends is what limits it."""
    cluster = describe.described(LabNetwork(hosts=2, rate=2.5e6, delay=1e-3))
    found = trainer("pytorch")
    setting = Setting(load("lenet", 64, None, "fp32"), make_job(64, trainer="pytorch"), parse(plan), found)
    assert predict(setting, cluster).bottlenecks[0].name == limit
