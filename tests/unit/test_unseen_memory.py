"""The score of memory: every source with the same weight, with its constants and without them."""

from __future__ import annotations

import math

import pytest

from foretell.cli.unseen_pages import memory_lines
from foretell.oracle.bands import ALWAYS
from foretell.oracle.memory_band import LIBRARIES, SOFTWARE
from foretell.validation import published
from foretell.validation.evaluate import compare
from foretell.validation.left_out import predictor_without
from foretell.validation.sides import predicted
from foretell.validation.study import read
from foretell.validation.unseen_memory import UnseenPeak, memory_scores, unseen_peaks

PEAKS = [
    *(UnseenPeak("a", "one", "pytorch", 0.1, error, (ALWAYS,)) for error in (-0.2, 0.1, 0.3)),
    UnseenPeak("a", "two", "fsdp", 0.0, -0.4, (ALWAYS,)),
]


def test_every_source_has_the_same_weight() -> None:
    found = memory_scores(PEAKS)
    assert found.all is not None and (found.all.sources, found.all.numbers) == (2, 4)
    assert found.all.unseen == pytest.approx((0.2 + 0.4) / 2)
    assert found.all.median == pytest.approx((0.2 + 0.4) / 2)
    assert found.all.bias == pytest.approx((0.1 - 0.4) / 2)
    assert found.all.seen == pytest.approx((0.1 + 0.0) / 2)
    assert found.all.inside == pytest.approx((1 / 3 + 0) / 2)  # of four numbers only 0.1 lies within 17.6 %
    assert found.widths is None  # two sources: what ships
    assert [one.name for one in found.trainers] == ["fsdp", "pytorch"]
    text = "\n".join(memory_lines(found, more=True))
    assert "by trainer" in text and "by source" in text and "30.0" in text
    assert not memory_lines(memory_scores([]), more=True)


def test_the_interval_is_tried_on_sources_that_did_not_teach_it() -> None:
    """Twenty sources alike, and one that is far off: without it the widths are those of the others."""
    logs = [at / 100 for at in range(-20, 21)]
    alike = [UnseenPeak("a", f"{at}", "pytorch", 0.0, math.expm1(log), (ALWAYS,)) for at in range(20) for log in logs]
    found = memory_scores([*alike, UnseenPeak("a", "far", "pytorch", 0.0, -0.6, (ALWAYS,))])
    inside = {one.name: one.inside for one in found.sources}
    assert inside.pop("far") == 0.0 and all(0.85 <= share <= 1.0 for share in inside.values())
    assert found.widths is not None and found.widths[ALWAYS] == pytest.approx(0.19, abs=0.015)
    many = [UnseenPeak("a", "long", "pytorch", 0.0, -0.5, (ALWAYS,))] * 1000  # one source of 21, however many numbers
    again = memory_scores([*alike, *many]).widths
    assert again is not None and again[ALWAYS] == pytest.approx(0.19, abs=0.015)


def test_what_is_less_well_known_is_wider_and_leaves_the_others_as_they_are() -> None:
    shares = [at / 20 for at in range(-20, 21)]
    alike = [(f"{at}", 0.1 * share, (ALWAYS,)) for at in range(10) for share in shares]
    other = [(f"b{at}", 0.6 * share, (ALWAYS, LIBRARIES)) for at in range(10) for share in shares]
    peaks = [UnseenPeak("a", source, "pytorch", 0.0, math.expm1(log), why) for source, log, why in (*alike, *other)]
    found = memory_scores(peaks)
    assert found.widths is not None and found.all is not None and 0.85 <= found.all.inside <= 0.95
    assert found.widths[ALWAYS] == pytest.approx(0.09, abs=0.01)
    assert found.widths[ALWAYS] + found.widths[LIBRARIES] == pytest.approx(0.54, abs=0.03)
    assert found.widths[SOFTWARE] == 0.0  # nobody taught it


def test_a_source_takes_its_constants_with_it() -> None:
    """Rows of nanotron's sweep, whose constants were chosen on it: predicted without them they are elsewhere."""
    (path,) = published.files("ultrascale_h100")
    study = read(path)
    rows = [row for row in study.rows if row.memory and "healthy" in row.subsets][:3]
    (sides,) = predicted([(study, rows)], again=True)
    found = unseen_peaks(study, sides)
    assert [one.source for one in found] == ["ultrascale_h100"] * 3
    assert any(one.seen != one.unseen for one in found)
    assert all((SOFTWARE in one.reasons) == (one.seen != one.unseen) for one in found)
    again = compare(rows, predictor_without("nobody", {}))
    assert [pair.error for one in again for pair in one.memory] == [one.seen for one in found]
