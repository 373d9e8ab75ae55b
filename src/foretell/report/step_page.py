"""A predicted step, or the best plan of a search, as a page to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.cost.price import priced
from foretell.report.page import Page, Section
from foretell.report.sections import prediction_page, search_section
from foretell.timeline.memory_timeline import memory_timeline
from foretell.timeline.peak_breakdown import alive
from foretell.timeline.simulate import simulate

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster
    from foretell.oracle.planning import PlanningAnswer
    from foretell.oracle.predict import Prediction
    from foretell.plan.setting import Setting


def step_page(
    setting: Setting, cluster: Cluster, found: Prediction, notes: Sequence[str] = (), more: Sequence[Section] = ()
) -> Page:
    """A prediction, with what its fullest rank holds when, and its timeline."""
    plan = priced(setting, cluster)
    held, largest = memory_timeline(plan, cluster), alive(plan, cluster, found.memory)
    return prediction_page(found, held, simulate(plan, joined=True), largest, (*notes, *found.notes), more)


def plan_page(answer: PlanningAnswer, more: Sequence[Section] = ()) -> Page:
    """The best plan of a search, and the search."""
    assert answer.found.best is not None
    best = answer.predicted(answer.found.best.value)
    setting = answer.space.setting(answer.found.best.value)
    return step_page(setting, answer.question.place, best, (), (search_section(answer.found), *more))
