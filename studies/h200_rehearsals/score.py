"""Predicted against rehearsed, the two halves apart: python studies/h200_rehearsals/score.py [--calibration FILE]

The step of a case whose messages took no time is predicted with messages that take none. `--rows` shows every case.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import msgspec  # noqa: E402
from cases import Case  # noqa: E402

from foretell.cost.allocator import reserved_bytes  # noqa: E402
from foretell.hardware import catalog  # noqa: E402
from foretell.oracle.calibrations import with_calibration  # noqa: E402
from foretell.oracle.predict import Prediction, predict  # noqa: E402
from foretell.plan.wrapped import in_plain_shares  # noqa: E402
from foretell.program.lower import lower  # noqa: E402
from foretell.report.charts import agreement  # noqa: E402
from foretell.report.charts.agreement import Met  # noqa: E402
from foretell.report.files import save_drawing  # noqa: E402
from foretell.report.svg import Chart  # noqa: E402
from foretell.runtime.recording import standing_in  # noqa: E402
from foretell.units import show_bytes, show_seconds  # noqa: E402

FIGURES = ("step", "allocated", "reserved")


class Scored(NamedTuple):
    """A case with its errors: predicted over rehearsed, less one."""

    case: Case
    aside: bool
    errors: tuple[float, ...]
    measured: tuple[float, ...]


def rows(file: Path = HERE / "rehearsals.jsonl") -> Iterator[tuple[Case, dict[str, Any]]]:
    """What ran to its end."""
    for line in file.read_text().splitlines():
        row = json.loads(line)
        if "steps" in row:
            said = {key: value for key, value in row["case"].items() if key != "name"}
            yield Case(**said), row


def predicted(case: Case, calibration: str = "") -> Prediction:
    cluster, setting = catalog.cluster(case.cluster), case.setting()
    if case.maker == "zoo":  # the project's own appliers split layers without DTensors
        trainer = msgspec.structs.replace(setting.trainer, wrapped=in_plain_shares(setting.trainer.wrapped))
        setting = msgspec.structs.replace(setting, trainer=trainer)
    known = with_calibration(setting, standing_in(cluster, cluster.device, silent=not case.priced), calibration)
    return predict(known.setting, known.cluster)


def scored(calibration: str) -> Iterator[Scored]:
    for case, row in rows():
        found = predicted(case, calibration)
        memory = row["memory"]
        measured = (statistics.median(row["steps"]), memory["allocated_bytes"], memory["reserved_bytes"])
        stages = len(found.memory.by_stage)
        place = case.rank // (case.setting().plan.ranks // stages) if stages > 1 else 0
        here = _allocated(found, place)
        said = (found.step_seconds, here, reserved_bytes(lower(case.setting()), place, here))
        errors = tuple(one / other - 1 for one, other in zip(said, measured, strict=True))
        yield Scored(case, row["aside"], errors, measured)


def _allocated(found: Prediction, place: int) -> float:
    """Bytes in tensors of a stage; a prediction says those of the fullest, and of all what the device reports."""
    memory = found.memory
    context = sum(memory.by_kind.get(name, 0.0) for name in ("context", "communicators"))
    return (memory.by_stage[place] - context) * memory.allocated / (memory.device - context)


def what(case: Case) -> Iterator[str]:
    """The groups that a case is in."""
    plan = case.plan
    yield f"of {case.maker}"
    yield "messages " + ("priced" if case.priced else "none")
    yield "recompute " + next((word for word in ("block", "operators") if f"recompute:{word}" in plan), "none")
    for word in ("zero3", "zero2", "shard", "zero1", " tp", ":sp", "cp", "pp", "ep8", "compiled"):
        if word in plan:
            yield f"plan {word.strip(' :')}"
    if case.expandable:
        yield "expandable segments"


def table(found: list[Scored], name: str, belongs: Callable[[Case], bool]) -> None:
    cells: list[str] = []
    for aside in (False, True):
        own = [one for one in found if one.aside is aside and belongs(one.case)]
        cells.append(f"{len(own):4}")
        for at in range(len(FIGURES)):
            sizes = sorted(abs(one.errors[at]) for one in own)
            if not sizes:
                cells.append("      -      ")
                continue
            bias = statistics.median(one.errors[at] for one in own)
            last = sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
            cells.append(f"{statistics.median(sizes):5.1%} {last:4.0%}{bias:+5.0%}")
    print(f"{name:22} {' '.join(cells)}")


SIZES = (16, 24, 32, 40, 48, 80, 96, 141)
"""GB of devices that people have: whether a rank fits is asked of each."""


def fitting(found: list[Scored]) -> None:
    """Of ranks and device sizes, how often it was right whether what is reserved fits, beside nothing else."""
    print("\nfits or not, of ranks and devices of " + ", ".join(map(str, SIZES)) + " GB")
    for aside in (False, True):
        right: list[bool] = []
        for one in (one for one in found if one.aside is aside):
            reserved, said = one.measured[2], one.measured[2] * (1 + one.errors[2])
            right += [(reserved <= size * 1e9) == (said <= size * 1e9) for size in SIZES]
        half = "the half set aside" if aside else "the half in view"
        print(f"{half:22} {sum(right):4} of {len(right)} right, {sum(right) / len(right):.1%}")


def drawn(found: list[Scored], file: Path) -> None:
    """Steps and reserved bytes of both halves, each in a colour of its own, as one picture."""
    charts: list[Chart] = []
    for at, (what, show) in {0: ("a step", show_seconds), 2: ("reserved memory", show_bytes)}.items():
        met = [
            Met(one.case.name, "set aside" if one.aside else "in view", own, own * (1 + one.errors[at]))
            for one in sorted(found, key=lambda one: one.aside)
            for own in (one.measured[at],)
        ]
        charts.append(agreement.draw(met, what, show, FIGURES[at]))
        print(f"{what}: {charts[-1].told}")
        for group in ("in view", "set aside"):
            errors = [abs(one.error) for one in met if one.group == group]
            print(f"  {group:9} {len(errors)} runs, median error {statistics.median(errors):.1%}")
    save_drawing(charts, file, "--picture", paper=True)
    print(f"picture       {file}")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--calibration", default="none")
    asked.add_argument("--rows", action="store_true", help="every case of the half that constants may be chosen on")
    asked.add_argument("--picture", type=Path, metavar="FILE", help="draw both halves instead (.svg, .png)")
    options = asked.parse_args()
    found = list(scored(options.calibration))
    if options.picture:
        drawn(found, options.picture)
        return
    if options.rows:
        for one in sorted((one for one in found if not one.aside), key=lambda one: one.case.name):
            told = " ".join(f"{error:+7.1%}" for error in one.errors)
            step, *memory = one.measured
            sizes = " ".join(f"{size / 2**30:6.1f}" for size in memory)
            print(f"{told}  {step * 1e3:7.1f} ms {sizes} GiB  {one.case.name}")
    print(f"{'':22} the half in view: step, allocated, reserved    |  the half set aside")
    print(f"{'':22} median, p90 of absolute errors, median error    (predicted over rehearsed)")
    table(found, "all", lambda case: True)
    for name in sorted({group for one in found for group in what(one.case)}):
        table(found, name, lambda case, name=name: name in what(case))
    fitting(found)


if __name__ == "__main__":
    main()
