"""Scores the prices of collectives against published sweeps: python studies/collectives/score.py [--rows]

How a line becomes a cluster, a kind and a size is in `foretell.validation.studies.collectives`; `foretell validate
studies/collectives/measured.csv` prints the same errors by source.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from foretell.validation.studies.collectives import SIZES, call, size_class
from foretell.validation.study import Line, Unmapped, csv_lines

HERE = Path(__file__).parent


class Row(NamedTuple):
    """One measured collective and what is predicted for it."""

    id: str
    collective: str
    size: int
    where: str
    measured: float
    predicted: float
    chosen: str

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def size_class(self) -> str:
        return size_class(self.size)


def rows() -> Iterator[Row | str]:
    """Every row of the file, predicted, or the reason why it is not."""
    for line in lines():
        try:
            yield _row(line)
        except Unmapped as reason:
            yield str(reason)


def lines() -> list[Line]:
    return csv_lines(HERE / "measured.csv")


def _row(line: Line) -> Row:
    one = call(line["id"], line)
    where = one.what.partition(" on ")[2]
    return Row(one.id, line["collective"], int(line["bytes"]), where, one.seconds, one.predicted, one.chosen)


def summary(found: Iterable[Row]) -> tuple[float, float, int]:
    """Median and 90th percentile of the relative error, and how many rows."""
    errors = sorted(abs(row.error) for row in found)
    if len(errors) < 2:
        return (errors[0], errors[0], 1) if errors else (0.0, 0.0, 0)
    return statistics.median(errors), statistics.quantiles(errors, n=10, method="inclusive")[-1], len(errors)


def table(found: list[Row], by: str) -> Iterator[str]:
    """Errors in per cent, median / 90th percentile (rows), a line for each value of a field."""
    yield f"{by:<44}" + "".join(f"{name:>18}" for name in (*SIZES, "all"))
    for value in sorted({getattr(row, by) for row in found}):
        yield _line(value, [row for row in found if getattr(row, by) == value])
    yield _line("all", found)


def _line(name: str, found: list[Row]) -> str:
    classes = [[row for row in found if row.size_class == size] for size in SIZES]
    cells = [f"{median:.0%} / {most:.0%} ({count})" for median, most, count in map(summary, [*classes, found])]
    return f"{name:<44}" + "".join(f"{cell if not cell.endswith('(0)') else '-':>18}" for cell in cells)


def main() -> None:
    outcomes = list(rows())
    found = [row for row in outcomes if isinstance(row, Row)]
    reasons = [row for row in outcomes if isinstance(row, str)]
    if "--rows" in sys.argv:
        for row in found:
            print(f"{row.id:<12}{row.collective:<12}{row.size:>12} {row.where:<34}{row.measured:10.3e}"
                  f"{row.predicted:11.3e}{row.error:8.0%}  {row.chosen}")  # fmt: skip
    print("\n".join(table(found, "collective")), "\n")
    print("\n".join(table(found, "where")), "\n")
    print(f"{len(outcomes)} rows: {len(found)} scored, {len(reasons)} not:")
    for reason in sorted(set(reasons)):
        print(f"  {reasons.count(reason):>4}  {reason}")


if __name__ == "__main__":
    main()
