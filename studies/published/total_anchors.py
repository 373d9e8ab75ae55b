"""How a measured step that tells no parts should correct other steps: published sweeps, each run in turn the anchor.

For each model, trainer and kind of cluster of a study, every run (at most 25, evenly taken) corrects all others, in
three ways: all parts alike; all but the messages; and as far as runs share effects, as `--anchor` does. Printed is the
mean absolute error of the others, the middle over anchors, the mean over groups.
`python studies/published/total_anchors.py`
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable

from foretell.cli.verbs.validate import evenly
from foretell.oracle.anchored import anchored
from foretell.oracle.anchors import Anchor
from foretell.oracle.predict import Prediction, predict
from foretell.validation.evaluate import compare
from foretell.validation.published import files
from foretell.validation.step_parts import parts_of
from foretell.validation.study import read

STUDIES = {"paradl": 115, "vtrain_multi": 44, "vtrain_single": 120, "ultrascale_h100": 250, "llm_measured": 250}
ANCHORS = 25

Run = tuple[Prediction, float]


def alike(known: Run, other: Prediction) -> float:
    return other.step_seconds * known[1] / known[0].step_seconds


def computing(known: Run, other: Prediction) -> float:
    said, own = parts_of(known[0]), parts_of(other)
    ratio = (known[1] - said.messages) / said.compute
    return own.compute * ratio + own.messages if ratio > 0 else alike(known, other)


def by_effects(known: Run, other: Prediction) -> float:
    anchor = Anchor(form="study", asked={"plan": known[0].plan}, step_seconds=known[1])
    return anchored(other, [anchor], (), lambda _: known[0]).step_seconds


def error(group: list[Run], way: Callable[[Run, Prediction], float]) -> float:
    count = min(ANCHORS, len(group))
    tried = [group[at * len(group) // count] for at in range(count)]
    return statistics.median(
        statistics.fmean(abs(way(known, other[0]) / other[1] - 1) for other in group if other is not known)
        for known in tried
    )


def main() -> None:
    print(f"{'error of other runs, %':24}{'groups':>8}{'none':>8}{'alike':>8}{'computing':>11}{'effects':>10}")
    for name, most in STUDIES.items():
        groups: dict[tuple[str, ...], list[Run]] = defaultdict(list)
        for one in compare(evenly(read(files(name)[0]).rows, most), predict):
            if isinstance(one.prediction, Prediction) and one.row.step_seconds:
                cluster = one.row.cluster.partition(":")[0].rpartition("x")[2]
                groups[one.row.model, one.row.trainer, cluster].append((one.prediction, one.row.step_seconds))
        some = [group for group in groups.values() if len(group) > 1]
        ways = (lambda _, other: other.step_seconds, alike, computing, by_effects)
        found = [100 * statistics.fmean(error(group, way) for group in some) for way in ways]
        print(f"{name:24}{len(some):8}{found[0]:8.1f}{found[1]:8.1f}{found[2]:11.1f}{found[3]:10.1f}")


if __name__ == "__main__":
    main()
