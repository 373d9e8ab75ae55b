"""A prediction with its charts as HTML: what the page shows when a slider moves."""

from __future__ import annotations

import msgspec

from foretell.cost.price import priced
from foretell.model.graph import Graph
from foretell.oracle.predict import Prediction
from foretell.oracle.verdict import FAILS, FITS, RETRIES
from foretell.oracle.written import StepAnswer, written
from foretell.plan.facts import convolves, facts
from foretell.program.expand import expand
from foretell.report.page import Page, body
from foretell.report.sections import headline, memory_section, time_section, timeline_section
from foretell.serve.calls import Call
from foretell.serve.calls.predict import told
from foretell.serve.question import Question, knobs, read
from foretell.timeline.memory_timeline import memory_timeline
from foretell.timeline.simulate import simulate
from foretell.units import show_bytes, show_number, show_seconds

FINEST = 400
"""Stretches of the timeline that can be told apart on a screen; a report, which is enlarged, has more."""


class PageView(msgspec.Struct, frozen=True, kw_only=True):
    """All that changes on the page."""

    prediction: StepAnswer
    said: str  # in a sentence, for those who hear the page
    html: str
    ranks: int  # of the cluster; the plan may take fewer
    knobs: tuple[str, ...]  # what of the hardware can be turned
    axes: tuple[str, ...]  # that may divide something of the model


def answer(question: Question) -> PageView:
    asked = read(question)
    found = told(asked)
    plan = priced(asked.setting, asked.place)
    played = simulate(plan, expand(plan.program, borders=False), joined=True)
    sections = (
        time_section(found),
        memory_section(found, memory_timeline(plan, asked.place)),
        timeline_section(played, FINEST),
    )
    page = Page(title="", plan="", cards=headline(found), sections=sections, notes=found.notes)
    return PageView(
        prediction=written(found),
        said=sentence(found),
        html=body(page),
        ranks=asked.place.ranks,
        knobs=knobs(asked.place),
        axes=axes(asked.setting.graph),
    )


def axes(graph: Graph) -> tuple[str, ...]:
    """Axes that a person may try: those of images for images, that of sequences for sequences."""
    images = ("spatial", "filter") if convolves(graph) else ()
    sequences = ("cp",) if facts(graph).heads else ()
    experts = ("ep",) if facts(graph).experts else ()
    return ("pp", "dp", *experts, *sequences, "tp", *images)


def sentence(found: Prediction) -> str:
    """An answer as one would say it."""
    over = f"{show_bytes(found.memory_bytes - found.usable)} too much"
    told = {
        FITS: "fits",
        RETRIES: f"fits with retries of the allocator, slower: {over}",
        FAILS: f"does not fit: {over}",
    }
    fits = told[found.verdict]
    run = found.training
    whole = f" The whole run takes {show_number(run.days)} days." if run else ""
    step, memory = show_seconds(found.step_seconds), show_bytes(found.memory_bytes)
    return f"A step takes {step}, {memory} a GPU: it {fits}.{whole}"


CALL = Call(Question, PageView, answer)
