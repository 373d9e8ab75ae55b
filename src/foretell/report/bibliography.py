"""The papers behind an answer: of the model, of each axis and policy of the plan, and of how numbers are made."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.errors import ForetellError
from foretell.model import zoo
from foretell.plan.plan import Plan

METHOD = (
    "Kahira et al. 2021 (an oracle for parallel strategies), arXiv 2104.09075",
    "Ben-Nun and Hoefler 2019 (work and depth of parallel deep learning), arXiv 1802.09941",
    "Thakur et al. 2005 (costs of collective operations), doi 10.1177/1094342005051521",
    "Vovk et al. 2005 (conformal prediction), Algorithmic Learning in a Random World",
)
"""What every prediction rests on."""


def papers(model: str, plan: Plan) -> tuple[str, ...]:
    """In the order in which they are met, each once."""
    return tuple(dict.fromkeys([*_model(model), *_plan(plan), *METHOD]))


def _model(model: str) -> Iterator[str]:
    try:
        _, fields = zoo.parse(model)
    except ForetellError:
        return
    yield from fields.references


def _plan(plan: Plan) -> Iterator[str]:
    for member in (*plan.axes, *plan.policies):
        yield from member.references
