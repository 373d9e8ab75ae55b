"""Laws over every algorithm, every kind of collective, and some clusters of every sort."""

from __future__ import annotations

import math
from typing import cast

import msgspec
import numpy
import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.collectives import (
    ALGORITHMS,
    EVIDENCE,
    KINDS,
    LIBRARIES,
    Library,
    alpha_beta,
    collective_seconds,
    library,
    library_of,
)
from foretell.cost.collectives._price import AlgorithmCost
from foretell.cost.collectives._protocols import Protocol
from foretell.cost.collectives._traffic import REDUCING, CollectiveAlgorithm
from foretell.cost.fabric import Group, route, sharing
from foretell.errors import BadInput
from foretell.hardware import catalog, members
from foretell.hardware.cluster import Cluster, Link
from law_examples import examples, reached

TEXTS = (
    "8xh100",
    "32xh100",
    "16xh100,32xefa2",
    "16xh100,tcpxo",
    "16xh100,4xtcpx",
    "2xgb200-nvl72",
    "lassen:64",
    "abci:1024",
    "4x8xtitanx,1xib-fdr",
    "16xa100-40,eth-100",
    "2x1xh200,roce-400",
    "2x4xcpu",
    "16xmi300x",
)
CLUSTERS = {text: catalog.cluster(text) for text in TEXTS}
NAMES = tuple(ALGORITHMS)
NCCL = library("nccl")
ROUNDING = 1 + 1e-12


