"""What a model is, of the zoo or handed in; or what else a file is that was handed in."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from foretell.errors import BadInput
from foretell.model.totals import totals
from foretell.plan.facts import facts
from foretell.serve import uploads
from foretell.serve.calls import Call
from foretell.serve.measured import SeenMeasurement, content_of, seen
from foretell.serve.question import ModelText, Question, graph_of, model_text


class NamedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model by its name."""

    model: ModelText


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A model in figures; or the question of a prediction that was kept, or of a run, and what that measured."""

    model: str  # what questions call it
    name: str
    parameters: int = 0
    layers: int = 0
    sequence: int = 0  # 0: samples are no sequences
    batch: int = 0  # that it was written for; 0: any
    notes: tuple[str, ...] = ()
    question: Question | None = None
    measured: SeenMeasurement | None = None


def answer(asked: NamedModel) -> ModelAnswer:
    if asked.model.startswith(uploads.PREFIX):
        other = _other(asked.model)
        if other is not None:
            return other
    graph = graph_of(asked.model, 0, "")
    found = facts(graph)
    return ModelAnswer(
        model=asked.model,
        name=graph.name,
        parameters=int(totals(graph).parameters),
        layers=found.layers,
        sequence=found.sequence,
        batch=graph.batch if graph.source != "hf" else 0,
        notes=graph.warnings,
    )


def _other(model: str) -> ModelAnswer | None:
    """A file that is no model: a prediction or a run that was recorded, or a trace. None: it may be a model."""
    content = content_of(model)
    measured = seen(model, content)
    if measured is None and not _is_prediction(content):
        return None
    question = _question(content) if measured is None or measured.kind == "run" else None
    name = question.model if question else "something measured"
    notes = () if question or measured is None or measured.kind == "trace" else (ELSEWHERE,)
    called = question.model if question else model
    return ModelAnswer(model=called, name=name, question=question, measured=measured, notes=notes)


ELSEWHERE = "what was run cannot be asked about here: choose a model and a plan to lay beside it"


def _is_prediction(content: Any) -> bool:
    return isinstance(content, dict) and cast("dict[str, Any]", content).get("kind") == "prediction"


def _question(content: Any) -> Question | None:
    """What was asked of a prediction, or of the ranks of a run; a run may have had a model of files or of code."""
    try:
        if _is_prediction(content):
            return _convert(content["content"]["question"])
        asked = content["content"]
        return _convert({**asked["assignment"], **_as_run(asked["measurement"]), "cluster": content["cluster"]})
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError, BadInput) as problem:
        if not _is_prediction(content):
            return None
        what = f"the record's question is not one that can be asked here: {problem}"
        raise BadInput(
            what, where="the file", fix="a record of `foretell predict --keep` with a model of the zoo"
        ) from None


def _as_run(measurement: dict[str, Any]) -> dict[str, Any]:
    """The plan and the batch as they were in the end: an assignment may leave them to others."""
    return {name: measurement[name] for name in ("plan", "batch")}


def _convert(asked: dict[str, Any]) -> Question:
    fields = {name: asked[name] for name in Question.__struct_fields__ if asked.get(name) is not None}
    found = msgspec.convert(fields, Question)
    model_text(found.model)
    return found


CALL = Call(NamedModel, ModelAnswer, answer)
