"""What each algorithm promises, in double precision and gradient by gradient."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.learning.members import ALGORITHMS, composed
from foretell.virtual.disturbance import Disturbances, MembershipChange
from foretell.virtual.outcome import outcome
from foretell.virtual.pace import even
from foretell.virtual.world import VirtualWorld
from law_examples import examples
from virtual.worlds import SQUARES, played, world

UNEVEN = Disturbances(jitter=0.4, often=0.1, times=5.0)
FREE = even(1.0, 0.05)  # sums and updates take no time
SERVER = ("downpour", "ssp", "essp", "vap", "dcasgd", "fresh", "negative", "reject", "priority", "adam75", "hogwild")
AGREED = examples(12)


def losses(one: VirtualWorld) -> list[float]:
    return [point.loss for point in one.curve]


def of(one: VirtualWorld) -> Any:
    """The algorithm, with what it remembers of its own."""
    return cast(Any, one.algorithm)


# equalities


@pytest.mark.parametrize(
    ("name", "momentum"),
    [
        *((name, 0.9) for name in ("sync", "sync@replicated", "backup:spare=0", "quorum:k=1", "downpour")),
        *((name, 0.0) for name in ("sync", "sync@doubling", "ssp:s=0", "local:tau=5", "hogwild", "vap")),
    ],
)
def test_one_worker_is_serial_sgd(name: str, momentum: float) -> None:
    one = played(name, 1, momentum=momentum, gradients=40, look_every=1)
    draws, weights, velocity = np.random.default_rng([0, 0]), SQUARES.start(0), 0.0
    for _ in range(one.absorbed):
        (gradient,) = SQUARES.gradients([weights], [draws.integers(SQUARES.samples, size=8)])
        velocity = momentum * velocity + gradient
        weights = weights - 0.2 * velocity
    np.testing.assert_allclose(one.server.weights, weights, rtol=1e-12)


@AGREED
@given(workers=st.integers(1, 6), seed=st.integers(0, 99))
def test_no_lead_is_synchronous_to_the_bit(workers: int, seed: int) -> None:
    """With jitter too: the slowest sets both paces."""
    more: dict[str, Any] = {"pace": FREE, "seed": seed, "disturbances": UNEVEN, "gradients": 60}
    stale, sync = played("ssp:s=0", workers, **more), played("sync", workers, **more)
    assert (stale.server.weights == sync.server.weights).all()
    assert stale.now == sync.now


@AGREED
@given(workers=st.integers(1, 6), seed=st.integers(0, 99))
@pytest.mark.parametrize("bounded", ["ssp:s=1000000,cache=0", "reject:s=1000000", "vap:bound=1e9", "dcasgd:strength=0"])
def test_without_a_bound_it_is_asynchronous_to_the_bit(bounded: str, workers: int, seed: int) -> None:
    more: dict[str, Any] = {"seed": seed, "disturbances": UNEVEN, "gradients": 60, "pace": even(1.0, 0.3, 0.0, 0.1)}
    bound, free = played(bounded, workers, **more), played("downpour", workers, **more)
    assert (bound.server.weights == free.server.weights).all()
    assert bound.curve == free.curve
    assert bound.staleness == free.staleness


@pytest.mark.parametrize("other", ["quorum:k=4", "backup:spare=0"])
def test_a_round_of_all_is_synchronous_to_the_bit(other: str) -> None:
    one, sync = played(other, disturbances=UNEVEN), played("sync", disturbances=UNEVEN)
    assert one.curve == sync.curve


def test_an_outer_step_as_long_as_the_mean_move_is_local_sgd() -> None:
    outer, local = played("diloco:tau=4,outer=1,momentum=0"), played("local:tau=4")
    np.testing.assert_allclose(losses(outer), losses(local), rtol=1e-9)
    assert outer.bytes == local.bytes
    assert losses(played("diloco:tau=4")) != losses(local)


@pytest.mark.parametrize("name", ["local:tau=1", "post_local:switch=1000"])
def test_local_sgd_that_averages_each_step_is_synchronous(name: str) -> None:
    local, sync = played(name), played("sync")
    np.testing.assert_allclose(losses(local), losses(sync), rtol=1e-9)
    assert local.now == sync.now


@pytest.mark.parametrize(
    "topology", ["binomial", "scatter", "shares", "replicated", "doubling", "sharded:k=3", "proxies"]
)
def test_topologies_change_times_and_nothing_else(topology: str) -> None:
    one, plain = played(f"sync@{topology}"), played("sync")
    np.testing.assert_allclose(losses(one), losses(plain), rtol=1e-9)
    assert one.now != plain.now


def test_without_a_penalty_mpca_is_model_averaging() -> None:
    one, other = played("mpca:rho=0"), played("averaging")
    for left, right in zip(one.workers, other.workers, strict=True):
        assert (left.weights == right.weights).all()


def test_the_same_seed_is_the_same_run_and_another_is_not() -> None:
    for name in ALGORITHMS:
        first, again, other = (played(name, disturbances=UNEVEN, seed=seed, gradients=120) for seed in (3, 3, 4))
        assert first.curve == again.curve, name
        assert first.curve != other.curve, name


# bounds


@AGREED
@given(s=st.integers(0, 4), workers=st.integers(2, 6), seed=st.integers(0, 99), eager=st.booleans())
def test_nobody_leads_by_more_than_the_bound(s: int, workers: int, seed: int, eager: bool) -> None:
    name = "essp" if eager else "ssp"
    one = played(f"{name}:s={s}", workers, disturbances=UNEVEN, seed=seed, gradients=150)
    assert of(one).longest <= s
    clocks = [worker.clock for worker in one.workers]
    assert max(clocks) - min(clocks) <= s + 1  # the next gradient may be made, not yet taken in


def test_the_bound_is_used_where_workers_are_uneven() -> None:
    assert of(played("ssp:s=3", disturbances=UNEVEN)).longest == 3


@AGREED
@given(s=st.integers(0, 5), seed=st.integers(0, 99))
def test_stale_gradients_are_rejected(s: int, seed: int) -> None:
    one = played(f"reject:s={s}", disturbances=UNEVEN, seed=seed, gradients=100)
    assert max(one.staleness) <= s
    assert of(one).rejected > 0 or s > 2


@pytest.mark.parametrize("name", ["sync", "backup:spare=1", "backup:spare=2"])
def test_synchronous_gradients_are_never_stale(name: str) -> None:
    assert set(played(name, disturbances=UNEVEN).staleness) == {0}


def test_values_stay_within_their_bound() -> None:
    one = played("vap:bound=0.05", disturbances=UNEVEN)
    assert 0 < of(one).farthest < 0.05
    assert one.now > played("downpour", disturbances=UNEVEN).now


def test_a_priority_queue_lowers_the_highest_staleness() -> None:
    """A server that is always busy: first come, first served lets slow workers' gradients grow old."""
    pace = even(1.0, 0.01, 0.0, 0.5)
    queue, plain = (played(name, 8, pace=pace, disturbances=UNEVEN) for name in ("priority", "downpour"))
    assert max(queue.staleness) <= max(plain.staleness)
    assert queue.absorbed == plain.absorbed


