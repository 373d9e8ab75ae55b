"""Answers as pages to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.cost.peak_breakdown import alive
from foretell.cost.price import priced
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.report.page import Page, Section
from foretell.report.sections import prediction_page, search_section
from foretell.timeline.simulate import simulate

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster
    from foretell.oracle.planning import Answer
    from foretell.oracle.predict import Prediction
    from foretell.plan.setting import Setting


def step_page(
    setting: Setting, cluster: Cluster, found: Prediction, notes: Sequence[str] = (), more: Sequence[Section] = ()
) -> Page:
    """A prediction, with its program and its timeline."""
    program = expand(lower(setting))
    played = simulate(priced(setting, cluster), program)
    held = alive(program, setting, found.memory)
    return prediction_page(found, setting, program, played, held, (*notes, *found.notes), more)


def plan_page(answer: Answer, more: Sequence[Section] = ()) -> Page:
    """The best plan of a search, and the search."""
    assert answer.found.best is not None
    best = answer.predicted(answer.found.best.value)
    setting = answer.space.setting(answer.found.best.value)
    return step_page(setting, answer.question.place, best, (), (search_section(answer.found), *more))