@st.composite
def placed(draw: st.DrawFn) -> tuple[Group, Cluster]:
    """A group of more than one rank on some cluster."""
    cluster = CLUSTERS[draw(st.sampled_from(TEXTS))]
    ranks = draw(st.sampled_from([n for n in range(2, cluster.ranks + 1) if cluster.ranks % n == 0]))
    strides = [n for n in range(1, cluster.ranks // ranks + 1) if (cluster.ranks // ranks) % n == 0]
    return Group(ranks, draw(st.sampled_from(strides))), cluster


kinds = st.sampled_from(KINDS)
payloads = st.integers(0, 2**36)


def member(name: str) -> CollectiveAlgorithm:
    return cast(CollectiveAlgorithm, ALGORITHMS[name])


def with_links(cluster: Cluster, change: dict[str, float]) -> Cluster:
    """The same cluster with figures of every link multiplied."""
    return msgspec.structs.replace(
        cluster,
        levels=tuple(msgspec.structs.replace(level, link=scaled(level.link, change)) for level in cluster.levels),
    )


def scaled(link: Link, change: dict[str, float]) -> Link:
    return msgspec.structs.replace(link, **{field: getattr(link, field) * by for field, by in change.items()})


# What ends meet


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_is_free(kind: str) -> None:
    assert collective_seconds(kind, 2**30, Group(1), CLUSTERS["8xh100"]).seconds == 0
    several = collective_seconds(kind, numpy.array([1.0, 2.0]), Group(1), CLUSTERS["8xh100"])
    assert several.seconds.tolist() == [0.0, 0.0]


@given(kinds, payloads, placed())
def test_the_parts_add_up(kind: str, payload: int, where: tuple[Group, Cluster]) -> None:
    price = collective_seconds(kind, payload, *where, messages=3)
    assert price.seconds == pytest.approx(price.latency + price.bandwidth + price.filling)
    assert 0 < price.seconds < math.inf
    assert price.algorithm in ALGORITHMS
    assert price.level in {level.name for level in where[1].levels}
    assert price.provenance in EVIDENCE
    assert price.seconds == pytest.approx(3 * collective_seconds(kind, payload, *where).seconds)


@given(kinds, st.lists(payloads, min_size=1, max_size=12), placed(), st.integers(1, 8))
def test_arrays_equal_scalars_digit_for_digit(
    kind: str, sizes: list[int], where: tuple[Group, Cluster], shared: int
) -> None:
    several = collective_seconds(kind, numpy.array(sizes, dtype=float), *where, sharing=shared)
    for at, size in enumerate(sizes):
        one = collective_seconds(kind, float(size), *where, sharing=shared)
        for field in one.__struct_fields__:
            value = getattr(several, field)
            assert (value if field == "level" else value[at]) == getattr(one, field), field


# Never faster


@given(kinds, payloads, payloads, placed())
def test_more_bytes_are_never_faster(kind: str, first: int, second: int, where: tuple[Group, Cluster]) -> None:
    less, more = sorted((first, second))
    assert collective_seconds(kind, less, *where).seconds <= collective_seconds(kind, more, *where).seconds


@given(kinds, payloads, placed(), st.floats(1, 100), st.sampled_from(["latency_seconds", "hop_seconds"]))
def test_more_latency_is_never_faster(
    kind: str, payload: int, where: tuple[Group, Cluster], factor: float, figure: str
) -> None:
    group, cluster = where
    slower = with_links(cluster, {figure: factor})
    healthy = collective_seconds(kind, payload, group, cluster).seconds
    assert healthy <= ROUNDING * collective_seconds(kind, payload, group, slower).seconds


@given(kinds, payloads, placed(), st.floats(0.01, 1))
def test_a_slower_link_is_never_faster(kind: str, payload: int, where: tuple[Group, Cluster], factor: float) -> None:
    group, cluster = where
    slower = with_links(cluster, {"bandwidth": factor, "ceiling": factor})
    healthy = collective_seconds(kind, payload, group, cluster).seconds
    assert healthy <= ROUNDING * collective_seconds(kind, payload, group, slower).seconds


@given(kinds, payloads, placed(), st.integers(1, 16), st.integers(1, 16))
def test_sharing_ports_is_never_faster(
    kind: str, payload: int, where: tuple[Group, Cluster], first: int, second: int
) -> None:
    few, many = sorted((first, second))
    alone = collective_seconds(kind, payload, *where, sharing=few).seconds
    assert alone <= collective_seconds(kind, payload, *where, sharing=many).seconds


@given(payloads, placed())
def test_an_all_reduce_is_not_cheaper_than_its_half(payload: int, where: tuple[Group, Cluster]) -> None:
    ring = library_of(where[1]).only("ring", "gloo")
    both = collective_seconds("all-reduce", payload, *where, library=ring).seconds
    assert both >= collective_seconds("reduce-scatter", payload, *where, library=ring).seconds


# The same thing in two ways


@given(payloads, placed())
def test_an_all_reduce_on_a_ring_is_a_reduce_scatter_and_an_all_gather(
    payload: int, where: tuple[Group, Cluster]
) -> None:
    ring = alpha_beta().only("ring")
    both = collective_seconds("all-reduce", payload, *where, library=ring)
    scatter = collective_seconds("reduce-scatter", payload, *where, library=ring)
    gather = collective_seconds("all-gather", payload / where[0].ranks, *where, library=ring)
    assert both.seconds == pytest.approx(scatter.seconds + gather.seconds)
    assert both.volume == pytest.approx(scatter.volume + gather.volume)


@pytest.mark.parametrize("protocol", [p for p in NCCL.protocols if "ring" in p.families], ids=lambda p: p.name)
@given(payloads, placed())
def test_so_it_is_under_nccl_but_for_the_start(protocol: Protocol, payload: int, where: tuple[Group, Cluster]) -> None:
    held = msgspec.structs.replace(
        NCCL, name=protocol.name, protocols=(msgspec.structs.replace(protocol, picky=False),)
    )
    rings = held.only("ring")
    both = collective_seconds("all-reduce", payload, *where, library=rings)
    scatter = collective_seconds("reduce-scatter", payload, *where, library=rings)
    gather = collective_seconds("all-gather", payload / where[0].ranks, *where, library=rings)
    assert both.latency == pytest.approx(scatter.latency + gather.latency - protocol.base)
    assert both.bandwidth == pytest.approx(scatter.bandwidth + gather.bandwidth)


@given(st.sampled_from(REDUCING), payloads, st.sampled_from([2, 4, 8]), st.sampled_from(["8xh100", "8xa100-40"]))
def test_hierarchical_equals_flat_on_one_node(kind: str, payload: int, ranks: int, text: str) -> None:
    cluster = catalog.cluster(text)
    flat, deep = (
        collective_seconds(kind, payload, Group(ranks), cluster, library=alpha_beta().only(name))
        for name in ("ring", "hierarchical")
    )
    assert msgspec.structs.replace(deep, algorithm="ring") == flat


@given(kinds, payloads, placed(), st.floats(0.1, 10))
def test_bytes_and_rate_scale_together(kind: str, payload: int, where: tuple[Group, Cluster], factor: float) -> None:
    group, cluster = where
    wider = with_links(cluster, {"bandwidth": factor, "ceiling": factor})
    assert collective_seconds(kind, payload * factor, group, wider).seconds == pytest.approx(
        collective_seconds(kind, payload, group, cluster).seconds
    )


@given(kinds, payloads, placed(), st.floats(0.1, 10))
def test_time_scales_with_latency_and_pace(
    kind: str, payload: int, where: tuple[Group, Cluster], factor: float
) -> None:
    group, cluster = where
    change = {"latency_seconds": factor, "hop_seconds": factor, "bandwidth": 1 / factor, "ceiling": 1 / factor}
    slow = collective_seconds(kind, payload, group, with_links(cluster, change), library=alpha_beta())
    assert slow.seconds == pytest.approx(
        factor * collective_seconds(kind, payload, group, cluster, library=alpha_beta()).seconds
    )


# Every algorithm


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.reaches(done=5)
@given(placed())
def test_an_algorithm_asks_for_finite_things(name: str, where: tuple[Group, Cluster]) -> None:
    algorithm = member(name)
    assert set(algorithm.KINDS) <= set(KINDS)
    way = route(*where)
    for kind in algorithm.KINDS:
        traffic = algorithm.traffic(kind, way)
        if traffic is None:
            continue
        reached("done")
        loads = (*traffic.inside, *traffic.network)
        assert loads
        assert all(0 <= load.volume < math.inf and load.seconds >= 0 for load in loads)
        assert bool(traffic.network) == (way.domains > 1) == bool(traffic.steps.passages)
        assert traffic.steps.inside + traffic.steps.network >= (name != "nvls")


@pytest.mark.parametrize("name", [name for name in NAMES if "all-reduce" in member(name).KINDS])
@given(ranks=st.integers(2, 64))
def test_nobody_sends_less_than_the_bound(name: str, ranks: int) -> None:
    """Each rank of a flat network sends at least 2(P - 1)/P of the tensor (Patarasuk and Yuan 2009)."""
    way = route(Group(ranks), catalog.cluster(f"{ranks}x1xh100,1xib-ndr"))
    traffic = member(name).traffic("all-reduce", way)
    assert name == "nvls" if traffic is None else traffic.network[0].volume >= 2 * (ranks - 1) / ranks - 1e-12


TALKING = [one for one in map(library, LIBRARIES) if not one.free]


@pytest.mark.parametrize("found", [*TALKING, alpha_beta()], ids=lambda found: found.name)
def test_a_library_has_every_kind_and_only_what_there_is(found: Library) -> None:
    assert found.name in (*LIBRARIES, "alpha-beta")
    assert set(found.algorithms) == set(KINDS)
    for kind, names in found.algorithms.items():
        assert names
        for name in names:
            assert kind in member(name).KINDS
            assert any(member(name).FAMILY in protocol.families for protocol in found.protocols)


def test_of_all_libraries_one_takes_no_time_for_anything() -> None:
    assert {*LIBRARIES} - {one.name for one in TALKING} == {"instant"}
    silent = msgspec.structs.replace(CLUSTERS["32xh100"], library="instant")
    for kind in KINDS:
        assert collective_seconds(kind, 2**30, Group(32), silent).seconds == 0
        assert collective_seconds(kind, 2**30, Group(32), CLUSTERS["32xh100"]).seconds > 0


def test_a_cluster_names_its_library() -> None:
    assert library_of(CLUSTERS["8xh100"]) is NCCL
    assert library_of(CLUSTERS["2x4xcpu"]) is library("gloo")
    with_gloo = msgspec.structs.replace(CLUSTERS["8xh100"], library="gloo")
    assert library_of(with_gloo) is library("gloo")
    asked = [collective_seconds("all-reduce", 2**20, Group(8), one) for one in (with_gloo, CLUSTERS["8xh100"])]
    assert [price.algorithm for price in asked] == ["gloo", "nvls"]
    with pytest.raises(BadInput, match="no communication library is called 'ncl'") as problem:
        library_of(msgspec.structs.replace(with_gloo, library="ncl"))
    assert "nccl" in problem.value.fix


@pytest.mark.parametrize("name", members.names("links"))
def test_every_link_can_be_priced_and_says_how_it_knows(name: str) -> None:
    link = members.link(name)
    cluster = catalog.cluster(f"2x2xh100,1x{name}" if link.per_port else f"4xh100,{name}")
    for kind in KINDS:
        assert collective_seconds(kind, 2**20, Group(4), cluster).provenance in EVIDENCE


def test_provenance_follows_the_links() -> None:
    def known(text: str, kind: str = "all-reduce") -> str:
        return collective_seconds(kind, 2**30, Group(16), catalog.cluster(text)).provenance

    assert known("16xh100,ib-ndr") == "measured sweeps"
    assert known("16xh100,ib-edr") == "carried over"
    assert known("16xh100,ib-ndr", "all-to-all") == "measured sweeps"
    assert known("16xh100,ib-hdr", "all-to-all") == "carried over"  # only its rings were measured


# Where the group lies


def test_a_group_leaves_its_node_over_the_ports_that_it_reaches() -> None:
    cluster = CLUSTERS["32xh100"]
    whole, one = route(Group(16), cluster), route(Group(4, 8), cluster)
    assert (whole.inside, whole.domains, one.inside, one.domains) == (8, 2, 1, 4)
    assert whole.crossings[0].through_one == 8 * 50e9
    assert one.crossings[0].through_one == 50e9  # of the eight ports the one beside it
    assert sharing(Group(16), cluster) == 1
    assert sharing(Group(4, 8), cluster) == 8
    assert sharing(Group(8), cluster) == 1
    assert route(Group(4, 8), cluster, sharing=8).crossings == one.crossings


def test_two_levels_of_one_link_are_one() -> None:
    racks = CLUSTERS["2xgb200-nvl72"]
    way = route(Group(144), racks)
    assert (way.inside, way.domains, len(way.hops), len(way.crossings)) == (72, 2, 1, 1)
    assert way.crossings[0].through_one == 72 * 50e9
    assert way.multicast


def test_an_over_subscribed_rack_slows_what_leaves_it_everywhere() -> None:
    cluster = CLUSTERS["abci:1024"]
    rack, fabric = route(Group(1024), cluster).crossings
    assert rack.through_one == rack.through_all == fabric.through_one == 2 * 12.5e9
    assert fabric.through_all == pytest.approx(16 * 2 * 12.5e9 / 3)
    (alone,) = route(Group(16, 64), cluster).crossings  # one rank in each rack: nobody to lend it an uplink
    assert alone.through_one == pytest.approx(12.5e9 / 3)


def test_what_cannot_be_is_said() -> None:
    cluster = CLUSTERS["8xh100"]
    with pytest.raises(BadInput, match="no kind of communication is called 'all-reduc'"):
        collective_seconds("all-reduc", 1, Group(8), cluster)
    with pytest.raises(BadInput, match="16 ranks, 1 apart, take 16"):
        collective_seconds("all-reduce", 1, Group(16), cluster)
    with pytest.raises(BadInput, match="0 groups cannot share"):
        collective_seconds("all-reduce", 1, Group(8), cluster, sharing=0)
    with pytest.raises(BadInput, match="9 servers on 8 ranks"):
        collective_seconds("push", 1, Group(8), cluster, servers=9)
    with pytest.raises(BadInput, match="no way to do all-gather"):
        collective_seconds("all-gather", 1, Group(8), cluster, library=NCCL.only("tree"))


# Dimensions

UNITS = pint.UnitRegistry()


@pytest.mark.parametrize("protocol", NCCL.protocols, ids=lambda p: f"{p.name} {p.families[0]}")
@examples(10)
@pytest.mark.reaches(done=3)
@given(placed())
def test_dimensions(protocol: Protocol, where: tuple[Group, Cluster]) -> None:
    group, cluster = where
    second, rate = UNITS.second, UNITS.byte / UNITS.second
    units = {"latency_seconds": second, "hop_seconds": second, "bandwidth": rate, "ceiling": rate}
    way = route.__wrapped__(group, with_links(cluster, units))
    held = msgspec.structs.replace(protocol, base=protocol.base * second, fill=protocol.fill * second)
    names = [name for name in NAMES if member(name).FAMILY in protocol.families]
    for algorithm in map(member, names):
        traffic = algorithm.traffic(algorithm.KINDS[0], way)
        if traffic is None:
            continue
        reached("done")
        slope = sum(load.seconds for load in (*traffic.inside, *traffic.network))
        line = AlgorithmCost("", "", held.latency(traffic.steps, way), slope, held.fill, 1.0, "")
        assert line.seconds(2**20 * UNITS.byte).check("[time]")
