"""Rows of somebody's file that cannot have been: a step that is faster than its devices can multiply is not scored."""

from __future__ import annotations

import msgspec

from foretell.oracle.possible import least_step
from foretell.units import show_seconds
from foretell.validation.evaluate import ComparedRun, question
from foretell.validation.study import NotScored, Study


def possible(study: Study, compared: list[ComparedRun]) -> tuple[Study, list[ComparedRun]]:
    """The study without steps that are faster than their devices can multiply: those are not scored."""
    out = {one.row.id: why for one in compared if (why := _too_fast(one))}
    if not out:
        return study, compared
    kept = tuple(row for row in study.rows if row.id not in out)
    reasons = (*study.not_scored, *(NotScored(name, why) for name, why in out.items()))
    left = [one for one in compared if one.row.id not in out]
    return msgspec.structs.replace(study, rows=kept, not_scored=reasons), left


def _too_fast(one: ComparedRun) -> str:
    if one.prediction is None or not one.row.step_seconds or one.row.timed != "step" or one.row.others:
        return ""
    least = least_step(*question(one.row))
    if not least.too_fast(one.row.step_seconds):
        return ""
    return f"a step of {show_seconds(one.row.step_seconds)}, and at their peak its devices take longer"
