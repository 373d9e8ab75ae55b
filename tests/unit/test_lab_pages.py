"""The lab's answers as pages, of rows that nobody had to measure."""

from __future__ import annotations

import pytest

from foretell.cli.lab_pages import measured
from foretell.lab.measure import SMALL, CollectiveRow, summary


def _row(size: int) -> CollectiveRow:
    common = {"hosts": 2, "rate": 1e8, "delay": 1e-3, "overhead": 1e-4, "messages": 2, "samples": (1.0,)}
    return CollectiveRow(algorithm="ring", kind="all-reduce", size=size, bytes=size, formula=1.1, seconds=1.0, **common)


@pytest.mark.parametrize(
    ("sizes", "means"), [((SMALL,), (0.1, None)), ((SMALL + 1,), (None, 0.1)), ((SMALL, SMALL + 1), (0.1, 0.1))]
)
def test_no_error_is_told_of_sizes_that_were_not_measured(
    sizes: tuple[int, ...], means: tuple[float | None, float | None]
) -> None:
    rows = [_row(size) for size in sizes]
    (one,) = summary(rows)
    assert (one.small, one.large) == pytest.approx(means)
    head, line = next(part for part in measured(rows).split("\n\n") if part.startswith("mean error")).splitlines()[::2]
    told = [line[: head.index(word) + len(word)].endswith("10.0%") for word in ("small", "large")]
    assert told == [mean is not None for mean in means]
    assert " 0.0%" not in line
