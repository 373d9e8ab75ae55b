"""Answers of the search: asked one after the other, refused where no plan is left, and told to programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from foretell.cli.training_options import show_span

if TYPE_CHECKING:
    from foretell.cli.config_change import ConfigChange
    from foretell.cli.progress import Progress
    from foretell.oracle.planning import PlanningAnswer, Tried
    from foretell.oracle.request import Request
    from foretell.oracle.search import SearchResult
    from foretell.oracle.training import TrainingRun


class SearchOutcome(NamedTuple):
    """What a search came to: an answer for each number of ranks, and the best of those that are done in time."""

    answers: Sequence[PlanningAnswer]
    best: PlanningAnswer | None
    tried: Sequence[Tried]  # what else was searched, where nothing fits
    run: TrainingRun
    spans: Sequence[float]  # seconds of the whole run, by answer
    limit: float
    by: str
    everything: bool = False  # whether lists of plans are printed too

    def page(self) -> str:
        """The winner, or why there is none, and the numbers of ranks side by side."""
        from foretell.cli import plan_pages as pages
        from foretell.oracle.planning import nearest

        price = self.run.conditions.price
        several = len(self.answers) > 1
        parts = [pages.counts_table(self.answers, price, self.by, self.spans, self.limit)] if several else []
        if self.best is not None:
            assert self.best.found.best is not None
            step = self.best.predicted(self.best.found.best.value, self.run)
            return "\n\n".join([pages.answer_page(self.best, step, price, self.by, self.everything), *parts])
        if any(one.found.best for one in self.answers):
            return "\n\n".join([_late(self.answers, self.spans, self.limit), *parts])
        return "\n\n".join([pages.nothing_page(nearest(self.answers), self.tried), *parts])

    def json(self, change: ConfigChange | None) -> bytes:
        """The same for programs, with what runs today where that was given."""
        from foretell.oracle.planning import nearest

        chosen = (self.best or nearest(self.answers)).found
        answer: dict[str, Any] = {**msgspec.to_builtins(chosen), "notes": notes_of(self.answers)}
        answer |= {"best": None} if self.best is None else of_the_best(self.best, self.by)
        if change is not None:
            answer["today"] = change
        if len(self.answers) > 1:
            answer["searches"] = [_short(one.found) for one in self.answers]
            for one, taken in zip(answer["searches"], self.spans if self.run.asked else (), strict=False):
                one |= {"training_seconds": taken, "in_time": bool(one["best"]) and taken <= self.limit}
        if self.tried:
            answer["tried"] = [{"what": one.what, **_short(one.answer.found)} for one in self.tried]
        return msgspec.json.encode(answer)


def _late(answers: Sequence[PlanningAnswer], spans: Sequence[float], limit: float) -> str:
    """Plans fit, and none is done in time."""
    found = [
        (taken, one, one.found.best.plan)
        for taken, one in zip(spans, answers, strict=True)
        if one.found.best is not None
    ]
    least, answer, plan = min(found, key=lambda one: one[0])
    return "\n".join(
        [
            f"No plan trains within {show_span(limit)}.",
            f"The fastest takes {show_span(least)}, on {answer.found.cluster}:",
            f"  {plan}",
        ]
    )


def answers_of(questions: Sequence[Request], progress: Progress) -> list[PlanningAnswer]:
    """One after the other, until one is interrupted."""
    from foretell.oracle.planning import answered

    found: list[PlanningAnswer] = []
    for question in questions:
        found.append(answered(question, progress.of))
        if found[-1].found.interrupted:
            break
    progress.end()
    return found


def refuse(answers: Sequence[PlanningAnswer]) -> list[PlanningAnswer]:
    """No plan is left: say by which rules, and what would leave some."""
    from foretell.oracle.planning import other_batches, without_axes
    from foretell.plan.refusal import PlanRefused, Refusal

    if any(one.found.interrupted for one in answers):
        raise click.Abort
    first = answers[-1]
    rules = tuple(Refusal(rule, first.space.why[rule]) for rule in first.found.refused)
    idle = without_axes(first)
    rules += (idle,) if idle else ()
    wished = first.question.search
    given = [
        f"--{name} {text}"
        for name, text in (
            ("fix", f"'{wished.fixed}'" if wished.fixed else ""),
            ("only", ",".join(wished.only)),
            ("without", ",".join(wished.without)),
        )
        if text
    ]
    said = f" with {' '.join(given)}" if given else ""
    what = f"no plan is left for {first.question.model} on {first.found.cluster}{said}"
    others = [f"--batch {batch}" for batch in other_batches(first)]
    fix = [*others, *(["fewer constraints"] if given else [] if others else ["another number of ranks or trainer"])]
    lines = [line for one in rules for line in (f"  rule   {one.rule}", f"  why    {one.why}")]
    problem = PlanRefused("\n".join([what, *lines]), fix=", or ".join(fix))
    problem.refusals = rules
    raise problem


def what_would_fit(answers: Sequence[PlanningAnswer], progress: Progress) -> list[Tried]:
    """What else was searched, where nothing fits: for the largest cluster of those asked about."""
    from foretell.oracle.planning import nearest, would_fit

    tried: list[Tried] = []
    try:
        for one in would_fit(nearest(answers).question, progress.of):
            tried.append(one)
            if one.answer.found.interrupted:
                break
    except KeyboardInterrupt:
        pass
    progress.end()
    return tried


def notes_of(answers: Sequence[PlanningAnswer]) -> tuple[str, ...]:
    """What was chosen for the person who asks, the same for all numbers of ranks; and a batch that nothing divides."""
    from foretell.oracle.resolve import place_of

    return (*place_of(answers[0].question).notes, *_undivided(answers))


def _undivided(answers: Sequence[PlanningAnswer]) -> list[str]:
    """A batch that no ranks can share leaves few plans, and seldom is what was meant."""
    from foretell.oracle.planning import around

    found = [one.question for one in answers if one.found.ranks > 1]
    if not found or any(math.gcd(one.batch, one.place.ranks) > 1 or one.search.splits for one in found):
        return []
    one = found[-1]
    batch, ranks = one.batch, one.place.ranks
    near = [f"--batch {other}" for other in around(batch, ranks)]
    return [f"a batch of {batch} can be shared by no number of ranks that divides {ranks}: {' or '.join(near)} can"]


def of_the_best(answer: PlanningAnswer, by: str) -> dict[str, Any]:
    """What is told of the best: usable memory that it leaves free, the fastest that leaves a tenth, similar runs; and
    of those beside it the best of each mesh, and the plainest that is as fast."""
    from foretell.cost.memory import usable_bytes
    from foretell.oracle.headroom import roomy
    from foretell.oracle.layouts import layouts, plainer

    assert answer.found.best is not None
    usable = usable_bytes(answer.space.trainer, answer.space.cluster)
    known = answer.predicted(answer.found.best.value).accuracy
    left = 1 - answer.found.best.memory_bytes / usable
    plain = plainer(answer.found) if by != "memory" else None  # of two that are as fast: none is asked for
    beside = {"layouts": [one.plan for one in layouts(answer.found, by)], "plainer": plain}
    return {"headroom": left, "roomy": roomy(answer.found, usable), "accuracy": known, **beside}


def _short(found: SearchResult) -> dict[str, Any]:
    names = ("cluster", "ranks", "batch", "evaluated", "fitting", "seconds", "complete", "best", "nearest")
    return {name: msgspec.to_builtins(getattr(found, name)) for name in names}