def test_an_epoch_ends_with_three_quarters_of_its_samples() -> None:
    one = played("adam75:tau=8", disturbances=Disturbances(slow=1, slower=50.0), gradients=600)
    assert of(one).epochs >= 600 // 32
    assert one.workers[3].clock < of(one).epochs  # the slow one holds nobody up
    assert one.workers[0].clock <= 8 * (of(one).epochs + 1)


# conserved


@pytest.mark.parametrize("name", ["downpour", "hogwild", "priority", "quorum:k=3", "ssp", "essp"])
def test_no_gradient_is_lost(name: str) -> None:
    """With gradients of 1 the weights count the gradients."""

    class Ones(type(SQUARES)):
        def gradients(self, weights: Any, rows: Any) -> Any:
            return [np.ones_like(one) for one in weights]

    one = played(name, 4, problem=Ones(), disturbances=UNEVEN, rate=4.0)
    np.testing.assert_allclose(one.server.weights, -float(one.absorbed))


@AGREED
@given(workers=st.integers(2, 8), p=st.floats(0.05, 1.0), seed=st.integers(0, 99))
def test_gossip_shares_sum_to_one(workers: int, p: float, seed: int) -> None:
    changes = (MembershipChange(5.0, 1, joins=False), MembershipChange(20.0, 1, joins=True))
    one = played(f"gosgd:p={p}", workers, disturbances=UNEVEN._replace(changes=changes), seed=seed, gradients=100)
    assert math.isclose(of(one).total, 1.0, rel_tol=1e-9)
    assert min(of(one).shares) >= 0.0


def test_gossip_without_a_rate_reaches_consensus() -> None:
    one = world("gosgd:p=0.5", 6, rate=0.0, gradients=3000)
    for worker in one.workers:
        worker.weights = np.full(10, float(worker.number))
    one.run()
    assert np.ptp([worker.weights[0] for worker in one.workers]) < 1e-6


@pytest.mark.parametrize("workers", [4, 8, 16])
def test_neighbours_agree_at_the_rate_of_the_mixing_matrix(workers: int) -> None:
    """Without a rate: the part along the second eigenvector shrinks by its eigenvalue a round, and the mean stays."""
    turns = 2 * math.pi * np.arange(workers) / workers
    one = world("dpsgd", workers, rate=0.0, gradients=20 * workers)
    for worker in one.workers:
        worker.weights = np.full(10, math.cos(turns[worker.number]) + 3.0)
    one.run()
    second = (1 + 2 * math.cos(2 * math.pi / workers)) / 3
    for worker, turn in zip(one.workers, turns, strict=True):
        rounds = of(one).round[worker.number]
        np.testing.assert_allclose(worker.weights - 3.0, second**rounds * math.cos(turn), atol=1e-9)


