"""Virtual time without jitter equals the closed-form delays of Langer et al. 2020, section 3.4."""

from __future__ import annotations

import math

import pytest

from foretell.hardware.catalog import cluster
from foretell.virtual.pace import OnCluster, even
from foretell.virtual.problems.nothing import Nothing
from virtual.worlds import played, world

T, R, U, COMPUTE = 0.5, 0.125, 0.25, 20.0
PACE = even(COMPUTE, T, R, U)
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16)


def round_delay(text: str, workers: int) -> float:
    """Seconds from the moment when all have a gradient to that when all begin the next."""
    one = played(text, workers, pace=PACE, problem=Nothing(), gradients=2 * workers, traced=True)
    assert one.spans is not None
    starts = sorted(span.start for span in one.spans if span.what == "gradient")
    return starts[2 * workers - 1] - COMPUTE


def log2(n: int) -> int:
    return math.ceil(math.log2(n))


CLOSED = {
    "sync@single": lambda n: 2 * n * T + (n - 1) * R + U,
    "sync@binomial": lambda n: 2 * log2(n + 1) * T + log2(n) * R + U,
    "sync@scatter": lambda n: (2 + 2 * (n - 1) / n) * T + (n - 1) / n * R + U,
    "sync@shares": lambda n: 2 * (n - 1) / n * T + (n - 1) / n * R + U / n,
    "sync@replicated": lambda n: 2 * (n - 1) / n * T + (n - 1) / n * R + U,
}


@pytest.mark.parametrize("workers", SIZES)
@pytest.mark.parametrize("text", CLOSED)
def test_synchronous_rounds(text: str, workers: int) -> None:
    assert round_delay(text, workers) == pytest.approx(CLOSED[text](workers))


@pytest.mark.parametrize("workers", SIZES)
def test_recursive_doubling(workers: int) -> None:
    """A lower bound that powers of two reach."""
    bound = log2(workers) * (T + R) + U
    delay = round_delay("sync@doubling", workers)
    assert delay == pytest.approx(bound) if workers & (workers - 1) == 0 else delay > bound


def test_one_asynchronous_worker() -> None:
    assert round_delay("downpour", 1) == pytest.approx(2 * T + U)


@pytest.mark.parametrize("workers", SIZES)
def test_all_asynchronous_workers_overlapped(workers: int) -> None:
    """All gradients come at once: the last is in after n transmissions, whose updates but the last are hidden."""
    one = played("downpour", workers, pace=PACE, problem=Nothing(), gradients=workers, look_every=1)
    assert one.now - COMPUTE == pytest.approx(workers * T + U)


@pytest.mark.parametrize("tau", [1, 2, 5, 10])
def test_demand_of_local_steps(tau: int) -> None:
    """A tau-th of the model up, and as much down, for each step of a worker."""
    one = world(f"local:tau={tau}", 4, problem=Nothing(), gradients=200)
    one.run()
    assert one.bytes["up"] == pytest.approx(one.absorbed / tau)


def test_the_volume_of_a_node_with_all_serving() -> None:
    one = played("sync@shares", 8, problem=Nothing(), gradients=80)
    assert sum(one.bytes.values()) / 8 / 10 == pytest.approx(2 * 7 / 8, rel=0.1)


def test_ranks_share_the_ports_of_their_node() -> None:
    """Four devices beside two ports: what two ranks send to other nodes goes one by one, inside it does not."""
    network = OnCluster(cluster("16xv100-16"))
    assert network.ports(0, 4) == network.ports(1, 4) != network.ports(2, 4)
    assert network.ports(0, 1)[0] != network.ports(1, 0)[0]
    assert sum(network.flight(0, 4, 1e8)) > 2 * sum(network.flight(0, 1, 1e8))
