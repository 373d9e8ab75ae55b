"""The score of memory: every source with the same weight, with its constants and without them."""

from __future__ import annotations

import pytest

from foretell.cli.unseen_pages import memory_lines
from foretell.validation import published
from foretell.validation.evaluate import compare
from foretell.validation.left_out import predictor_without
from foretell.validation.sides import predicted
from foretell.validation.study import read
from foretell.validation.unseen_memory import UnseenPeak, is_inside, memory_scores, unseen_peaks

PEAKS = [
    *(UnseenPeak("a", "one", "pytorch", 0.1, error) for error in (-0.2, 0.1, 0.3)),
    UnseenPeak("a", "two", "fsdp", 0.0, -0.4),
]


def test_every_source_has_the_same_weight() -> None:
    found = memory_scores(PEAKS)
    assert found.all is not None and (found.all.sources, found.all.numbers) == (2, 4)
    assert found.all.unseen == pytest.approx((0.2 + 0.4) / 2)
    assert found.all.median == pytest.approx((0.2 + 0.4) / 2)
    assert found.all.bias == pytest.approx((0.1 - 0.4) / 2)
    assert found.all.seen == pytest.approx((0.1 + 0.0) / 2)
    assert [is_inside(one.unseen) for one in PEAKS] == [False, True, False, False]
    assert found.all.inside == pytest.approx((1 / 3 + 0) / 2)
    assert [one.name for one in found.trainers] == ["fsdp", "pytorch"]
    text = "\n".join(memory_lines(found, more=True))
    assert "by trainer" in text and "by source" in text and "30.0" in text
    assert not memory_lines(memory_scores([]), more=True)


def test_a_source_takes_its_constants_with_it() -> None:
    """Rows of nanotron's sweep, whose constants were chosen on it: predicted without them they are elsewhere."""
    (path,) = published.files("ultrascale_h100")
    study = read(path)
    rows = [row for row in study.rows if row.memory and "healthy" in row.subsets][:3]
    (sides,) = predicted([(study, rows)], again=True)
    found = unseen_peaks(study, sides)
    assert [one.source for one in found] == ["ultrascale_h100"] * 3
    assert any(one.seen != one.unseen for one in found)
    again = compare(rows, predictor_without("nobody", {}))
    assert [pair.error for one in again for pair in one.memory] == [one.seen for one in found]
