"""Two sides of an algorithm with letters between them: in threads here, in processes in `tests/torchrun`.

No test looks at a clock: who comes first differs from run to run, and what is asserted holds whoever does.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from foretell.cli.verbs.run import command
from foretell.errors import BadInput
from foretell.learning.algorithm import Algorithm
from foretell.learning.members import ALGORITHMS, composed, member
from foretell.learning.staleness import summary
from foretell.plan.text import parse
from foretell.runtime.methods.choice import MEANT, carrier, method, refusals
from foretell.runtime.methods.mailbox import TO_SERVERS, Letter
from foretell.runtime.methods.worker_server import Alike, ServerSide, Terms, WorkerSide
from foretell.virtual.again import InOrder
from foretell.virtual.foretold import StalenessSeen, at_paces, stretches, told
from foretell.virtual.pace import even
from foretell.virtual.problems.squares import Squares

PROBLEM = Squares()
GRADIENTS = 6
LONG = 120.0
"""Seconds in which threads that do almost nothing have certainly ended, on whatever machine."""

APART = [name for name in ALGORITHMS if member(ALGORITHMS, Algorithm, name).apart]


class Boxes:
    """The post of one rank whose others are threads beside it."""

    def __init__(self, all_of_them: list[Boxes]) -> None:
        self.worker = queue.SimpleQueue[Letter | Exception]()
        self.server = queue.SimpleQueue[Letter | Exception]()
        self._all = all_of_them

    def send(self, rank: int, letter: Letter) -> None:
        box = self._all[rank]
        (box.server if letter.kind in TO_SERVERS else box.worker).put(letter)


class Meeting:
    """The mean of what all threads bring."""

    def __init__(self, workers: int) -> None:
        self._barrier = threading.Barrier(workers, timeout=LONG)
        self._brought: list[Any] = [None] * workers

    def of(self, number: int) -> Callable[[Any], Any]:
        def mean(vector: Any) -> Any:
            self._brought[number] = vector
            self._barrier.wait()
            found = np.mean(self._brought, axis=0)
            self._barrier.wait()
            return found

        return mean


def rows(worker: int, gradient: int) -> Any:
    return np.random.default_rng([worker, gradient]).integers(PROBLEM.samples, size=8)


def work(side: WorkerSide) -> None:
    side.begin()
    while not side.done:
        problem = side.me.problem or PROBLEM  # a student has one of its own
        (gradient,) = problem.gradients([side.wanted], [rows(side.me.number, side.me.clock)])
        side.take(gradient)
    side.end()


def ran(
    text: str,
    workers: int = 3,
    momentum: float = 0.0,
    gradients: int = GRADIENTS,
    works: Callable[[WorkerSide], None] = work,
) -> tuple[list[WorkerSide], list[ServerSide]]:
    """A run in threads: its workers and servers when all have left."""
    terms = Terms(
        composed(text), workers, PROBLEM.start(0), PROBLEM.shapes, 0.2, momentum, 0, gradients, problem=PROBLEM
    )
    posts: list[Boxes] = []
    posts += [Boxes(posts) for _ in range(workers)]
    meeting = Meeting(workers)
    servers = [ServerSide(terms, posts[number], number) for number in range(terms.servers)]
    sides = [
        Alike(terms, posts[at], at, meeting.of(at))
        if terms.method.topology.collective
        else WorkerSide(terms, posts[at], at)
        for at in range(workers)
    ]
    threads = [threading.Thread(target=works, args=(side,), daemon=True) for side in sides]
    for server in servers:
        server.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive(), f"{text} waits for somebody who does not come"
    for server in servers:
        server.end()
    return sides, servers


def virtual(text: str, orders: dict[int, list[int]], workers: int = 3, momentum: float = 0.0) -> InOrder:
    made = composed(text)
    world = InOrder(
        PROBLEM,
        made.algorithm,
        made.topology,
        made.compressor,
        even(1.0, 0.0),
        workers,
        gradients=GRADIENTS,
        orders=orders,
        rate=0.2,
        momentum=momentum,
        batched=False,
        rows=rows,
    )
    world.run()
    return world


def orders(workers: list[WorkerSide], servers: list[ServerSide]) -> dict[int, list[int]]:
    """What all sides wrote down."""
    return {side.me.number: side.heard for side in workers} | {len(workers): side.arrivals for side in servers}


@pytest.mark.parametrize("name", APART)
def test_every_algorithm_that_can_be_processes_comes_to_an_end(name: str) -> None:
    text = name if member(ALGORITHMS, Algorithm, name).topology != "single" else f"{name}@single"
    workers, servers = ran(text)
    assert all(worker.me.clock == GRADIENTS for worker in workers)
    for weights in (*(side.me.weights for side in workers), *(side.server.weights for side in servers)):
        assert np.isfinite(weights).all()
    assert any(not np.array_equal(side.me.weights, PROBLEM.start(0)) for side in workers)  # something was learnt


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    "text", ["sync", "admm:tau=1", "downpour", "ssp:s=0", "ssp:s=1", "fresh", "dcasgd", "reject:s=1"]
)
def test_a_server_does_what_it_does_in_virtual_time_when_pushes_come_so(text: str, momentum: float) -> None:
    _, (server,) = ran(text, momentum=momentum)
    world = virtual(text, {3: server.arrivals}, momentum=momentum)
    assert [one for one in sorted(server.arrivals) if one < 3] == sorted([0, 1, 2] * GRADIENTS)
    np.testing.assert_allclose(server.server.weights, world.server.weights, rtol=0, atol=1e-12)
    assert summary(server.staleness) == summary(world.staleness)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", APART)
def test_every_algorithm_does_the_same_in_virtual_time_in_the_same_order(name: str, momentum: float) -> None:
    """Letters that cross as well: workers that gossip, elastic ones, who asks and pushes when it likes."""
    workers, servers = ran(name, momentum=momentum)
    world = virtual(name, orders(workers, servers), momentum=momentum)
    for side in servers:
        np.testing.assert_allclose(side.server.weights, world.server.weights, rtol=0, atol=1e-12)
        assert summary(side.staleness) == summary(world.staleness)
    for side, worker in zip(workers, world.workers, strict=True):
        assert worker.clock == GRADIENTS
        np.testing.assert_allclose(side.me.weights, worker.weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "text",
    ["sync@replicated", "local:tau=2@replicated", "post_local:tau=3,switch=2@replicated", "admm:tau=2@replicated"],
)
def test_where_all_run_the_same_optimizer_all_have_the_same_weights(text: str) -> None:
    workers, _ = ran(text)
    world = virtual(text, {})
    for side in workers:
        np.testing.assert_allclose(side.server.weights, world.server.weights, rtol=0, atol=1e-12)
    steps = getattr(composed(text).algorithm, "tau", 1)
    if text.startswith("local"):
        assert all(sum(side.travelled.values()) == GRADIENTS // steps for side in workers)


def test_neighbours_on_a_ring_end_where_virtual_time_ends() -> None:
    workers, _ = ran("dpsgd", workers=4)
    world = virtual("dpsgd", {}, workers=4)
    for side, other in zip(workers, world.workers, strict=True):
        np.testing.assert_allclose(side.me.weights, other.weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("text", ["gosgd:p=1", "gosgd:p=0.5"])
def test_gossip_loses_no_share_and_chooses_as_in_virtual_time(text: str) -> None:
    workers, _ = ran(text, workers=4)
    shares = [side.algorithm.shares[side.me.number] for side in workers]  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    assert sum(shares) == pytest.approx(1.0, abs=1e-12)
    world = virtual(text, {}, workers=4)
    assert sum(sum(side.travelled.values()) for side in workers) * world.pace.size == world.bytes["peers"]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("text", ["population:tau=1", "population:tau=2,spread=2"])
def test_a_population_copies_its_best_as_in_virtual_time(text: str, momentum: float) -> None:
    """Who is asked answers between two gradients, also when it has made its last."""
    workers, _ = ran(text, workers=4, momentum=momentum)
    world = virtual(text, orders(workers, []), workers=4, momentum=momentum)
    for side, worker in zip(workers, world.workers, strict=True):
        assert side.me.rate == worker.rate
        np.testing.assert_allclose(side.me.weights, worker.weights, rtol=0, atol=1e-12)


def test_the_members_of_an_ensemble_do_not_talk() -> None:
    workers, _ = ran("ensemble", workers=4)
    world = virtual("ensemble", {}, workers=4)
    assert not any(side.travelled for side in workers)
    for side, worker in zip(workers, world.workers, strict=True):
        np.testing.assert_allclose(side.me.weights, worker.weights, rtol=0, atol=1e-12)
    assert len({side.me.weights.tobytes() for side in workers}) == 4


def test_a_student_learns_what_all_teachers_answer() -> None:
    """Teachers stop when they have taught; worker 0 begins anew when all of them have."""
    text = "distillation:teach=3"
    workers, _ = ran(text, workers=4, gradients=8)
    assert [side.me.clock for side in workers] == [8, 3, 3, 3]
    teachers = [PROBLEM.start(at + 1) for at in range(4)]
    for step in range(3):
        made = PROBLEM.gradients(teachers, [rows(at, step) for at in range(4)])
        teachers = [weights - 0.2 * gradient for weights, gradient in zip(teachers, made, strict=True)]
    student, problem = PROBLEM.start(4), PROBLEM.distilled(teachers)
    for step in range(3, 8):
        student = student - 0.2 * problem.gradients([student], [rows(0, step)])[0]
    np.testing.assert_allclose(workers[0].me.weights, student, rtol=0, atol=1e-12)


def test_elastic_symmetry() -> None:
    """What workers lose the centre gains: without gradients the sum of all never moves."""
    workers, (server,) = ran("easgd:tau=2,alpha=0.3")
    pushed = sum(
        side.travelled[kind, size, clock] for side in workers for kind, size, clock in side.travelled if kind == "push"
    )
    assert pushed == server.server.version == 3 * GRADIENTS // 2


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_nobody_is_further_ahead_than_allowed(servers: int) -> None:
    bound = 1
    _, found = ran(f"ssp:s={bound}@sharded:k={servers}", workers=4)
    for server in found:
        made = Counter[int]()
        for worker in (one for one in server.arrivals if one < 4):
            made[worker] += 1
            assert made[worker] - min(made[one] for one in range(4)) <= bound + 1


def test_mean_staleness_is_that_of_the_others_updates() -> None:
    """Between two pushes of a worker every update of the others is seen once, at whatever pace they go: until a
    worker's last push its staleness adds up to all that the others did, n - 1 for each of its own at equal paces."""
    _, (server,) = ran("downpour", workers=4)
    before, pushes = 0, [one for one in server.arrivals if one < 4]
    for worker in range(4):
        last = max(at for at, one in enumerate(pushes) if one == worker)
        before += last + 1 - GRADIENTS
    assert sum(updates * times for updates, times in server.staleness.items()) == before


