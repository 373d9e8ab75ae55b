"""Messages of split images and filters in a trainer that sends them by its own ways."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.splits import split_seconds, splits_layers
from foretell.hardware.catalog import cluster
from foretell.model.source import load
from foretell.oracle.predict import predict
from foretell.plan.job import make_job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer, trainer
from foretell.program.action import Communicate

CHAINER = trainer("chainer")


def halo(payload: int, axis: str = "spatial", what: str = "activations") -> Communicate:
    return Communicate("exchange", (axis,), 4, payload, what, "conv1", messages=2)


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_no_faster_than_network_or_host(payload: int, network: float) -> None:
    found = split_seconds(halo(payload), network, CHAINER.splits)
    assert found >= network + 2 * CHAINER.splits.wait
    assert found >= 2 * payload / CHAINER.splits.images
    assert split_seconds(halo(payload), network, trainer("pytorch").splits) == network


def test_what_it_is_about() -> None:
    assert splits_layers(halo(1)) and splits_layers(halo(1, "filter", "gradients"))
    assert not splits_layers(halo(1, "tp")) and not splits_layers(halo(1, what="statistics"))
    filters = split_seconds(halo(10**9, "filter"), 0.5, CHAINER.splits)
    assert filters == 0.5 + 2 * CHAINER.splits.wait  # only images go through the hosts


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
