"""What `foretell bench` prints: a table for each pair, whether engines learn the same, and why some did not run."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from statistics import fmean, median

from foretell.bench import engine, environments
from foretell.bench.group import REFERENCE
from foretell.bench.reading import FIRST, ReadingLine, lines, noise
from foretell.bench.row import BenchRow, PredictedRow, advice
from foretell.bench.study import BenchStudy
from foretell.cli.table import WIDTH, table
from foretell.units import show_bytes, show_seconds

HEADER = ["engine", "ranks", "epoch", "x", "talk", "memory", "right", "target", "off"]

LEGEND = """\
epoch: seconds in which all samples are seen once, the median over seeds. x: speed-up over one rank (the engine's own,
or that of ddp, or the fastest there).
talk: share of a step in which a rank stands still for others. right: answers on held-out data after
the last step, worst and best seed; of text also perplexity (ppl). target: seconds of training until so many answers
were right, if all seeds got there. off: predicted step less measured, as a share."""


def page(study: BenchStudy) -> str:
    """All of a study."""
    found = lines(study.rows)
    about = study.about
    parts = [f"{about.machine}, {about.cores} cores{f', {about.hosts} hosts' if about.hosts > 1 else ''}"]
    for _, own in itertools.groupby(found, key=lambda line: (line.pair, line.conditions)):
        parts.append(_of_pair(list(own), study.rows))
    if found:
        parts.append("\n".join(textwrap.wrap(" ".join([*LEGEND.split(), *_doubts(study, found)]), WIDTH)))
    if study.unread:
        parts.append("\n".join(["left out, and measured again by the same command:", *study.unread]))
    holes = _reasons(row for row in study.rows if not row.ok)
    return "\n\n".join([*parts, *([holes] if holes else [])])


BUSY = 0.3
"""Cores that others use from which times are no measure."""


def _doubts(study: BenchStudy, found: Sequence[ReadingLine]) -> list[str]:
    """What makes the figures less than they seem: noise, others used it, it was never calibrated, seeds are few."""
    told: list[str] = []
    ran = study.ok()
    if differ := noise(ran):
        told.append(differ.told)
    told += _accuracy([row.predicted for row in ran if row.predicted is not None])
    busy = [row.busy for row in ran if row.busy is not None and row.busy > BUSY]
    if busy:
        told.append(
            f"The machine was busy: just before {len(busy)} of {len(ran)} rows others used up to {max(busy):.1f} of "
            f"its {study.about.cores} cores, so their times are no measure."
        )
    alone = sorted({line.engine.replace("_", "-") for line in found if line.metric and line.seeds == 1})
    if alone and any(line.seeds > 1 for line in found):
        told.append(f"What was learnt is of one seed for {', '.join(alone)}.")
    if any(row.predicted is not None and row.predicted.calibrated is False for row in ran):
        told.append("`off` is that of a machine that was not calibrated: see `foretell calibrate`.")
    reasons = dict.fromkeys(row.unpredicted for row in ran if row.unpredicted)
    told += [f"`off` is empty where nothing could be predicted: {why}." for why in reasons]
    return told


def _accuracy(said: Sequence[PredictedRow]) -> list[str]:
    """What predictions were worth in all."""
    if not said:
        return []
    steps, memory = [one.error for one in said], [one.memory_error for one in said if one.memory_error is not None]
    off = f"{fmean(map(abs, steps)):.0%} off in the mean, {median(steps):+.0%} in the middle"
    held = f", and memory {fmean(map(abs, memory)):.0%}" if memory else ""
    return [f"Over {len(said)} rows predicted steps are {off}{held}."]


def _of_pair(own: Sequence[ReadingLine], rows: Sequence[BenchRow]) -> str:
    alike = (own[0].pair, own[0].conditions)
    one = next(row for row in rows if (row.pair, row.conditions) == alike and row.ok)
    head = f"{one.pair}: {one.task}, {one.batch_rule} batch rule, {one.optimizer}, {_seeds(own)}"
    if one.conditions:
        head = "\n".join(textwrap.wrap(f"{head}; {one.conditions}", WIDTH))
    return f"{head}\n{table(HEADER, [_cells(line) for line in own])}\n{_agreement(own)}"


def _seeds(own: Sequence[ReadingLine]) -> str:
    most = max(line.seeds for line in own)
    return f"{most} seed{'s' if most > 1 else ''}"


def _cells(line: ReadingLine) -> list[str]:
    right = "" if line.metric is None else "..".join(dict.fromkeys(f"{share:.0%}" for share in line.metric))
    right += "" if line.perplexity is None else f" ppl {line.perplexity:.3g}"
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


def _agreement(own: Sequence[ReadingLine]) -> str:
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


def _reasons(rows: Iterable[BenchRow]) -> str:
    """Rows without figures, those with the same reason together."""
    groups: dict[tuple[str, str, str, str], list[BenchRow]] = {}
    for row in rows:
        groups.setdefault((row.engine, row.status, row.reason.partition("\n")[0], advice(row.fix)), []).append(row)
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
