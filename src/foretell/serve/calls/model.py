"""What a model is: of the zoo, or one that was handed in."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from foretell.errors import BadInput
from foretell.model.totals import totals
from foretell.plan.facts import facts
from foretell.serve import uploads
from foretell.serve.calls import Call
from foretell.serve.question import ModelText, Question, graph_of


class Named(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model by its name."""

    model: ModelText


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A model in figures; or the question of a prediction that was kept, where that was handed in."""

    model: str  # what questions call it
    name: str
    parameters: int = 0
    layers: int = 0
    sequence: int = 0  # 0: samples are no sequences
    batch: int = 0  # that it was written for; 0: any
    notes: tuple[str, ...] = ()
    question: Question | None = None


def answer(asked: Named) -> Described:
    question = _kept(asked.model)
    if question is not None:
        return Described(model=question.model, name=question.model, question=question)
    graph = graph_of(asked.model, 0, "")
    found = facts(graph)
    return Described(
        model=asked.model,
        name=graph.name,
        parameters=int(totals(graph).parameters),
        layers=found.layers,
        sequence=found.sequence,
        batch=graph.batch if graph.source != "hf" else 0,
        notes=graph.warnings,
    )


def _kept(model: str) -> Question | None:
    """The question of a record that `foretell predict --keep` wrote, if that is what was handed in."""
    if not model.startswith(uploads.PREFIX):
        return None
    try:
        content: Any = msgspec.json.decode(uploads.path(model).read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # whoever reads it as a model says why
    if not isinstance(content, dict) or cast("dict[str, Any]", content).get("kind") != "prediction":
        return None
    try:
        asked: dict[str, Any] = cast("Any", content)["content"]["question"]
        fields = {name: asked[name] for name in Question.__struct_fields__ if asked.get(name) is not None}
        return msgspec.convert(fields, Question)
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as problem:
        what = f"the record's question is not one that can be asked here: {problem}"
        raise BadInput(
            what, where="the file", fix="a record of `foretell predict --keep` with a model of the zoo"
        ) from None


CALL = Call(Named, Described, answer)
