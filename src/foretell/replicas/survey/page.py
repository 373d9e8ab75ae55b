"""The survey beside its prediction as a page: speed-ups, curves, causes, findings, and what was derived."""

from __future__ import annotations

import msgspec

from foretell.bench.findings import FINDINGS, HOLDS, check
from foretell.bench.page import bench_page, findings_sections
from foretell.replicas.survey import errors, figures, predicted, workload
from foretell.replicas.survey.errors import CurveError, SpeedupError
from foretell.replicas.survey.figures import FigurePoint
from foretell.report.page import Card, Page, Section


class BothWays(msgspec.Struct, frozen=True, kw_only=True):
    """A finding on one model and machine, as the survey's numbers and their prediction have it."""

    finding: str
    text: str
    where: str
    measured: str  # verdicts: holds, fails, or empty where the numbers cannot tell
    predicted: str
    evidence_measured: str
    evidence_predicted: str


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """All that `foretell bench --survey` says."""

    source: str
    sequence: int  # tokens; derived
    zero_stage: str  # derived
    full_precision: dict[str, str]  # by model, on ThetaGPU without mixed precision; derived
    speedups: tuple[SpeedupError, ...]
    curves: tuple[CurveError, ...]
    iterations: tuple[FigurePoint, ...]  # figure 5
    memory: tuple[FigurePoint, ...]  # figure 9
    findings: tuple[BothWays, ...]
    impossible: dict[str, str]  # rows of the survey that take less than its machine, as described, needs
    refused: dict[str, str]  # cases that cannot run, and why


SOURCE = "Nichols et al. 2021, arXiv 2111.04949, figures 4 to 9 (studies/survey)"


def survey() -> Survey:
    """The matrix predicted, set beside the survey's own numbers."""
    return Survey(
        source=SOURCE,
        sequence=workload.sequence(),
        zero_stage=workload.zero_stage(),
        full_precision={
            model: workload.full_precision("thetagpu", model) for model in (workload.IMAGES, workload.TEXT)
        },
        speedups=errors.speedups(),
        curves=errors.curves(),
        iterations=figures.iterations(),
        memory=figures.memory(),
        findings=_findings(),
        impossible=errors.impossible_rows(),
        refused={f"{row.engine}, {row.pair}, {row.ranks} GPUs": row.reason for row in predicted.rows() if not row.ok},
    )


def _findings() -> tuple[BothWays, ...]:
    theirs = {(one.finding.name, one.group.name): one for one in check(predicted.measured())}
    ours = {(one.finding.name, one.group.name): one for one in check(predicted.rows())}
    found: list[BothWays] = []
    order = [finding.name for finding in FINDINGS]
    for key, one in sorted({**theirs, **ours}.items(), key=lambda pair: order.index(pair[0][0])):
        measured, own = theirs.get(key), ours.get(key)
        found.append(
            BothWays(
                finding=one.finding.name,
                text=one.finding.text,
                where=one.group.name,
                measured=measured.verdict.status if measured else "",
                predicted=own.verdict.status if own else "",
                evidence_measured=measured.verdict.evidence if measured else "",
                evidence_predicted=own.verdict.evidence if own else "",
            )
        )
    return tuple(found)


def survey_page(found: Survey, command: str = "") -> Page:
    """The page: the survey's figures with predictions dashed, and how far they are from one another."""
    drawn = bench_page(
        predicted.measured(), "The survey of frameworks, and what the oracle says of it", command, predicted.rows()
    )
    within = [one for one in found.speedups if one.aimed]
    cards = (
        Card(
            "speed-ups within a tenth", f"{sum(one.within for one in within)} of {len(within)}", "data and intra-layer"
        ),
        Card("findings that hold", f"{sum(one.predicted == HOLDS for one in found.findings)}", "in the prediction"),
        Card("sequence", f"{found.sequence} tokens", "derived from figures 5 and 7"),
        Card("ZeRO", f"stage {found.zero_stage[-1]}", "derived from figure 9"),
    )
    charts = tuple(one for one in drawn.sections if one.charts)
    return Page(
        title=drawn.title,
        plan="",
        cards=cards,
        sections=(
            _speedups(found),
            _curves(found),
            *charts,
            *findings_sections(check(predicted.measured()), "The findings in the survey's own numbers"),
            *findings_sections(check(predicted.rows()), "The findings in the prediction"),
            _impossible(found),
        ),
        papers=drawn.papers,
        command=command,
    )


def _speedups(found: Survey) -> Section:
    rows = tuple(
        (
            one.framework,
            one.model,
            f"{one.measured:.2f}",
            f"{one.predicted:.2f}",
            f"{one.error:+.1%}",
            ", ".join(f"{name} x{times:.2f}" for name, times in one.causes.items()) or "-",
        )
        for one in found.speedups
    )
    columns = ("framework", "model", "survey", "predicted", "error", "a step takes so many times as long because of")
    return Section("Speed-ups on four GPUs of Lassen", "The survey prints these: they are exact.", (), columns, rows)


def _curves(found: Survey) -> Section:
    rows = tuple(
        (one.framework, one.model, one.machine, f"{one.gpus[0]} to {one.gpus[-1]}", *_errors(one))
        for one in found.curves
    )
    told = "Mean absolute error of the seconds of an epoch, the error in the middle, and the error of the speed-ups."
    return Section("Curves", told, (), ("framework", "model", "machine", "GPUs", "mean", "median", "speed-ups"), rows)


def _errors(one: CurveError) -> tuple[str, str, str]:
    return f"{one.mean:.0%}", f"{one.median:+.0%}", f"{one.shape:.0%}"


def _impossible(found: Survey) -> Section:
    told = "By peaks and links of the machine as described, and if an epoch has the work that the survey says."
    rows = tuple(found.impossible.items())
    return Section("Rows that take less than the machine needs", told, (), ("row", "why"), rows)
