"""Where two algorithms change places: by their formulas, and in what was timed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.lab.crossover import AROUND, Crossover, cases, expected, measured
from foretell.lab.describe import described
from foretell.lab.measure import CollectiveRow
from foretell.lab.network import PAYLOAD, LabNetwork

HOSTS, RATE, DELAY, EXTRA = 4, 12.5e6, 1e-3, 1e-4
CLUSTER = described(LabNetwork(hosts=HOSTS, rate=RATE, delay=DELAY), EXTRA)


def _row(algorithm: str, size: int, seconds: float) -> CollectiveRow:
    common = {"kind": "all-reduce", "hosts": HOSTS, "rate": RATE, "delay": DELAY, "overhead": EXTRA, "messages": 1}
    return CollectiveRow(
        algorithm=algorithm, size=size, bytes=size, formula=1.0, seconds=seconds, samples=(seconds,), **common
    )


def test_the_butterfly_gives_way_where_its_formula_says() -> None:
    """log2(n)(L + m G) against 2 log2(n) L + 2(n - 1)/n m G: they are equal at m G = 4 L among four."""
    (one,) = expected(CLUSTER, ["butterfly", "recursive"], ["all-reduce"])
    assert (one.below, one.above) == ("butterfly", "recursive")
    assert one.formula == pytest.approx(4 * (DELAY + EXTRA) * RATE * PAYLOAD, rel=0.002)


def test_what_never_crosses_is_no_crossover() -> None:
    assert expected(CLUSTER, ["ring", "recursive"], ["all-reduce"]) == []  # fewer steps, and the same bytes
    assert expected(CLUSTER, ["ring"]) == []


@given(st.floats(0.3, 3.0))
def test_times_that_cross_elsewhere_are_found_there(shift: float) -> None:
    """Two straight lines, made to cross at another size than the formulas do."""
    (one,) = expected(CLUSTER, ["butterfly", "recursive"], ["all-reduce"])
    there = shift * one.formula
    wanted = cases([one], HOSTS, 1)
    assert len(wanted) == 2 * len(AROUND)
    lines = {"butterfly": lambda size: 2 + 2 * size / there, "recursive": lambda size: 3 + size / there}
    rows = [_row(case.algorithm, case.size, lines[case.algorithm](case.size)) for case in wanted]
    (found,) = measured([one], rows)
    assert found.measured == pytest.approx(there, rel=0.05)
    assert found.error == pytest.approx(1 / shift - 1, abs=0.2)


def test_one_that_is_always_faster_is_told() -> None:
    one = Crossover(kind="all-reduce", below="butterfly", above="recursive", formula=1e5)
    rows = [_row(case.algorithm, case.size, 1.0 + (case.algorithm == "recursive")) for case in cases([one], HOSTS, 1)]
    (found,) = measured([one], rows)
    assert found.measured is None and found.error is None