def test_staleness_is_what_virtual_time_foretells_from_paces_alone() -> None:
    """Waits stand for computing, one worker's four times as long. Paces are as they were, whatever else the machine
    does: from one gradient's beginning to the next one's. Who came first is not told; the clock decides it."""
    paces, count, draws = (0.01, 0.01, 0.01, 0.04), 30, np.random.default_rng(0)
    waits = [pace * np.exp(0.3 * draws.standard_normal(count)) for pace in paces]

    def waiting(side: WorkerSide) -> None:
        side.begin()
        while not side.done:
            time.sleep(waits[side.me.number][side.me.clock])
            side.take(side.wanted * 0)
        side.end()

    workers, (server,) = ran("downpour", 4, gradients=count, works=waiting)
    seen = server.staleness
    assert seen.total() == 4 * count
    paces = [side.paces() for side in workers]
    drawn = (stretches(paces, 0, np.random.default_rng(seed)) for seed in range(30))
    runs = [
        at_paces("downpour", [[own[at] for at in found] for own, found in zip(paces, one, strict=True)])
        for one in drawn
    ]
    found = told(StalenessSeen("taken", seen, runs))
    alike = told(StalenessSeen("taken", seen, [at_paces("downpour", [[0.01] * count] * 4)] * 2))
    assert found.distance < max(0.35, 2 * found.noise)
    assert alike.distance > 0.4  # of workers that all go at one pace


