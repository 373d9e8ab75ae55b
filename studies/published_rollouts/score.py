"""Published rates of answers beside what the roofline of decoding says: `python studies/published_rollouts/score.py`.

Rates are of whole batches of equal answers, in 16 bits, with prompts. No constant was chosen by them.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import NamedTuple

from foretell.cli.table import table
from foretell.hardware.catalog import cluster
from foretell.oracle.lengths import ExampleLengths
from foretell.oracle.replica import Replica
from foretell.oracle.rollout import AnswerLoad, Writer

ROWS = Path(__file__).with_name("rows.csv")


class Rate(NamedTuple):
    """A published rate and ours, in tokens/s of all devices."""

    row: dict[str, str]
    predicted: float

    @property
    def ratio(self) -> float:
        return self.predicted / float(self.row["tokens_per_second"])


def rates() -> list[Rate]:
    """All rows, in the order of the file."""
    with ROWS.open() as file:
        return [Rate(row, _predicted(row)) for row in csv.DictReader(file)]


def _predicted(row: dict[str, str]) -> float:
    place, count, tokens = cluster(row["cluster"]), int(row["answers"]), int(row["answer"])
    alike = ExampleLengths(counts=((tokens, 1),), most=tokens)
    load = AnswerLoad(prompts=count, each=1, prompt=int(row["prompt"]), lengths=alike)
    writer = Writer(row["model"], place, Replica(int(row["replica"])))
    return count * tokens / writer.write(load, 1, 0.99 * place.device.memory_bytes, count).seconds


def spread(found: list[Rate]) -> tuple[float, float]:
    """The geometric mean and the worst of factors by which rates are off, whichever way."""
    off = [abs(math.log(one.ratio)) for one in found]
    return math.exp(sum(off) / len(off)), math.exp(max(off))


def main() -> None:
    found = rates()
    rows = [
        [
            one.row["model"], one.row["cluster"], one.row["answers"], f"{one.row['prompt']}/{one.row['answer']}",
            f"{float(one.row['tokens_per_second']):,.0f}", f"{one.predicted:,.0f}", f"{one.ratio:.2f}",
        ]
        for one in found
    ]  # fmt: skip
    header = ["model", "on", "answers", "prompt/answer", "published", "predicted", "ratio"]
    print(table(header, rows, left=(0, 1)))
    print("off by {:.2f} in the geometric mean, {:.2f} at worst".format(*spread(found)))


if __name__ == "__main__":
    main()
