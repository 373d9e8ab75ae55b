"""Published rates of answers beside what the roofline of decoding says: `python studies/published_rollouts/score.py`.

Rates are of whole batches of equal answers, in 16 bits, with prompts. No constant was chosen by them.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import NamedTuple

import numpy

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


SERVED = {"nodes": 16, "answers": 88, "tokens": 4989, "published": 14_800}
"""DeepSeek on its own service of V3 and R1 (open-infra-index, day 6, 2025): tokens that a node of eight H800 writes a
second, tokens before each in the mean; answers in flight of a GPU follow from 20 to 22 tokens/s for each. Products and
dispatch in 8 bits, attention and the sums of experts in 16, by 144 ranks, two batches beside each other; here in 16
bits, by 128."""


def served() -> str:
    """The same by ranks that share experts out."""
    ranks = 8 * SERVED["nodes"]
    writer = Writer("deepseek-v3", cluster(f"{ranks}xh800"), Replica(experts=ranks))
    between = writer.step(SERVED["answers"])
    seconds = between + writer.reading(numpy.full(SERVED["answers"], float(SERVED["tokens"])))
    rate = 8 * SERVED["answers"] / seconds
    told = f"{rate:,.0f} tokens/s a node, published {SERVED['published']:,} in 8 bits"
    return f"deepseek-v3 on {ranks}xh800, ep{ranks}: {told} (ratio {rate / SERVED['published']:.2f})"


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
    print(served())


if __name__ == "__main__":
    main()