def test_axes_of_plans_mean_algorithms() -> None:
    plans = {
        "ps4:sync": "sync@single",
        "ps4:ssp,s3": "ssp:s=3,cache=0@single",
        "ps4:async,k2": "downpour@sharded:k=2",
        "local4:tau10": "local:tau=10@replicated",
        "ring4": "dpsgd",
        "gossip4": "gosgd:p=1",
    }
    for plan, text in plans.items():
        found = method(parse(plan))
        assert found is not None and found.text == text
        assert not list(refusals(found))
    assert {type(parse(plan).axes[0]) for plan in plans} == set(MEANT)
    assert method(parse("dp4")) is None and method(parse("ps1:sync")) is None


@pytest.mark.parametrize("text", ["easgd:tau=4", "local:tau=3", "dpsgd", "gosgd", "ssp:s=2", "sync"])
def test_a_named_algorithm_has_a_plan_that_carries_it(text: str) -> None:
    found = method(parse(carrier(text, 3)), text)
    assert found is not None and found.text == text and parse(carrier(text, 3)).ranks == 3


@pytest.mark.parametrize("text", ["hogwild", "vap", "essp", "sync@binomial", "local@replicated+topk"])
def test_what_only_virtual_time_has_is_refused(text: str) -> None:
    assert list(refusals(composed(text)))


def test_a_method_without_ranks_asks_for_ranks() -> None:
    found = CliRunner().invoke(command, ["lenet", "--method", "local:tau=4", "--batch", "16"]).exception
    assert isinstance(found, BadInput) and found.where == "--ranks"
