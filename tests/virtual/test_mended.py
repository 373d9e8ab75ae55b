"""What goes wrong unnoticed: bytes, rounds after leaves, gradients held twice, options out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from foretell.cli.command import cli
from foretell.cli.simulate_pages import batches_page
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.learning.compressor import dense
from foretell.learning.members import composed
from foretell.learning.topologies.replicated import Replicated
from foretell.report.simulation import batches_panels
from foretell.virtual import batches
from foretell.virtual.disturbance import Disturbances, MembershipChange, read
from foretell.virtual.outcome import outcome
from foretell.virtual.pace import even, on_cluster
from foretell.virtual.simulate import Contest, simulate
from virtual.worlds import SQUARES, played, world

UNEVEN = Disturbances(jitter=0.4, often=0.1, times=5.0)
WIDE = even(1.0, 0.05)._replace(size=4.0 * 256 * 256, shapes=((256, 256),))


def per_round(text: str, workers: int = 8, **more: Any) -> float:
    """Models that travel in a round of all."""
    one = played(text, workers, gradients=10 * workers, **more)
    return sum(one.bytes.values()) / one.pace.size / one.server.version


# bytes


@pytest.mark.parametrize(
    ("compressor", "share"), [("powersgd:rank=4", 8 * 256 / 256**2), ("topk:share=0.01", 0.02), ("int8", 0.25)]
)
def test_bytes_are_those_of_the_model_and_not_of_what_is_learnt(compressor: str, share: float) -> None:
    one = played(f"sync+{compressor}", 2, pace=WIDE, gradients=20)
    pushed = one.bytes["up"] / (2 * one.server.version) / WIDE.size
    assert pushed == pytest.approx(share, rel=0.02)


def test_the_pace_of_a_cluster_has_the_shapes_of_the_model() -> None:
    pace = on_cluster("lenet", cluster("2xv100-16"), 8)
    assert dense(pace.shapes) == pace.size
    assert (120, 400) in pace.shapes


@pytest.mark.parametrize("topology", ["replicated", "shares", "doubling", "binomial"])
@pytest.mark.parametrize("compressor", ["int8", "topk:share=0.1"])
def test_weights_are_never_compressed_in_collectives(topology: str, compressor: str) -> None:
    plain = per_round(f"local:tau=1@{topology}")
    assert per_round(f"local:tau=1@{topology}+{compressor}") == pytest.approx(plain)


@pytest.mark.parametrize("topology", ["replicated", "doubling", "shares", "scatter", "binomial"])
@pytest.mark.parametrize("left", [1, 3])
def test_collectives_are_of_those_present(topology: str, left: int) -> None:
    """After the others left at once: the bytes of as many workers that were alone from the start."""
    gone = tuple(MembershipChange(0.5, at, joins=False) for at in range(8 - left))
    one = played(f"sync@{topology}", 8, disturbances=Disturbances(changes=gone), gradients=10 * left, look_every=left)
    few = played(f"sync@{topology}", left, gradients=10 * left, look_every=left)
    assert one.bytes == pytest.approx(few.bytes)
    assert one.now == pytest.approx(few.now)


def test_who_is_away_carries_nothing() -> None:
    gone = tuple(MembershipChange(0.5, at, joins=False) for at in (0, 2, 5))
    one = played("sync@replicated+int8", 8, disturbances=Disturbances(changes=gone), traced=True)
    assert {span.node for span in one.spans or () if "to" in span.what} == {1, 3, 4, 6, 7}
    assert one.bytes["up"] / one.pace.size < 8 * one.server.version
    assert isinstance(one.topology, Replicated)


def test_factors_are_those_of_the_batch() -> None:
    few, many = (played("sync+factors", 2, pace=WIDE, batch=batch, gradients=20).bytes["up"] for batch in (2, 16))
    assert many == pytest.approx(8 * few)


# algorithms


@pytest.mark.parametrize("transmit", [0.05, 0.4, 1.5])
def test_eager_workers_hold_their_own_gradients_once(transmit: float) -> None:
    """Worker i has gradients of 1 at place i and of 0 elsewhere: its weights there count its own."""

    class Own(type(SQUARES)):
        at = 0

        def gradients(self, weights: Any, rows: Any) -> Any:
            return [np.eye(10)[self.at] for _ in weights]

    one = world("essp:s=3", 4, pace=even(1.0, transmit), disturbances=UNEVEN, rate=4.0, gradients=200)
    for worker in one.workers:
        worker.problem = Own()
        worker.problem.at = worker.number
    begin = one.compute
    checked: list[int] = []

    def compute(worker: Any) -> None:
        checked.append(worker.clock)
        assert worker.weights[worker.number] == pytest.approx(-worker.clock)
        begin(worker)

    one.compute = compute
    one.run()
    assert len(checked) > 150


def test_a_push_of_one_who_left_is_in_no_round() -> None:
    """It left after its push, on the way or there: else a round ends without one who is present, which is then late."""
    for when in (1.02, 1.07, 1.2, 2.5):
        change = (MembershipChange(when, 0, joins=False),)
        slow = Disturbances(slow=1, slower=2.0, changes=change)
        assert set(played("sync", disturbances=slow).staleness) == {0}, when


def test_nobody_computes_during_repair() -> None:
    one = world("mpca:tau=1", 2, pace=even(1.0, 0.7), disturbances=Disturbances(mtbf=2.0, repair=5.0), gradients=60)
    away: dict[int, float] = {}
    failed, begin = one._failed, one.compute  # pyright: ignore[reportPrivateUsage]

    def noted(worker: Any, ticket: Any) -> None:
        away[worker.number] = one.now + 5.0
        failed(worker, ticket)

    def compute(worker: Any) -> None:
        assert one.now >= away.get(worker.number, 0.0)
        begin(worker)

    one._failed, one.compute = noted, compute  # pyright: ignore[reportPrivateUsage]
    one.run()
    assert one.failures > 3


def test_consensus_has_momentum() -> None:
    with_it, without = (played("admm", momentum=momentum).server.weights for momentum in (0.5, 0.0))
    assert not np.allclose(with_it, without)


# what a person writes


def test_a_run_in_which_all_fail_ends() -> None:
    asked = Contest("lenet", cluster("2xv100-16"), (2,), ("async",), learns="squares", samples=400)
    (run,) = simulate(asked._replace(disturbances=Disturbances(mtbf=1e-9))).runs
    assert run.gradients == 0
    assert run.ended == "limit"


@pytest.mark.parametrize(
    "text",
    [
        *("easgd:tau=0", "sync@sharded:k=0", "sync+qsgd:levels=0", "sync+topk:share=0", "sync@proxies:group=0"),
        *("tree_easgd@tree:fan=0", "ssp:s=2.7", "sync+topk:share=3", "gosgd:p=nan", "local:tau=inf", "gosgd:p=2"),
    ],
)
def test_options_have_a_least_and_a_most(text: str) -> None:
    with pytest.raises(BadInput) as problem:
        composed(text)
    assert problem.value.fix


@pytest.mark.parametrize("text", ["ssp:s=1e6", "sync+topk:share=1", "easgd:tau=1", "vap:bound=1e9"])
def test_options_at_the_end_of_their_range(text: str) -> None:
    assert composed(text).text == text


@pytest.mark.parametrize(
    "words",
    [
        *({"jitter": float("nan")}, {"jitter": float("inf")}, {"slow": "2.5x3"}),
        *({"changes": "+1@1.2.3"}, {"changes": "+1@."}),
    ],
)
def test_disturbances_out_of_range(words: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as problem:
        read(**words)
    assert problem.value.fix


@pytest.mark.parametrize("more", [("--seed", "-1"), ("--target", "nan"), ("--samples", "-5"), ("--target", "-1")])
@pytest.mark.parametrize("verb", [(), ("--batches", "2..4")])
def test_numbers_that_no_run_can_have(more: tuple[str, str], verb: tuple[str, ...]) -> None:
    words = ["simulate", "lenet", "--on", "4xv100-16", "--learn", "squares", "--algorithms", "sync", "--workers", "2"]
    problem = CliRunner().invoke(cli, [*words, *verb, *more]).exception
    assert isinstance(problem, BadInput)
    assert problem.where == more[0]


def test_idle_and_wait_tell_the_same_of_calm_runs() -> None:
    """A share of the time, and seconds of a gradient: who waits so long after a second of computing is idle so much."""
    assert outcome(played("gosgd"), "gosgd", "").wait == 0.0
    for name in ("sync", "downpour", "local:tau=4"):
        found = outcome(played(name), name, "")
        assert found.wait > 0
        assert found.idle == pytest.approx(found.wait / (1.0 + found.wait), rel=0.05), name


def test_no_law_is_made_up_where_none_is_seen() -> None:
    """Steps that still fall in full have no critical batch yet."""
    assert batches._fit([(8, 1000), (16, 490), (32, 240)]) is None  # pyright: ignore[reportPrivateUsage]
    rows = tuple(
        batches.Counted(batch=batch, steps=steps, samples=batch * steps, rate=0.1, noise_scale=100.0)
        for batch, steps in ((8, 1000), (16, 490))
    )
    found = batches.BatchTradeOff(
        learns="squares",
        target=0.1,
        batches=rows,
        least_steps=None,
        least_samples=None,
        critical_batch=None,
        noise_scale=100.0,
    )
    page = batches_page(found, "lenet")
    assert "larger batches needed" in page
    assert "--noise-scale" not in page
    assert len(batches_panels(found)[0].curves) == 1
