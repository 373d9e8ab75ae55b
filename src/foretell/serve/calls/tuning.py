"""Ways to fine-tune a model on a cluster, from all weights to four bits, and the one to take."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from foretell.oracle.training import HOUR
from foretell.oracle.tuning import Tuning, TuningRung, sentence, tuning
from foretell.report.page import Page, Section, body
from foretell.serve import uploads
from foretell.serve.calls import Call
from foretell.serve.question import QuestionSubject, graph_of, model_text, request_of, run_of
from foretell.serve.words import spoken
from foretell.units import show_bytes, show_number, show_rate

COLUMNS = ("way", "plan", "tokens", "optimizer", "micro-batch", "memory", "tokens/s", "hours", "cost")


class TuningFound(msgspec.Struct, frozen=True, kw_only=True):
    """The ladder, and a table of it as HTML."""

    found: Tuning
    said: str  # which way to take, in a sentence
    html: str


def answer(asked: QuestionSubject) -> TuningFound:
    """What `foretell fit --tuning --json` says."""
    graph = graph_of(asked.model, asked.seq, "")
    found = tuning(request_of(asked).changed(model=model_text(asked.model), run=run_of(asked, graph)))
    found = msgspec.structs.replace(found, model=graph.name, notes=tuple(map(spoken, found.notes)))
    said = sentence(found, graph.name if asked.model.startswith(uploads.PREFIX) else found.model)
    section = Section("Ways to fine-tune", said, (), COLUMNS, tuple(_rows(found)))
    return TuningFound(
        found=found, said=said, html=body(Page(title="", plan="", cards=(), sections=(section,), notes=found.notes))
    )


def _rows(found: Tuning) -> Iterator[tuple[str, ...]]:
    for at, one in enumerate(found.rungs):
        yield (
            f"{one.what}{' (take)' if at == found.taken else ''}",
            one.plan,
            f"{one.seq:,}",
            one.optimizer,
            f"{one.micro_batch:,}" if one.micro_batch else "-",
            show_bytes(one.memory_bytes) if one.micro_batch else "refused",
            show_rate(one.tokens_per_second) if one.fits else "too much" if one.micro_batch else "-",
            *_run(one),
        )


def _run(rung: TuningRung) -> tuple[str, str]:
    """Of the whole run, where one is asked about."""
    return show_number(rung.seconds / HOUR) if rung.seconds else "-", f"{rung.cost:,.2f}" if rung.cost else "-"


CALL = Call(QuestionSubject, TuningFound, answer)
