"""Laws over every device, link and cluster that ships, and over what can be made of them."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import foretell.hardware
from foretell.cost.collectives import LIBRARIES
from foretell.cost.fabric import Group, route
from foretell.errors import BadInput
from foretell.hardware import catalog, members
from foretell.hardware.cluster import COLLECTIVE_CLASSES, Cluster, Level
from foretell.hardware.packing import packed
from foretell.hardware.topology import TOPOLOGIES
from law_examples import reached

FOLDER = Path(foretell.hardware.__file__).parent
DEVICES, LINKS, CLUSTERS = (members.names(kind) for kind in ("devices", "links", "clusters"))
FILES = sorted(path for kind in ("devices", "links", "clusters") for path in (FOLDER / kind).glob("*.toml"))


def some_cluster(text: str) -> Cluster:
    try:
        return catalog.cluster(text)
    except BadInput:
        assume(False)
        raise


def test_no_file_is_passed_over() -> None:
    for names, kind in ((DEVICES, "devices"), (LINKS, "links"), (CLUSTERS, "clusters")):
        assert sorted(names) == sorted(path.stem for path in FILES if path.parent.name == kind)
    assert {"h100", "a100-80", "v100-16", "mi300x"} <= set(DEVICES)


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_is_complete(name: str) -> None:
    device = members.device(name)
    assert device.name == name
    positive = [
        device.memory_bytes,
        device.memory_bandwidth,
        device.cache_bytes,
        device.multiprocessors,
        device.clock_hz,
        device.launch_seconds,
        device.power_watts,
        *device.peak.values(),
        *device.vector.values(),
    ]
    assert all(0 < value < math.inf for value in positive)
    assert device.cache_bytes < device.memory_bytes
    assert members.link(device.host_link)
    assert not members.link(device.node.link).per_port
    assert members.link(device.node.network).per_port
    assert device.matrix_rate("tf32") >= device.vector["fp32"]


ORDER = ("fp64", "tf32", "bf16", "fp8", "nvfp4")


@pytest.mark.parametrize("name", DEVICES)
def test_narrower_numbers_are_not_slower_on_matrix_units(name: str) -> None:
    peak = members.device(name).peak
    rates = [peak[precision] for precision in ORDER if precision in peak]
    assert rates == sorted(rates)
    if "fp16" in peak and "bf16" in peak:
        assert peak["fp16"] == peak["bf16"]
    if "fp8" in peak and "mxfp8" in peak:
        assert peak["fp8"] == peak["mxfp8"]


@pytest.mark.parametrize("name", [name for name in DEVICES if members.device(name).architecture != "skylake"])
def test_the_vector_rate_follows_from_clock_and_multiprocessors(name: str) -> None:
    """Two flops a cycle in 64 to 256 lanes, at a clock within a quarter of the boost clock."""
    device = members.device(name)
    lanes = device.vector["fp32"] / device.multiprocessors / device.clock_hz / 2
    assert min(abs(lanes / known - 1) for known in (64, 128, 192, 256)) < 0.25, lanes


@pytest.mark.parametrize("name", LINKS)
def test_a_link_is_complete(name: str) -> None:
    link = members.link(name)
    assert link.name == name
    assert link.bandwidth > 0
    assert link.latency_seconds > 0
    assert link.hop_seconds >= 0
    assert (link.hop_seconds > 0) == link.per_port
    for kind in COLLECTIVE_CLASSES:
        for ranks in (2, 3, 8, 9, 1000):
            assert 0 < link.efficiency_of(kind, ranks) <= 1
            assert 0 < link.reached(kind, ranks) <= link.bandwidth
    assert link.multicast or "nvls" not in link.efficiency


@pytest.mark.parametrize("name", members.names("architectures"))
def test_an_architecture_is_complete(name: str) -> None:
    built = members.architecture(name)
    assert built.name == name and built.words == (name,) and built.library in LIBRARIES
    for unit, found in built.reached.items():
        assert 0 < found.products <= 1 and 0 < found.operands <= 1
        assert found.devices and {members.device(one).architecture for one in found.devices} == {name}
        assert unit not in built.reached_like
    for unit, other in built.reached_like.items():
        assert unit in members.architecture(other).reached  # one step away, so that nobody has to follow a chain
    assert not built.flash3 or built.reached["matrix"]


@pytest.mark.parametrize("name", DEVICES)
def test_what_a_device_reaches_is_told_of_units_that_it_has(name: str) -> None:
    device = members.device(name)
    assert members.architecture(device.architecture)
    assert set(device.shares) <= {*device.peak, *device.vector}
    assert "matrix" not in device.reached or device.peak
    assert all(0 < one.products <= 1 and one.devices for one in device.reached.values())


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_is_complete(name: str) -> None:
    cluster = catalog.cluster(name)
    assert cluster.name == cluster.text == name
    assert cluster.ranks == math.prod(level.size for level in cluster.levels)
    assert cluster.ranks == cluster.nodes * cluster.ranks_per_node
    assert cluster.ranks_per_node <= cluster.domain or cluster.domain == 1
    for level in cluster.levels:
        assert 0 < cluster.rank_bandwidth(level) <= cluster.node_bandwidth(level)
    rates = [cluster.rank_bandwidth(level) for level in cluster.levels]
    assert rates == sorted(rates, reverse=True), "outer levels are not faster"
    assert max(len(line) for line in cluster.describe().splitlines()) <= 100


def figures(content: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Every number in a file, and every text with a number and a unit, by its key."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        if key == "sources":
            continue
        if isinstance(value, dict) and "value" not in value:
            found |= figures(value, f"{path}{key}.")
        elif isinstance(value, list):
            for at, item in enumerate(value):
                found |= figures(item, f"{path}{key}[{at}].")
        elif isinstance(value, dict) or (isinstance(value, int | float) and not isinstance(value, bool)):
            found[f"{path}{key}"] = value
        else:
            assert isinstance(value, str | bool)
            assert key in ("title", "architecture", "host_link", "link", "network", "device", "name", "kind") or (
                isinstance(value, bool)
            )
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_figure_has_a_source_beside_it(path: Path) -> None:
    content = tomllib.loads(path.read_text())
    found = figures(content)
    assert found
    used: set[str] = set()
    for key, figure in found.items():
        assert isinstance(figure, dict), f"{key} is a bare number"
        used.add(figure["source"])
    assert used == set(content["sources"]), "sources that are named and not used, or used and not named"
    assert all(len(text) > 12 for text in content["sources"].values())
    read = members.device if path.parent.name == "devices" else members.link
    sources = catalog.cluster(path.stem).sources if path.parent.name == "clusters" else read(path.stem).sources
    assert set(sources) == set(found)


@pytest.mark.parametrize("alias", members.aliases())
def test_another_spelling_leads_to_a_device_and_says_so(alias: str) -> None:
    assert alias not in DEVICES
    named = catalog.named(f"2x1x{alias}")
    assert members.aliases()[alias] in DEVICES
    assert named.notes == (f"{alias} is taken as {members.aliases()[alias]}",)


# What can be written

COUNTS = st.integers(1, 300)


@given(name=st.sampled_from(DEVICES), ranks=COUNTS)
def test_ranks_of_a_device_round_trip(name: str, ranks: int) -> None:
    cluster = some_cluster(f"{ranks}x{name}")
    assert cluster.ranks == ranks
    assert catalog.cluster(cluster.text) == cluster


@given(
    name=st.sampled_from(DEVICES),
    nodes=COUNTS,
    size=st.integers(1, 16),
    link=st.sampled_from(LINKS),
    ports=st.integers(0, 9),
)
def test_nodes_with_links_round_trip(name: str, nodes: int, size: int, link: str, ports: int) -> None:
    count = f"{ports}x" if ports and members.link(link).per_port else ""
    cluster = some_cluster(f"{nodes}x{size}x{name},{count}{link}")
    assert cluster.ranks == nodes * size
    assert cluster.ranks_per_node == size
    assert cluster.nodes == nodes
    assert catalog.cluster(cluster.text) == cluster


@given(name=st.sampled_from(CLUSTERS), number=st.integers(1, 64), ranks=st.integers(1, 5000))
def test_machines_and_parts_of_sites_round_trip(name: str, number: int, ranks: int) -> None:
    machine = members.machine(name)
    text = f"{name}:{ranks}" if machine.network is None else f"{number}x{name}"
    cluster = some_cluster(text)
    assert cluster.ranks == (ranks if machine.network is None else number * machine.cluster.ranks)
    assert catalog.cluster(cluster.text) == cluster


@pytest.mark.reaches(refused=5, taken=3)
@given(name=st.sampled_from(DEVICES), ranks=COUNTS)
def test_a_count_that_does_not_fit_names_counts_that_do(name: str, ranks: int) -> None:
    try:
        catalog.cluster(f"{ranks}x{name}")
    except BadInput as problem:
        reached("refused")
        for text in problem.fix.split(" or "):
            assert catalog.cluster(text).device == members.device(name)
    else:
        reached("taken")
        assert ranks < members.device(name).node.size or ranks % members.device(name).node.size == 0


# Levels

LINK = members.link("nvlink4-switch")
NETWORK = members.link("ib-ndr")


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    names = ["node", "rack", "pod", "fabric"]
    levels = tuple(
        Level(name, size, NETWORK if at else LINK) for at, (name, size) in enumerate(zip(names, sizes, strict=False))
    )
    return Cluster("drawn", "drawn", catalog.cluster("h100").groups, levels, "drawn", {})


def groups(cluster: Cluster, size: int, stride: int) -> list[list[int]]:
    """The groups of a mesh axis, listed rank by rank."""
    block = size * stride
    return [
        [start + offset + member * stride for member in range(size)]
        for start in range(0, cluster.ranks - block + 1, block)
        for offset in range(stride)
    ]


def dividing(draw: st.DrawFn, number: int) -> int:
    return draw(st.sampled_from([n for n in range(1, number + 1) if number % n == 0]))


@pytest.mark.parametrize("topology", list(TOPOLOGIES))
@given(data=st.data())
def test_the_level_of_an_axis_is_the_innermost_that_holds_every_group(topology: str, data: st.DataObject) -> None:
    cluster = msgspec.structs.replace(data.draw(clusters()), topology=topology)
    size = dividing(data.draw, cluster.ranks)
    stride = dividing(data.draw, cluster.ranks // size)
    found = cluster.levels.index(cluster.level_of(size, stride))
    every = groups(cluster, size, stride)
    for at, level in enumerate(cluster.levels):
        unit = cluster.unit(level)
        held = all(len({rank // unit for rank in group}) == 1 for group in every)
        assert held or at < found
        assert not held or at >= found


@pytest.mark.parametrize("topology", list(TOPOLOGIES))
@given(data=st.data())
def test_a_larger_group_crosses_no_fewer_levels(topology: str, data: st.DataObject) -> None:
    """Axes of a mesh nest, so sizes and strides grow by multiplying."""
    cluster = msgspec.structs.replace(data.draw(clusters()), topology=topology)
    size = dividing(data.draw, cluster.ranks)
    stride = dividing(data.draw, cluster.ranks // size)
    more = dividing(data.draw, cluster.ranks // size // stride)
    at = cluster.levels.index
    assert at(cluster.level_of(size * more, stride)) >= at(cluster.level_of(size, stride))


@pytest.mark.parametrize("topology", list(TOPOLOGIES))
@given(data=st.data())
def test_the_spread_of_a_group_covers_it(topology: str, data: st.DataObject) -> None:
    cluster = msgspec.structs.replace(data.draw(clusters()), topology=topology)
    size = dividing(data.draw, cluster.ranks)
    stride = dividing(data.draw, cluster.ranks // size)
    spread = cluster.spread(size, stride)
    assert len(spread) == len(cluster.levels)
    assert math.prod(spread) >= size
    outside = cluster.levels.index(cluster.level_of(size, stride)) + 1
    assert all(count == 1 for count in spread[outside:])
    assert (spread[outside - 1] > 1) == (size > 1)


@pytest.mark.parametrize("topology", list(TOPOLOGIES))
@given(data=st.data(), sharing=st.integers(1, 8))
def test_a_route_offers_something_and_no_more_to_groups_that_share(
    topology: str, data: st.DataObject, sharing: int
) -> None:
    cluster = msgspec.structs.replace(data.draw(clusters()), topology=topology)
    size = dividing(data.draw, cluster.ranks)
    group = Group(size, dividing(data.draw, cluster.ranks // size))
    alone, shared = route(group, cluster), route(group, cluster, sharing)
    assert (alone.level or cluster.levels[0].name) == cluster.level_of(group.ranks, group.stride).name
    assert shared.hops == alone.hops and all(0 < hop.rate <= hop.link.bandwidth for hop in alone.hops)
    for one, other in zip(alone.crossings, shared.crossings, strict=True):
        for rate in ("through_one", "through_all", "through_rank"):
            assert 0 < getattr(other, rate) <= getattr(one, rate)


@pytest.mark.reaches(packed=5, nested=2)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=3), st.integers(1, 20), st.booleans())
def test_packing_fills_nodes_and_keeps_every_rank(sizes: list[int], ranks: int, whole: bool) -> None:
    ranks *= sizes[0] if whole else 1
    names = ["node", "rack", "fabric"]
    levels = [Level(name, size, LINK) for name, size in zip(names, sizes, strict=False)]
    taken = packed(levels, ranks)
    if taken is None:
        assert ranks > 1
        return
    reached("packed")
    assert math.prod(level.size for level in taken) == ranks
    assert all(used.size <= whole.size for used, whole in zip(taken, levels, strict=False))
    if len(taken) > 1:
        reached("nested")
        assert taken[0].size == sizes[0]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=3))
def test_a_whole_cluster_packs_into_itself(sizes: list[int]) -> None:
    names = ["node", "rack", "fabric"]
    levels = [Level(name, size, LINK) for name, size in zip(names, sizes, strict=False)]
    taken = packed(levels, math.prod(sizes))
    assert taken is not None
    assert [level.size for level in taken if level.size > 1] == [size for size in sizes if size > 1]
