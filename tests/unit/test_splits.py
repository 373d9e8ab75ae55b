"""Messages of split images and filters in a trainer that sends them by its own ways."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group
from foretell.cost.prices import Prices
from foretell.cost.splits import around_seconds, mesh_splits, split_seconds, splits_layers
from foretell.hardware.catalog import cluster
from foretell.model.source import load
from foretell.oracle.predict import predict
from foretell.plan.job import make_job
from foretell.plan.policies.precision import FORMATS
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer, trainer
from foretell.program.action import Communicate
from foretell.program.expanded import Axis
from foretell.program.lower import lower
from foretell.program.rank_program import kind_of

CHAINER = trainer("chainer")


def halo(payload: int, axis: str = "spatial", what: str = "activations") -> Communicate:
    return Communicate("exchange", (axis,), 4, payload, what, "conv1", messages=2)


@given(st.integers(1, 10**9), st.floats(0, 1), st.booleans())
def test_no_faster_than_network_or_host(payload: int, network: float, inside: bool) -> None:
    found = split_seconds(halo(payload), network, CHAINER.splits, inside)
    assert found >= max(network, 2 * payload / CHAINER.splits.images)
    assert split_seconds(halo(payload), network, trainer("pytorch").splits, inside) == network


def test_what_it_is_about() -> None:
    assert splits_layers(halo(1)) and splits_layers(halo(1, "filter", "gradients"))
    assert not splits_layers(halo(1, "tp")) and not splits_layers(halo(1, what="statistics"))
    for axis, inside, seconds in (("filter", False, 0.7), ("channel", True, 0.7), ("channel", False, 1.0)):
        assert split_seconds(halo(10**9, axis), 0.7, CHAINER.splits, inside) == pytest.approx(seconds), axis


def test_work_around_messages_is_no_message() -> None:
    """A halo costs by the message, a gathered activation by its bytes, whatever the number of ranks."""
    splits = CHAINER.splits
    images, filters, hybrid = (mesh_splits(splits, axes) for axes in (["spatial"], ["filter"], ["dp", "filter"]))
    assert around_seconds(halo(10**6), splits, images) == 2 * splits.halo
    gathers = [Communicate("all-gather", ("filter",), ranks, 2**30 // ranks, "activations", "c") for ranks in (2, 64)]
    alone = [around_seconds(one, splits, filters) for one in gathers]
    assert alone[0] == alone[1] == pytest.approx(2**30 / 1e12 * 36)
    assert around_seconds(gathers[0], splits, hybrid) < alone[0] / 2
    assert around_seconds(halo(1, what="statistics"), splits, images) == 0
    plain = trainer("pytorch").splits
    assert around_seconds(gathers[0], plain, mesh_splits(plain, ["filter"])) == 0


def test_meshes_that_share_what_is_known_of_messages_keep_their_own() -> None:
    """Sums of weights between nodes, beside split filters and not: asked in either order."""
    total = Communicate("all-reduce", ("dp",), 2, 10**8, "weight gradients", "conv1")
    meshes = [[Axis("dp", 2, 4), Axis(name, 4, 1)] for name in ("filter", "pp")]

    def seconds(axes: list[Axis], known: dict[Any, Any]) -> Any:
        return Prices(axes, cluster("abci:8"), FORMATS["fp32"], CHAINER, known).message(total)

    alone = [seconds(axes, {}) for axes in meshes]
    assert alone[0] > 1.1 * alone[1]
    for order in (1, -1):
        known: dict[Any, Any] = {}
        assert [seconds(axes, known) for axes in meshes[::order]] == alone[::order]


def messages(plan: str, runs: Trainer) -> dict[tuple[str, str], float]:
    """Bytes that a rank sends in a step, by collective and pass."""
    setting = Setting(load("vgg16-paradl", 32), make_job(32, optimizer="adam"), parse(plan), runs)
    found: dict[tuple[str, str], float] = defaultdict(float)
    program = lower(setting)
    for run in program.partition.signature_runs[0].runs:
        for action in (one for body in program.rank_program.actions(kind_of(run)) for one in body):
            if isinstance(action, Communicate):
                found[action.kind, action.what] += action.sent * run.times
    return found


def test_summands_go_back_to_where_they_were_gathered() -> None:
    """The way back of an all-gather moves as much as the way there; a sum for every rank would move twice that."""
    late, now = messages("filter8 +fp32", CHAINER), messages("filter8 +fp32", trainer("pytorch"))
    assert set(late) == {("all-gather", "activations"), ("reduce-scatter", "gradients")}
    assert late["reduce-scatter", "gradients"] == pytest.approx(late["all-gather", "activations"], rel=1e-3)
    assert late["reduce-scatter", "gradients"] < now["all-reduce", "gradients"]
    assert messages("channel8 +fp32", CHAINER) == messages("channel8 +fp32", trainer("pytorch"))


def test_a_small_workspace_leaves_winograd_to_two_parts() -> None:
    """VGG16's weight gradients are products of nine taps then, not of four: 9 / 4 and the transforms' share longer."""
    every = msgspec.structs.replace(CHAINER, fusion=trainer("pytorch").fusion)
    setting = [Setting(load("vgg16-paradl", 32), make_job(32), parse("dp1 +fp32"), one) for one in (CHAINER, every)]
    small, large = (predict(one, cluster("abci:4")).breakdown for one in setting)
    assert small["forward"] == large["forward"] and 1.3 < small["backward"] / large["backward"] < 1.5


def step(plan: str, runs: Trainer) -> float:
    setting = Setting(load("vgg16-paradl", 64), make_job(64, optimizer="adam"), parse(plan), runs)
    return predict(setting, cluster("abci:8")).step_seconds


def test_leaders_sum_for_their_groups() -> None:
    """The four ranks of a node that hold the same weights send them once between nodes, not four times."""
    alone = msgspec.structs.replace(CHAINER, splits=msgspec.structs.replace(CHAINER.splits, leaders=False))
    assert step("dp2 spatial4 +fp32", CHAINER) < 0.8 * step("dp2 spatial4 +fp32", alone)
    assert step("dp2 filter4 +fp32", CHAINER) == step("dp2 filter4 +fp32", alone)


def test_one_rank_speaks_for_those_under_its_server() -> None:
    """With a server on each node only it goes to the others: the network sees a node's weights once, not four times."""
    network = cluster("2x4xv100-16,eth-10")

    def exchanged(plan: str) -> float:
        setting = Setting(load("vgg16", 64), make_job(64, optimizer="sgd"), parse(plan), trainer("pytorch"))
        return sum(size for name, size in predict(setting, network).breakdown.items() if name.startswith("exposed"))

    assert exchanged("ps8:sync,k2,group4 +fp32") < 0.5 * exchanged("ps8:sync,k2 +fp32")


def test_two_of_four_get_the_links_that_join_them() -> None:
    """Two of a V100's six links lead to each of the other three: two ranks get a third of what a ring of four gets."""
    payload, node = 2**30, cluster("abci:4")
    two, four = (collective_seconds("all-reduce", payload, Group(ranks), node).bandwidth for ranks in (2, 4))
    assert two / (2 * payload / 2) == pytest.approx(3 * four / (2 * payload * 3 / 4), rel=0.02)
