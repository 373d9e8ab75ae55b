"""What rings and all-to-alls get of each way to join nodes, by hand from the papers."""

from __future__ import annotations

import pytest

from foretell.cost.fabric import Group, route
from foretell.hardware.cluster import Cluster, DeviceGroup, Level
from foretell.hardware.members import device, link
from foretell.hardware.route import Crossing

PORT = 25e9  # B/s of ib-hdr
NODE = 4


def cluster(topology: str, *sizes: int, ports: int = NODE, narrow: float = 1.0) -> Cluster:
    """Nodes of four devices and four ports, and levels of networks."""
    inside = Level("node", NODE, link("nvlink3-switch"))
    names = ("first", "second", "third")
    nets = tuple(Level(names[at], size, link("ib-hdr"), ports, narrow) for at, size in enumerate(sizes))
    ranks = NODE
    for size in sizes:
        ranks *= size
    name = f"{topology} {sizes} {ports} {narrow}"
    return Cluster(name, name, (DeviceGroup(device("a100-80"), ranks),), (inside, *nets), name, {}, topology=topology)


def last(found: Cluster, ranks: int, stride: int = 1) -> Crossing:
    return route(Group(ranks, stride), found).crossings[-1]


def test_rails_are_narrowed_above_their_leaves_alone() -> None:
    """RA-11333-001: devices of one place share a leaf. Of 1:2 the first network has nothing, the spine does."""
    narrow, free = (cluster("rail", 8, 2, narrow=times) for times in (2.0, 1.0))
    tree = cluster("tree", 8, 2, narrow=2.0)
    inside = NODE * 8
    assert last(narrow, inside).through_all == last(free, inside).through_all == 2 * last(tree, inside).through_all
    assert last(narrow, 2 * inside).through_all == last(tree, 2 * inside).through_all


def test_a_ring_between_groups_of_a_dragonfly_gets_half_and_an_all_to_all_all() -> None:
    """Kim et al. 2008: the worst pattern reaches half of the global links by Valiant's routing."""
    tree, fly = cluster("tree", 4, 8), cluster("dragonfly", 4, 8)
    every = tree.ranks
    assert last(fly, every).through_all == last(tree, every).through_all == 4 * NODE * PORT
    assert last(tree, 8, NODE * 4).through_one == PORT
    assert last(fly, 8, NODE * 4).through_one == PORT / 2
    inside = NODE * 4
    assert last(fly, inside) == last(tree, inside)
    two = cluster("dragonfly", 4, 2)
    assert last(two, two.ranks) == last(cluster("tree", 4, 2), two.ranks)


@pytest.mark.parametrize(("units", "share"), [(2, 1.0), (4, 1.0), (8, 0.5), (16, 0.25), (32, 0.125)])
def test_an_all_to_all_round_a_ring_gets_four_over_k_of_both_links(units: int, share: float) -> None:
    """Dally and Towles 2004, section 5.2: 8/k of one link of a torus; a ring of messages has its links for itself."""
    torus, tree = cluster("torus", units, ports=2), cluster("tree", units, ports=2)
    own, plain = last(torus, torus.ranks), last(tree, tree.ranks)
    assert own.through_all == pytest.approx(share * plain.through_all)
    assert own.through_one == plain.through_one


def test_a_part_of_a_dimension_has_no_link_that_closes_it() -> None:
    """4/k of one link of a mesh: half of the torus's."""
    torus, tree = cluster("torus", 32, ports=2), cluster("tree", 32, ports=2)
    half = torus.ranks // 2
    assert last(torus, half).through_all == pytest.approx(2 / 16 * last(tree, half).through_all)