def test_elastic_moves_are_symmetric() -> None:
    """Without a rate the sum of all copies and the centre stays as it is, whenever nothing is on the way."""
    one = world("easgd:tau=1,alpha=0.3", 1, rate=0.0, gradients=30, pace=even(1.0, 0.1))
    one.workers[0].weights = np.full(10, 5.0)
    total = one.workers[0].weights + one.server.weights
    one.run()
    np.testing.assert_allclose(one.workers[0].weights + one.server.weights, total)
    np.testing.assert_allclose(one.workers[0].weights, one.server.weights, atol=1e-3)


def test_copies_in_a_tree_stay_inside_their_hull() -> None:
    one = world("tree_easgd", 7, rate=0.0, gradients=7000)
    for worker in one.workers:
        worker.weights = np.full(10, float(worker.number))
    one.run()
    ends = [worker.weights[0] for worker in one.workers]
    assert 0.0 <= min(ends) <= max(ends) <= 6.0
    assert np.ptp(ends) < 0.1


def test_duals_sum_to_nothing() -> None:
    one = played("admm:tau=4", disturbances=UNEVEN)
    np.testing.assert_allclose(sum(of(one).duals), 0.0, atol=1e-12)


def test_compensation_leaves_fresh_gradients_alone() -> None:
    fresh, plain = played("dcasgd:strength=10", 1), played("downpour", 1)
    assert (fresh.server.weights == plain.server.weights).all()
    assert (played("dcasgd:strength=10").server.weights != played("downpour").server.weights).any()


def test_rates_go_down_with_staleness() -> None:
    one = played("fresh", 1)
    assert (one.server.weights == played("downpour", 1).server.weights).all()
    calls: list[tuple[float, int]] = []
    many = world("fresh", 4, disturbances=UNEVEN)
    absorb = many.absorb

    def noted(pushes: Any, rate: float, vectors: Any = ()) -> None:
        calls.append((rate, many.server.version - pushes[0].version))
        absorb(pushes, rate, vectors)

    many.absorb = noted
    many.run()
    assert {round(rate * max(1, stale), 12) for rate, stale in calls} == {0.2}


def test_explicit_momentum_makes_up_for_that_of_workers() -> None:
    for workers in (1, 2, 4, 16):
        assert played("negative:total=0.4", workers).momentum == pytest.approx(0.4 - 1 + 1 / workers)


def test_an_ensemble_is_no_worse_than_the_mean_of_its_members() -> None:
    one = played("ensemble", gradients=40)
    alone = [SQUARES.judged([worker.weights]).loss for worker in one.workers]
    assert SQUARES.judged([worker.weights for worker in one.workers]).loss <= np.mean(alone)
    assert not any(one.bytes.values()) and not any(played("averaging").bytes.values())


def test_one_student_comes_out_of_a_distillation() -> None:
    one = played("distillation:teach=60", gradients=4 * 60 + 400)
    assert len(one.algorithm.models(one)) == 1
    assert [worker.clock for worker in one.workers[1:]] == [60, 60, 60]
    assert one.curve[-1].loss < 0.01 * one.curve[0].loss


def test_a_population_keeps_its_best() -> None:
    one = played("population:tau=4", 8, gradients=800)
    best = min(of(one).judgement(worker) for worker in one.workers)
    assert best <= min(point.loss for point in one.curve[:20])
    rates = {worker.rate for worker in one.workers}
    assert len(rates) > 1


# who comes, goes and fails


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if composed(name).algorithm.elastic])
def test_training_goes_on_when_workers_leave_and_join(name: str) -> None:
    changes = (
        MembershipChange(10.0, 2, joins=False),
        MembershipChange(25.0, 2, joins=True),
        MembershipChange(30.0, 3, joins=True),
    )
    one = played(name, disturbances=Disturbances(changes=changes), gradients=800)
    assert outcome(one, name, "").ended == "limit"
    assert one.workers[3].clock > 0
    assert one.curve[-1].loss < one.curve[0].loss / 10


@pytest.mark.parametrize("name", [*ALGORITHMS, "sync@replicated"])
def test_training_goes_on_after_failures(name: str) -> None:
    calm = played(name, gradients=400)
    one = played(name, disturbances=Disturbances(mtbf=30.0, repair=4.0), gradients=400)
    assert one.failures > 0
    assert outcome(one, name, "").ended == "limit"
    assert one.now > calm.now


def test_those_who_know_their_neighbours_cannot_lose_them() -> None:
    with pytest.raises(BadInput, match="nobody can join or leave"):
        world("dpsgd", disturbances=Disturbances(changes=(MembershipChange(1.0, 0, joins=False),)))


def test_a_collective_needs_all() -> None:
    with pytest.raises(BadInput, match="does not wait for all"):
        world("downpour@replicated")
