"""Prices of split convolutions, and of the copies around them, against what was measured here.

    python studies/h200_split_convolutions/score.py [--seen | --aside] [--by split|kind|layer]

Predicted over measured time on the device: rows, the ratio in the median, the error in the mean and the median, and the
ratio of the sums. Forms and constants were read off the half of the layers that was not set aside; the score is the
other half (`--aside`, which is what is printed unless something else is asked for).
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretell.cost.kernels import kernel_seconds
from foretell.hardware.members import device
from foretell.model.operators.convolution import Convolution
from foretell.plan.policies.precision import FORMATS, Format
from foretell.plan.trainer import trainer
from foretell.program.action import Compute

FILE = Path(__file__).parent / "split_convolutions.jsonl"
H200 = device("h200")
TRAINERS = {"first": trainer("pytorch"), "last": trainer("pytorch-channels-last")}
FORMS: dict[str, Format] = {"fp32": FORMATS["fp32"], "tf32": FORMATS["tf32"], "bf16": FORMATS["bf16:pure"]}
WIDTHS = {"fp32": 4, "tf32": 4, "bf16": 2}
BETWEEN_US = 3.0
"""What two events around a call measure besides its kernels: the smallest copies here take 3.8 us between events, and
0.8 by the profiler (`clone` in studies/h200_kernels/memory.jsonl)."""
LEAST_US = 3.0  # kernels below are no longer than what starts and ends one
Line = dict[str, Any]


class Scored(NamedTuple):
    """One line with what is predicted of it, in microseconds."""

    line: Line
    said: float

    @property
    def measured(self) -> float:
        return device_us(self.line)

    @property
    def ratio(self) -> float:
        return self.said / self.measured


def device_us(line: Line) -> float:
    """Time of the kernels of a call."""
    return line["device_us"] - BETWEEN_US


def compute(line: Line) -> Compute:
    """The action of a rank that has its share of a layer."""
    space, local = line["space"], line["local"]
    sizes = {"sample": line["batch"], "group": 1, "in": local["in"], "out": local["out"]}
    whole = (line["image"] + 2 * line["padding"] - line["kernel"]) // line["stride"] + 1
    for at, name in enumerate(("depth", "height", "width")[-space:]):
        sizes[name] = local["rows"] if at == 0 else whole
    said = ((line[key],) * space for key in ("kernel", "stride", "padding"))
    operator = Convolution(*said, (1,) * space)
    cost = operator.part(line["part"], sizes, dict.fromkeys("xwy", WIDTHS[line["precision"]]))
    return Compute("layers.0", "convolution", line["part"], sizes, cost)


def lines(op: str = "convolution") -> Iterator[Line]:
    with FILE.open() as file:
        for text in file:
            line = msgspec.json.decode(text)
            if line.get("op") == op and "failed" not in line and line["queued_in_time"]:
                yield line


def scored(wanted: Callable[[Line], bool]) -> Iterator[Scored]:
    for line in lines():
        if wanted(line) and device_us(line) >= LEAST_US:
            action, form = compute(line), FORMS[line["precision"]]
            yield Scored(line, float(kernel_seconds(action, H200, form, TRAINERS[line["layout"]]).seconds) * 1e6)


def window(line: Line) -> str:
    return "3-D" if line["space"] > 2 else f"{line['kernel']}x{line['kernel']}" + ("/2" if line["stride"] > 1 else "")


def key(line: Line, by: str) -> tuple[str, ...]:
    if by == "split":
        return (
            line["precision"],
            line["layout"],
            "whole" if line["ranks"] == 1 else line["split"],
            f"{line['ranks']:>2}",
        )
    if by == "layer":
        size = f"{line['channels']}-{line['filters']} {window(line)} @{line['image']}"
        return line["precision"], line["layout"], size, line["part"]
    return line["precision"], line["layout"], window(line), line["part"]


def report(rows: list[Scored], by: str) -> Iterator[str]:
    groups: dict[tuple[str, ...], list[Scored]] = defaultdict(list)
    for one in rows:
        groups[key(one.line, by)].append(one)
    yield f"{'':<56}{'rows':>6}{'ratio':>7}{'mean':>7}{'median':>7}{'total':>7}"
    for words, found in [*sorted(groups.items()), *_sums(rows)]:
        ratios = [one.ratio for one in found]
        off = [abs(ratio - 1) for ratio in ratios]
        total = sum(one.said for one in found) / sum(one.measured for one in found)
        name = " ".join(f"{word:<12}" for word in words)
        yield (
            f"{name:<56}{len(found):>6}{statistics.median(ratios):>7.2f}{statistics.mean(off):>7.0%}"
            f"{statistics.median(off):>7.0%}{total:>7.2f}"
        )


def _sums(rows: list[Scored]) -> Iterator[tuple[tuple[str, ...], list[Scored]]]:
    for split in ("whole", "filter", "channel", "rows"):
        mine = [one for one in rows if (one.line["split"] if one.line["ranks"] > 1 else "whole") == split]
        if mine:
            yield ("all", split), mine
    yield ("all",), rows


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    half = ask.add_mutually_exclusive_group()
    half.add_argument("--seen", action="store_true", help="the half that forms were read off")
    half.add_argument("--aside", action="store_true", help="the half that was set aside; the default")
    ask.add_argument("--by", choices=("split", "kind", "layer"), default="split")
    asked = ask.parse_args()
    rows = list(scored(lambda line: line["set_aside"] is not asked.seen))
    print("\n".join(report(rows, asked.by)))


if __name__ == "__main__":
    main()
