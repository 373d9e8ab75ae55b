"""The sanity table: well-known runs beside their predictions; each that is off is explained, nothing is learnt."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from foretell.cli.side_by_side_pages import page
from foretell.oracle.predict import predict
from foretell.validation import published
from foretell.validation.evaluate import compare
from foretell.validation.side_by_side import SideBySide, side_by_side
from foretell.validation.study import read


@pytest.fixture(scope="module")
def runs() -> list[SideBySide]:
    return [side_by_side(one) for one in compare(read(published.SANITY).rows, predict)]


def test_every_line_is_a_run() -> None:
    study = read(published.SANITY)
    assert study.family == "sanity" and study.not_scored == () and len(study.rows) >= 20


def test_nothing_is_learnt_from_it() -> None:
    assert published.SANITY not in [*published.files(), *published.own_files()]
    assert published.files("sanity") == [published.SANITY]


def test_every_run_that_is_off_is_explained(runs: list[SideBySide]) -> None:
    assert [one.case for one in runs if one.off and not one.note] == []
    assert "not explained" not in page(runs)


def test_the_page_has_a_paragraph_for_each_that_is_off(runs: list[SideBySide]) -> None:
    printed = page(runs)
    for one in runs:
        assert (f"\n{one.case}: " in printed) == one.off, one.case


def test_every_figure_says_how_it_is_known() -> None:
    with published.SANITY.open(newline="") as file:
        for line in csv.DictReader(file):
            assert line["known"] in ("read", "summary", "recalled") and line["source"], line["case"]
            assert "http" not in line["source"]


def test_what_was_seen_is_in_a_published_study(runs: list[SideBySide]) -> None:
    """Runs that are scored elsewhere too are said to be; those with assumptions came after all constants stood."""
    scored = [row for row in read(published.files("llm_measured")[0]).rows if row.step_seconds and not row.assumed]
    for one in runs:
        alike = [row for row in scored if (str(row.plan), row.cluster) == (one.plan, one.cluster)]
        seconds = _seconds(one)
        assert one.seen == any(abs(row.step_seconds / seconds - 1) < 1e-3 for row in alike), one.case


def _seconds(one: SideBySide) -> float:
    run = next(row for row in read(published.SANITY).rows if row.id == one.case)
    return run.step_seconds


def test_the_unit_is_that_of_the_source(runs: list[SideBySide]) -> None:
    """A rate and a time say the same: 8 x 8192 tokens on 8 ranks in a second are 8,192 tokens/s/GPU."""
    for one in runs:
        assert one.predicted is not None and one.low is not None and one.high is not None
        assert one.low <= one.predicted <= one.high
        assert one.inside == (one.low <= one.published <= one.high)
    titan = next(row for row in read(published.SANITY).rows if row.id == "titan 8B fp8, 32k")
    assert titan.step_seconds == pytest.approx(8 * 32768 / (3890 * 8))


def test_the_command_answers_for_every_run(foretell: Any, runs: list[SideBySide]) -> None:
    answer = json.loads(foretell("validate", "--study", "sanity", "--table", "--json").out)["runs"]
    assert [(one["case"], one["predicted"]) for one in answer] == [(one.case, one.predicted) for one in runs]
    printed = foretell("validate", "--study", "sanity", "--table").out
    assert all(f"\n{one.case} " in f"\n{printed}" for one in runs)
