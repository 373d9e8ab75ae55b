"""The survey beside its prediction, for people."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import click
import msgspec

from foretell.bench.findings import FAILS, HOLDS, UNKNOWN
from foretell.cli.bench_report import ReportFiles, written
from foretell.cli.table import folded_lines, table
from foretell.replicas.survey.figures import FigurePoint
from foretell.replicas.survey.page import BothWays, Survey, survey, survey_page
from foretell.replicas.survey.workload import plain_rates, sequence_evidence, shared_bytes

SHORT = {"": "-", HOLDS: "holds", FAILS: "fails", UNKNOWN: "-"}


def tell_survey(as_json: bool, files: ReportFiles) -> None:
    """The survey of frameworks beside its prediction."""
    found = survey()
    names = (
        written(survey_page(found, shlex.join(["foretell", *sys.argv[1:]])), files) if files != ReportFiles() else []
    )
    if as_json:
        click.echo(msgspec.json.encode({**msgspec.to_builtins(found), "files": names}))
    else:
        click.echo("\n".join(["\n\n".join(_parts(found)), *(f"\n{name}" for name in names)]))


def _parts(found: Survey) -> Iterator[str]:
    yield "\n".join(
        (
            f"source   {found.source}",
            f"derived  sequences of {found.sequence} tokens: {_between(sequence_evidence())} 5, 7",
            f"         ZeRO-{found.zero_stage[-1]}: {shared_bytes():.1f} bytes of a parameter are shared in figure 9",
            *(
                f"         {model} without mixed precision in {form} on an A100: {_needs(model)}"
                for model, form in found.full_precision.items()
            ),
        )
    )
    yield _speedups(found)
    yield _curves(found)
    yield _iterations(found)
    yield _memory(found)
    yield _findings(found.findings)
    if found.impossible:
        yield "\n".join(["rows that take less than the machine, as described, needs", *_impossible(found)])


def _between(values: Sequence[float]) -> str:
    return f"{median(values):.0f} in the middle of {len(values)} rows of figures"


def _speedups(found: Survey) -> str:
    rows = [
        (
            one.framework,
            one.model,
            f"{one.measured:.2f}",
            f"{one.predicted:.2f}",
            f"{one.error:+.0%}",
            ("yes" if one.within else "no") if one.aimed else "-",
        )
        for one in found.speedups
    ]
    said = "speed-up of 4 GPUs of Lassen"
    return table((said, "model", "survey", "predicted", "error", "within 10 %"), rows, left=(0, 1)) + "".join(
        f"\n{line}" for line in _causes(found)
    )


def _causes(found: Survey) -> Iterator[str]:
    """What holds back those that are to be explained, or that were missed."""
    for one in found.speedups:
        if one.within and one.aimed:
            continue
        told = ", ".join(f"{name} x{times:.2f}" for name, times in one.causes.items())
        alone = ", ".join(f"{name} x{times:.2f}" for name, times in one.causes_alone.items())
        yield folded_lines(f"  why {one.framework}, {one.model}: {told}{f'; on one GPU {alone}' if alone else ''}")
        if one.impossible:
            yield folded_lines(f"  why {one.framework}, {one.model}: the survey's row {one.impossible}")


def _curves(found: Survey) -> str:
    rows = [
        (
            one.framework,
            one.model,
            one.machine,
            f"{one.gpus[0]}..{one.gpus[-1]}",
            f"{one.mean:.0%}",
            f"{one.median:+.0%}",
            f"{one.shape:.0%}",
        )
        for one in found.curves
    ]
    return table(
        ("seconds of an epoch", "model", "machine", "GPUs", "mean", "median", "speed-ups"), rows, left=(0, 1, 2)
    )


def _needs(model: str) -> str:
    return ", ".join(f"{rate / 1e12:.0f}" for rate in plain_rates("thetagpu", model)) + " Tflop/s"


def _iterations(found: Survey) -> str:
    """A line a framework and part: what the survey has, what is predicted, and the error."""
    cells = {
        (one.framework, one.what, one.gpus): f"{one.measured * 1e3:.0f} {one.predicted * 1e3:.0f} {one.error:+.0%}"
        for one in found.iterations
    }
    counts = sorted({gpus for *_, gpus in cells})
    lines = dict.fromkeys((framework, what) for framework, what, _ in cells)
    rows = [(*line, *(cells.get((*line, gpus), "") for gpus in counts)) for line in sorted(lines)]
    return table(("figure 5, ms", "", *(f"{gpus} GPU{'s' * (gpus > 1)}" for gpus in counts)), rows, left=(0, 1))


def _memory(found: Survey) -> str:
    """Three lines a framework: what the survey has, what is predicted, and the error."""
    points = {(one.framework, one.gpus): one for one in found.memory}
    counts = sorted({gpus for _, gpus in points})
    said: dict[str, Callable[[FigurePoint], str]] = {
        "survey": lambda one: f"{one.measured / 1e9:.1f}",
        "predicted": lambda one: f"{one.predicted / 1e9:.1f}",
        "error": lambda one: f"{one.error:+.0%}",
    }
    rows = [
        (framework, word, *(say(points[framework, gpus]) if (framework, gpus) in points else "" for gpus in counts))
        for framework in dict.fromkeys(framework for framework, _ in points)
        for word, say in said.items()
    ]
    return table(("figure 9, GB", "", *map(str, counts)), rows, left=(0, 1))


def _findings(found: tuple[BothWays, ...]) -> str:
    rows = [(one.finding, one.where, SHORT[one.measured], SHORT[one.predicted]) for one in found]
    failed = [one for one in found if FAILS in (one.measured, one.predicted)]
    lines = [table(("finding", "where", "survey", "predicted"), rows, left=(0, 1, 2, 3))]
    for one in failed:
        if one.measured == FAILS:
            lines.append(folded_lines(f"  why {one.finding}, {one.where}, in the survey: {one.evidence_measured}"))
        if one.predicted == FAILS:
            lines.append(folded_lines(f"  why {one.finding}, {one.where}, predicted: {one.evidence_predicted}"))
    return "\n".join(lines)


def _impossible(found: Survey) -> Iterator[str]:
    for name, why in found.impossible.items():
        yield folded_lines(f"  why {name}: {why}")
