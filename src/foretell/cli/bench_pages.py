"""What `foretell bench` prints: a table for each pair, whether engines learn the same, and why some did not run."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence

from foretell.bench import engine, environments
from foretell.bench.reading import FIRST, REFERENCE, Line, lines
from foretell.bench.row import Row
from foretell.bench.study import Study
from foretell.cli.table import WIDTH, table
from foretell.units import show_bytes, show_seconds

HEADER = ["engine", "ranks", "epoch", "x", "talk", "memory", "right", "target", "off"]

LEGEND = """\
epoch: seconds in which all samples are seen once, the median over seeds. x: speed-up over one rank (the engine's own,
or that of ddp, or the fastest there).
talk: share of a step in which a rank stands still for others. right: answers on held-out data after
the last step, worst and best seed. target: seconds of training until so many answers were right, if all seeds got
there. off: predicted step less measured, as a share."""


def page(study: Study) -> str:
    """All of a study."""
    found = lines(study.rows)
    parts = [f"{study.about.machine}, {study.about.cores} cores"]
    for _, own in itertools.groupby(found, key=lambda line: (line.pair, line.conditions)):
        parts.append(_of_pair(list(own), study.rows))
    if found:
        parts.append("\n".join(textwrap.wrap(" ".join([*LEGEND.split(), *_doubts(study)]), WIDTH)))
    if study.unread:
        parts.append("\n".join(["left out, and measured again by the same command:", *study.unread]))
    holes = _reasons(row for row in study.rows if not row.ok)
    return "\n\n".join([*parts, *([holes] if holes else [])])


def _doubts(study: Study) -> list[str]:
    """What makes the figures less than they seem: others used the machine, or it was never calibrated."""
    told: list[str] = []
    ran = study.ok()
    busy = [row.load for row in ran if row.load > study.about.cores]
    if busy:
        told.append(
            f"The machine was busy: before {len(busy)} of {len(ran)} rows its load was above its "
            f"{study.about.cores} cores (up to {max(busy):.1f}), so their times are no measure."
        )
    if any(row.predicted is not None and row.predicted.calibrated is False for row in ran):
        told.append("`off` is that of a machine that was not calibrated: see `foretell calibrate`.")
    return told


def _of_pair(own: Sequence[Line], rows: Sequence[Row]) -> str:
    alike = (own[0].pair, own[0].conditions)
    one = next(row for row in rows if (row.pair, row.conditions) == alike and row.ok)
    head = f"{one.pair}: {one.task}, {one.batch_rule} batch rule, {one.optimizer}, {_seeds(own)}"
    if one.conditions:
        head = "\n".join(textwrap.wrap(f"{head}; {one.conditions}", WIDTH))
    return f"{head}\n{table(HEADER, [_cells(line) for line in own])}\n{_agreement(own)}"


def _seeds(own: Sequence[Line]) -> str:
    most = max(line.seeds for line in own)
    return f"{most} seed{'s' if most > 1 else ''}"


def _cells(line: Line) -> list[str]:
    right = "" if line.metric is None else "..".join(dict.fromkeys(f"{share:.0%}" for share in line.metric))
    return [
        line.engine.replace("_", "-"),
        str(line.ranks),
        show_seconds(line.epoch_seconds),
        "" if line.speed_up is None else f"{line.speed_up:.2f}",
        f"{line.communication_share:.0%}",
        show_bytes(line.memory_bytes),
        right,
        "" if line.target_seconds is None else show_seconds(line.target_seconds),
        "" if line.error is None else f"{line.error:+.0%}",
    ]


def _agreement(own: Sequence[Line]) -> str:
    """How far the first losses of synchronous engines lie apart."""
    compared = [line for line in own if line.disagreement is not None and line.engine != REFERENCE]
    if not compared:
        return ""
    worst = max(compared, key=lambda line: line.disagreement or 0.0)
    who = worst.engine.replace("_", "-")
    count = len({line.engine for line in compared})
    return "\n".join(
        textwrap.wrap(
            f"The first {FIRST} losses of {count} other engine{'s' if count > 1 else ''} are those of {REFERENCE} "
            f"within {worst.disagreement:.1e} of them ({who}).",
            WIDTH,
        )
    )


def _reasons(rows: Iterable[Row]) -> str:
    """Rows without figures, those with the same reason together."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.engine, row.status, row.reason.splitlines()[0], row.fix), []).append(row)
    texts: list[str] = []
    for (name, status, reason, fix), own in groups.items():
        where = ", ".join(dict.fromkeys(row.pair for row in own))
        texts += textwrap.wrap(f"{name.replace('_', '-')} ({where}): {status}: {reason}", WIDTH, subsequent_indent="  ")
        texts += textwrap.wrap(f"try {fix}", WIDTH, initial_indent="  ", subsequent_indent="      ") if fix else []
    return "\n".join(["without figures:", *texts]) if texts else ""


def listing() -> list[dict[str, str]]:
    """Every engine, and the version that is installed: torch's, of those that are torch's or ours; none, if absent."""
    found: list[dict[str, str]] = []
    for name in engine.names():
        one = engine.engine(name)
        home = environments.found(one)
        installed = home.version if home is not None else ""
        found.append({"engine": name.replace("_", "-"), "title": one.title, "plan": one.plan, "installed": installed})
    return found
