"""What `foretell validate --table` prints: each run, published and predicted, and why those that are off are."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from foretell.cli.table import folded, table
from foretell.validation.evaluate import ComparedRun
from foretell.validation.side_by_side import SideBySide, side_by_side


def answer(compared: Iterable[ComparedRun], as_json: bool) -> str:
    runs = [side_by_side(one) for one in compared]
    return msgspec.json.encode({"runs": runs}).decode() if as_json else page(runs)


def page(runs: list[SideBySide]) -> str:
    """A table for each unit, a line that counts, and a paragraph for each run that is off."""
    units = dict.fromkeys(one.unit for one in runs)
    tables = [_table(unit, [one for one in runs if one.unit == unit]) for unit in units]
    before = any(one.memory_before for one in runs)
    tables += _memory([one for one in runs if before or one.memory_published], before)
    off = [one for one in runs if one.off]
    notes = ["\n".join(folded(f"{one.case}: {_why(one)}") for one in off)] if off else []
    return "\n\n".join([*tables, folded(_count(runs)), *notes])


def _table(unit: str, runs: list[SideBySide]) -> str:
    header = [unit, "published", "predicted", "interval", "error", "inside", "fits"]
    return table(header, [_line(one) for one in runs])


def _line(one: SideBySide) -> list[str]:
    published = figure(one.published) if one.published else "-"
    if one.predicted is None or one.low is None or one.high is None:
        return [one.case, published, "-", "-", "-", "-", "no"]
    return [
        one.case,
        published,
        figure(one.predicted),
        f"{figure(one.low)}-{figure(one.high)}",
        "-" if one.error is None else f"{100 * one.error:+.0f}%",
        "-" if one.inside is None else _yes(one.inside),
        _yes(one.fits),
    ]


def _memory(runs: list[SideBySide], before: bool) -> list[str]:
    """What was printed, what was foretold once, and what is: of the number that was printed, else of the device."""
    header = ["memory, GiB", "again", "printed", *["before"] * before, "now", "error", "usable", "verdict"]
    rows = [
        [
            one.case,
            one.again,
            _gib(one.memory_published),
            *[_gib(one.memory_before)] * before,
            _gib(one.memory_like or one.memory_bytes or 0.0),
            f"{100 * (one.memory_like / one.memory_published - 1):+.0f}%" if one.memory_like else "-",
            _gib(one.usable or 0.0),
            one.verdict or "refused",
        ]
        for one in runs
    ]
    return [table(header, rows)] if rows else []


def _gib(size: float) -> str:
    return figure(size / 2**30) if size else "-"


def _count(runs: list[SideBySide]) -> str:
    timed = [one for one in runs if one.inside is not None]
    ran = [one for one in runs if one.ran]
    inside, fitting = sum(bool(one.inside) for one in timed), sum(one.fits for one in ran)
    fit = f"{fitting} of {len(ran)} that ran are predicted to fit"
    return f"{inside} of {len(timed)} are inside their 90 % interval; {fit}"


def _why(one: SideBySide) -> str:
    refused = f"refused ({one.refused}). " if one.refused else ""
    return f"{refused}{one.note or 'not explained'}"


def figure(value: float) -> str:
    """Three digits that count or more; tens of thousands in short."""
    return f"{value / 1e3:.3g}k" if value >= 10_000 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"
