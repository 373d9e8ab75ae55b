"""Uneven data: who has what, and what it does to copies that are averaged."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from foretell.cli.command import cli
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.learning.skew import own_rows, skew
from foretell.virtual.simulate import Contest, simulate
from virtual.worlds import SQUARES, played, world


def test_shares_add_up_and_a_high_concentration_is_even() -> None:
    for concentration in (0.1, 1.0, 1e6):
        found = skew(8, 10, concentration, 0)
        np.testing.assert_allclose(found.mixes.sum(1), 1.0)
        assert sum(found.amounts) == pytest.approx(1.0)
        np.testing.assert_allclose(np.array(found.amounts) @ found.mixes, 0.1, rtol=1e-6)  # all of each class is there
    np.testing.assert_allclose(found.mixes, 0.1, rtol=0.01)
    uneven = skew(8, 10, 0.1, 0)
    assert np.sort(uneven.mixes, axis=1)[:, -3:].sum(1).min() > 0.8  # three classes are most of anybody's data
    assert max(uneven.amounts) > 2 * min(uneven.amounts)


def test_workers_draw_from_their_own_mix() -> None:
    labels = np.repeat(np.arange(4), 25)
    found = skew(3, 4, 0.5, 1)
    rows = own_rows(labels, found, 4000, 1)
    for worker in range(3):
        drawn = np.bincount(labels[rows(worker, 0)], minlength=4) / 4000
        np.testing.assert_allclose(drawn, found.mixes[worker], atol=0.03)
    assert (rows(0, 0) == rows(0, 0)).all() and (rows(0, 0) != rows(0, 1)).any()


def test_federated_averaging_is_local_sgd_where_all_have_as_much() -> None:
    federated, local = played("fedavg:tau=4"), played("local:tau=4")
    assert federated.curve == local.curve


def test_a_mean_counts_workers_by_their_data() -> None:
    one = world("fedavg:tau=1", 3, rate=0.0, gradients=3)
    one.amounts = (0.5, 0.3, 0.2)
    for worker in one.workers:
        worker.weights = np.full(10, float(worker.number))
    one.run()
    np.testing.assert_allclose(one.server.weights, 0.3 * 1 + 0.2 * 2)


def test_uneven_data_costs_those_most_who_average_copies() -> None:
    """McMahan et al. 2017 and Hsu et al. 2019: rounds of local steps drift apart; one step of all does not."""
    texts = ("sync@replicated", "local:tau=16@replicated", "gosgd")
    asked = Contest("lenet", cluster("8xv100-16"), (8,), texts, learns="squares", target=0.001, rates=(0.5,))
    samples: dict[float, dict[str, int]] = {}
    for concentration in (0.0, 0.1):
        runs = simulate(asked._replace(skew=concentration, samples=100_000)).runs
        samples[concentration] = {run.algorithm: run.samples for run in runs}
    grown = {text: samples[0.1][text] / samples[0.0][text] for text in texts}
    assert grown["local:tau=16@replicated"] > 1.4 * grown["sync@replicated"]
    assert grown["gosgd"] > 1.4 * grown["sync@replicated"]


def test_labels_of_least_squares_are_tenths_of_its_values() -> None:
    assert set(np.bincount(SQUARES.labels).tolist()) == {25, 26}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["simulate", "lenet", "--on", "4xv100-16", "--learn", "squares", "--skew", "-1"], "no concentration"),
        (["run", "lenet", "--plan", "local2:tau2", "--batch", "8", "--skew", "nan"], "no concentration"),
        (["run", "lenet", "--plan", "spatial2", "--batch", "8", "--skew", "0.3"], "ranks have samples of their own"),
    ],
)
def test_skews_that_cannot_be(words: list[str], said: str) -> None:
    problem = CliRunner().invoke(cli, words).exception
    assert isinstance(problem, BadInput) and said in problem.what and problem.fix
