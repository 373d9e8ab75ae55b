"""The best plans of all that are legal: /api/searches starts a search, and tells how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from foretell.hardware import quantity
from foretell.hardware.cluster import Cluster
from foretell.oracle import planning
from foretell.oracle.recommend import recommend
from foretell.oracle.refinement import CHOICES, refine
from foretell.oracle.request import Request, SearchConstraints, Upgrade
from foretell.oracle.search import FoundSoFar, SearchResult, Watch
from foretell.oracle.space import Space
from foretell.report.page import Page, Section, body
from foretell.report.sections import search_section
from foretell.serve import uploads
from foretell.serve.calls import Call
from foretell.serve.question import Name, QuestionSubject, bettered, graph_of, model_text, request_of

Words: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=30)]

PATIENCE = 0.2
"""Seconds between two words about how far it is."""


class Search(QuestionSubject, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked about, and what plans have to be like."""

    precision: Name = ""
    only: Words = ()
    without: Words = ()
    also: Words = ()
    fix: Annotated[str, Meta(max_length=1000)] = ""  # each plan has this
    max_memory: Annotated[str, Meta(max_length=40)] = ""  # a rank may use this much: 60 GB


class SearchFound(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and a chart of it as HTML."""

    found: SearchResult
    html: str


class Sofar(msgspec.Struct, frozen=True, kw_only=True):
    """How far a search is."""

    doing: str  # what it is at
    share: float  # of all of it
    plans: int


Tell: TypeAlias = Callable[[Sofar], None]

LISTED, PRICED = 0.5, 0.7
"""Where on the way the plans are all listed, and all priced; then stages and parts are chosen for the best ones."""


def answer(search: Search, tell: Tell) -> SearchFound:
    answered = planning.answered(question_of(search), lambda space: _watch(space, tell))
    found = recommend(_finer(answered, tell)).found
    if search.model.startswith(uploads.PREFIX):
        found = planning.replaced(found, model=uploads.named(search.model))
    section = search_section(found)
    chart = Section(section.title, section.text, section.charts)
    return SearchFound(found=found, html=body(Page(title="", plan="", cards=(), sections=(chart,))))


def _finer(answered: planning.PlanningAnswer, tell: Tell) -> planning.PlanningAnswer:
    """With what is chosen beside what the search varies; who interrupts that wants what there is."""
    plans = answered.found.evaluated

    def choosing(what: str, share: float) -> None:
        after = PRICED + (1 - PRICED) * (share if what == CHOICES[-1].what else 0.8 * share)
        tell(Sofar(doing=f"choosing {what} for the best plans", share=min(1.0, after), plans=plans))

    try:
        return refine(answered, choosing)
    except KeyboardInterrupt:
        return answered


class _BetterHardware(Upgrade):
    """Several parts of the hardware at once; the cluster then says itself which."""

    def of(self, cluster: Cluster) -> Cluster:
        return self.change(cluster, self.times)


def question_of(search: Search) -> Request:
    """The question as the search knows it."""
    model = model_text(search.model)
    written = graph_of(search.model, search.seq, "") if model.endswith(uploads.GRAPH) else None

    def better(cluster: Cluster, times: float) -> Cluster:
        return bettered(cluster, search.hardware)

    return request_of(search).changed(
        model=model,
        graph=written,
        seq=0 if written else search.seq,
        precision=search.precision,
        search=SearchConstraints(only=search.only, without=search.without, also=search.also, fixed=search.fix.strip()),
        max_memory=quantity.parse(search.max_memory, "memory", "max_memory") if search.max_memory else 0.0,
        upgrade=_BetterHardware("hardware", 1.0, better) if search.hardware else None,
    )


def _watch(space: Space, tell: Tell) -> Watch:
    meshes = max(1, space.mesh_count)
    last = [0.0]

    def watch(found: FoundSoFar) -> None:
        now = time.monotonic()
        if now - last[0] >= PATIENCE or space.looked >= meshes:
            last[0] = now
            tell(Sofar(doing="pricing plans", share=LISTED * min(1.0, space.looked / meshes), plans=found.plans))

    return watch


CALL = Call(Search, SearchFound, answer, long=True)
