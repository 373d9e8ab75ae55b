"""Prices of collectives against the papers' formulas and against published sweeps (studies/collectives)."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import msgspec
import pytest

from foretell.cost.collectives import alpha_beta, collective_seconds
from foretell.cost.fabric import Group
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster

_PATH = Path(__file__).parents[2] / "studies" / "collectives" / "score.py"
_SPEC = importlib.util.spec_from_file_location("collective_score", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
score = importlib.util.module_from_spec(_SPEC)
sys.modules["collective_score"] = score
_SPEC.loader.exec_module(score)


def flat(ranks: int, latency: float, bandwidth: float) -> Cluster:
    """Ranks on one network, with a latency and a rate and nothing else."""
    cluster = catalog.cluster(f"{ranks}x1xh100,1xib-ndr")
    node, fabric = cluster.levels
    link = msgspec.structs.replace(
        fabric.link,
        latency_seconds=latency,
        hop_seconds=0.0,
        bandwidth=bandwidth,
        ceiling=bandwidth,
        efficiency={"ring": 1.0},
    )
    return msgspec.structs.replace(cluster, levels=(node, msgspec.structs.replace(fabric, link=link)))


def seconds(
    algorithm: str, kind: str, payload: float, ranks: int, alpha: float, rate: float, servers: int = 1, shared: int = 1
) -> float:
    library = alpha_beta().only(algorithm)
    cluster = flat(ranks, alpha, rate)
    price = collective_seconds(kind, payload, Group(ranks), cluster, library=library, servers=servers, sharing=shared)
    return price.seconds


# Ben-Nun and Hoefler 2019, section 2.5: L latency, G seconds a byte, m bytes, P machines

L, RATE, M = 3e-6, 10e9, 2**24
G = 1 / RATE


@pytest.mark.parametrize("p", [2, 4, 8, 64, 1024])
def test_all_reduce_costs(p: int) -> None:
    depth = math.log2(p)
    costs = {
        "binomial": 2 * depth * (L + M * G),
        "butterfly": depth * (L + M * G),
        "ring": 2 * (p - 1) * (L + M / p * G),
        "recursive": 2 * L * depth + 2 * M * G * (p - 1) / p,
    }
    for name, cost in costs.items():
        assert seconds(name, "all-reduce", M, p, L, RATE) == pytest.approx(cost), name
    bound = max(L * depth, M * G)
    assert all(cost >= bound * (p - 1) / p for cost in costs.values())


@pytest.mark.parametrize("p", [2, 8, 64])
def test_one_parameter_server(p: int) -> None:
    """2L + 2P(m/s)G with s = 1: a server apart from the P workers is one more rank."""
    assert seconds("parameter_server", "all-reduce", M, p + 1, L, RATE) == pytest.approx(2 * L + 2 * p * M * G)


def test_small_tensors_take_a_tree_and_large_ones_a_ring() -> None:
    cluster, library = flat(64, L, RATE), alpha_beta().only("ring", "butterfly")
    assert collective_seconds("all-reduce", 64, Group(64), cluster, library=library).algorithm == "butterfly"
    assert collective_seconds("all-reduce", M, Group(64), cluster, library=library).algorithm == "ring"


# Kahira et al. 2021, section 4.2, and the log of their tool


def test_primitives_of_the_oracle() -> None:
    p, m = 16, 1e6
    assert seconds("point_to_point", "send", m, p, L, RATE) == pytest.approx(L + m * G)
    assert seconds("ring", "all-reduce", m, p, L, RATE) == pytest.approx(2 * (p - 1) * (L + m / p * G))
    assert seconds("ring", "all-gather", m, p, L, RATE) == pytest.approx((p - 1) * (L + m * G))
    assert seconds("ring", "all-reduce", m, p, L, RATE, shared=2) == pytest.approx(2 * (p - 1) * (L + m / p * 2 * G))


SHORT, MIDDLE, LONG = (
    2 * (15e-6 + 110e-9) + 90e-9,
    2 * (15e-6 + 110e-9) + 90e-9 + 180e-9,
    2 * (15e-6 + 110e-9) + 400e-9 + 2 * 90e-9 + 2 * 90e-9,
)


@pytest.mark.parametrize(
    ("weights", "per_rank", "p", "alpha", "per_epoch"),
    [
        (169_801_408, 32, 16, SHORT, 256.975362),
        (169_801_408, 32, 64, SHORT, 69.2462169),
        (169_801_408, 32, 1024, LONG, 6.8780742096),
        (22_734_016, 64, 16, SHORT, 18.187137),
        (22_734_016, 64, 64, SHORT, 5.67828639504),
        (22_734_016, 64, 1024, LONG, 1.5584128296),
    ],
)
def test_gradient_exchange_of_the_oracles_log(
    weights: int, per_rank: int, p: int, alpha: float, per_epoch: float
) -> None:
    """VGG16 and ResNet-50 on ABCI, 1.28 million samples: communication of an epoch."""
    steps = math.ceil(1.28e6 / (per_rank * p))
    one = seconds("ring", "all-reduce", 4 * weights, p, alpha, 12.5e9)
    assert steps * one == pytest.approx(per_epoch, rel=1e-8)


def test_the_best_number_of_chunks_gives_the_square_root() -> None:
    """The least over k of 2(log p + k)(alpha + m/(2k) beta) is L + T + sqrt(R T) with R = 8 alpha log p."""
    p, m = 16, 1e8
    depth, transfer = math.log2(p), m * G
    least = min(2 * (depth + k) * (L + m / (2 * k) * G) for k in range(1, 2000))
    assert least == pytest.approx(2 * depth * L + transfer + math.sqrt(8 * L * depth * transfer), rel=1e-5)


# Langer et al. 2020, section 3.4: delays in units of T_w, the time to send the model once


@pytest.mark.parametrize("n", [2, 3, 5, 8, 15])
def test_delay_bounds(n: int) -> None:
    model = 1e9

    def delay(algorithm: str, kind: str, ranks: int, servers: int = 1) -> float:
        return seconds(algorithm, kind, model, ranks, 0.0, model, servers)

    assert delay("parameter_server", "all-reduce", n + 1) == pytest.approx(2 * n)
    assert delay("binomial", "all-reduce", n + 1) == pytest.approx(2 * math.ceil(math.log2(n + 1)))
    there_and_back = 2 * delay("point_to_point", "send", 2)
    assert delay("ring", "all-reduce", n) + there_and_back == pytest.approx(2 + 2 * (n - 1) / n)
    assert delay("parameter_server", "push", 2) + delay("parameter_server", "pull", 2) == pytest.approx(2)
    assert delay("parameter_server", "push", n + 1) == pytest.approx(n)
    assert delay("parameter_server", "all-reduce", n, servers=n) == pytest.approx(2 * (n - 1) / n)
    assert delay("butterfly", "all-reduce", n) == pytest.approx(math.ceil(math.log2(n)))
    assert delay("ring", "all-reduce", n) == pytest.approx(2 * (n - 1) / n)


# Published sweeps


APART = ("8xgb200,nvlink5-switch,roce-400", "8xgb300,nvlink5-switch,roce-800")
"""Trays of racks, each an NVLink domain of its own: scored after all constants stood."""


@pytest.fixture(scope="module")
def every() -> list[score.Row]:
    return [row for row in score.rows() if isinstance(row, score.Row)]


@pytest.fixture(scope="module")
def rows(every: list[score.Row]) -> list[score.Row]:
    return [row for row in every if row.where not in APART]


def test_every_row_is_scored_or_has_a_reason() -> None:
    reasons = [row for row in score.rows() if isinstance(row, str)]
    assert sorted({reason: reasons.count(reason) for reason in reasons}.items()) == [
        ("a bandwidth without a size", 2),
        ("parts of a rack in several NVLink domains cannot be written as a cluster", 4),
        ("won by another library than NCCL", 9),
    ]


@pytest.mark.parametrize(
    ("size", "count", "median", "most"),
    [("small", 213, 0.10, 0.30), ("middle", 376, 0.15, 0.42), ("large", 330, 0.065, 0.36)],
)
def test_error_by_size(rows: list[score.Row], size: str, count: int, median: float, most: float) -> None:
    found = [row for row in rows if row.size_class == size]
    assert len(found) == count
    middle, high, _ = score.summary(found)
    assert middle < median
    assert high < most


@pytest.mark.parametrize(
    ("collective", "median", "most"),
    [
        ("all_reduce", 0.11, 0.41),
        ("all_gather", 0.08, 0.21),
        ("all_to_all", 0.08, 0.31),
        ("broadcast", 0.12, 0.22),
        ("send_recv", 0.10, 0.40),
    ],
)
def test_error_by_collective(rows: list[score.Row], collective: str, median: float, most: float) -> None:
    middle, high, _ = score.summary([row for row in rows if row.collective == collective])
    assert middle < median
    assert high < most


def test_error_over_all(rows: list[score.Row]) -> None:
    middle, high, count = score.summary(rows)
    assert count == 919
    assert middle < 0.10
    assert high < 0.37


def test_error_of_trays_in_domains_of_their_own(every: list[score.Row]) -> None:
    found = [row for row in every if row.where in APART]
    middle, high, count = score.summary(found)
    assert count == 51
    assert middle < 0.25
    assert high < 0.60
    large, _, number = score.summary([row for row in found if row.size_class == "large"])
    assert number == 19
    assert large < 0.10


def test_racks_have_a_ring_and_no_switch_between_them() -> None:
    """NCCL's src/graph/tuning.cc leaves NVLS_TREE out over multi-node NVLink; GKE's guide measured 49.6 ms."""
    racks = catalog.cluster("2xgb200-nvl72")
    price = collective_seconds("all-reduce", 2**34, Group(144), racks)
    assert price.algorithm == "ring"
    assert price.seconds == pytest.approx(49.6e-3, rel=0.05)
    assert collective_seconds("all-reduce", 2**34, Group(72), racks).algorithm == "nvls"
