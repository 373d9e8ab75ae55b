"""The score of memory: every source with the same weight, with its constants and without them."""

from __future__ import annotations

import pytest

from foretell.cli.unseen_pages import memory_lines
from foretell.validation import published
from foretell.validation.evaluate import compare
from foretell.validation.left_out import predictor_without
from foretell.validation.sides import predicted
from foretell.validation.study import read
from foretell.validation.unseen_memory import UnseenPeak, is_inside, learnt_ends, memory_scores, unseen_peaks

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
    assert [is_inside(one.unseen, (0.85, 1.2)) for one in PEAKS] == [False, True, False, False]
    assert found.all.inside == pytest.approx((sum(map(is_inside, (-0.2, 0.1, 0.3))) / 3 + is_inside(-0.4)) / 2)
    assert found.ends is None  # two sources: what ships
    assert [one.name for one in found.trainers] == ["fsdp", "pytorch"]
    text = "\n".join(memory_lines(found, more=True))
    assert "by trainer" in text and "by source" in text and "30.0" in text
    assert not memory_lines(memory_scores([]), more=True)


def test_the_interval_is_tried_on_sources_that_did_not_teach_it() -> None:
    """Twenty sources alike, and one that is far off: without it the ends are those of the others."""
    alike = [UnseenPeak("a", f"{at}", "pytorch", 0.0, 1 / ratio - 1) for at in range(20) for ratio in (0.9, 1.0, 1.4)]
    assert learnt_ends(alike) == pytest.approx((0.9, 1.4))
    found = memory_scores([*alike, UnseenPeak("a", "far", "pytorch", 0.0, -0.6)])
    inside = {one.name: one.inside for one in found.sources}
    assert inside.pop("far") == 0.0 and set(inside.values()) == {1.0}
    assert found.ends == pytest.approx((0.9, 1.4))
    many = [UnseenPeak("a", "long", "pytorch", 0.0, -0.5)] * 1000  # one source of 21, however many numbers
    assert learnt_ends([*alike, *many]) == pytest.approx((0.9, 1.4))


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
