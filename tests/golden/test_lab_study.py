"""What real algorithms took between emulated hosts (studies/lab), beside the formulas as they are now."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group
from foretell.lab.crossover import Crossover, expected
from foretell.lab.crossover import measured as seen
from foretell.lab.describe import described
from foretell.lab.formula import formula
from foretell.lab.measure import SMALL, CollectiveRow, orders
from foretell.lab.network import LabNetwork
from foretell.runtime.collectives import chosen

FILE = Path(__file__).parents[2] / "studies" / "lab" / "collectives.jsonl"
ROWS = [
    row for line in FILE.read_bytes().splitlines() if not (row := msgspec.json.decode(line, type=CollectiveRow)).island
]


def error(row: CollectiveRow) -> float:
    """The formula of today less what was measured, as a share."""
    network = LabNetwork(hosts=row.hosts, rate=row.rate, delay=row.delay)
    said = formula(chosen(row.algorithm), row.kind, row.size, described(network, row.overhead), row.software)
    return said / row.seconds - 1


def errors(hosts: int, delay: float, small: bool) -> list[float]:
    """Of all rows with so many hosts, at least so far apart."""
    return [
        abs(error(row)) for row in ROWS if row.hosts == hosts and row.delay >= delay and (row.size <= SMALL) == small
    ]


def test_the_study_has_every_network_and_algorithm() -> None:
    assert {(row.hosts, round(row.rate * 8e-9, 3), row.delay) for row in ROWS} == {
        (hosts, rate, delay) for hosts in (2, 4) for rate in (0.1, 0.3, 1.0) for delay in (1e-4, 1e-3, 5e-3)
    }
    assert len({(row.algorithm, row.kind) for row in ROWS}) == 16


def test_large_tensors_take_what_formulas_say() -> None:
    for hosts, mean, within in ((2, 0.01, 0.98), (4, 0.03, 0.88)):
        found = errors(hosts, 0.0, small=False)
        assert statistics.mean(found) < mean
        assert sum(one < 0.05 for one in found) >= within * len(found)


def test_small_ones_too_where_the_delay_is_more_than_the_software() -> None:
    for hosts in (2, 4):
        found = errors(hosts, 1e-3, small=True)
        assert statistics.mean(found) < 0.05
        assert sum(one < 0.15 for one in found) >= 0.95 * len(found)


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "broadcast"])
def test_the_fastest_algorithm_is_near_the_one_that_formulas_name(kind: str) -> None:
    networks: dict[tuple[int, float, float], list[CollectiveRow]] = {}
    for row in ROWS:
        if row.kind == kind and row.delay >= 1e-3:
            networks.setdefault((row.hosts, row.rate, row.delay), []).append(row)
    regrets = [order.regret for rows in networks.values() for order in orders(rows)]
    assert statistics.mean(regrets) < 0.03


CROSSED = [
    msgspec.json.decode(line, type=CollectiveRow)
    for line in FILE.with_name("crossovers.jsonl").read_bytes().splitlines()
]


def crossovers() -> list[Crossover]:
    """Those of today's formulas on every network of the study, with the sizes at which times crossed."""
    found: list[Crossover] = []
    for key in dict.fromkeys((row.hosts, row.rate, row.delay, row.overhead) for row in CROSSED):
        rows = [row for row in CROSSED if (row.hosts, row.rate, row.delay, row.overhead) == key]
        hosts, rate, delay, extra = key
        cluster = described(LabNetwork(hosts=hosts, rate=rate, delay=delay), extra)
        found += seen(expected(cluster, list(dict.fromkeys(row.algorithm for row in rows))), rows)
    return found


def test_algorithms_change_places_where_their_formulas_do() -> None:
    found = crossovers()
    assert {one.kind for one in found} == {"all-reduce", "broadcast"}
    errors = [abs(one.error) for one in found if one.error is not None]
    assert len(errors) >= 0.95 * len(found) >= 40
    assert statistics.median(errors) < 0.1
    assert max(errors) < 1.0  # on a time scale of sizes: never off by a factor of two


GLOO = [json.loads(line) for line in FILE.with_name("gloo.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize("row", GLOO, ids=lambda row: f"{row['kind']}-{row['hosts']}")
def test_gloo_waits_as_often_as_its_price_says(row: dict[str, Any]) -> None:
    cluster = described(LabNetwork(hosts=row["hosts"], rate=row["rate"], delay=row["delay"]))
    payload = row["size"] / row["hosts"] if row["kind"] == "all-gather" else row["size"]
    priced = collective_seconds(row["kind"], payload, Group(row["hosts"]), cluster).seconds
    assert priced == pytest.approx(statistics.median(row["samples"]), rel=0.2)
