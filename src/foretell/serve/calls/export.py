"""The plan as the configuration of a trainer, what that leaves unsaid, and the command that starts it."""

from __future__ import annotations

import msgspec

from foretell.dialects import Dialect, Unsaid, dialect, recipe_of, trainer_of, write
from foretell.dialects.launchers import launch
from foretell.oracle.resolve import Resolved
from foretell.plan.text import parse
from foretell.serve.calls import Call
from foretell.serve.question import Name, Question, read


class Export(Question, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question, and where its plan is to go."""

    to: Name  # a dialect: torchtitan, megatron-lm, deepspeed, ...
    launcher: Name = ""  # torchrun, sbatch, ray; empty: the dialect's own


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration."""

    dialect: str
    trainer: str
    plan: str
    file: str  # what it is usually called
    text: str
    unsaid: tuple[Unsaid, ...]
    launch: str
    notes: tuple[str, ...]


def answer(question: Export) -> Exported:
    chosen = dialect(question.to)
    asked = _under(question, chosen)
    recipe = recipe_of(asked.setting, question.model, asked.place)
    written = write(chosen, recipe, _head(question, asked, chosen))
    words = chosen.command(written.document, chosen.file)
    start = launch(question.launcher or chosen.launcher, recipe, words, chosen.own, chosen.variables(recipe))
    return Exported(
        dialect=question.to,
        trainer=asked.setting.trainer.name,
        plan=str(asked.setting.plan),
        file=chosen.file,
        text=written.text,
        unsaid=tuple(written.unsaid),
        launch=start,
        notes=asked.notes,
    )


def _under(question: Export, chosen: Dialect) -> Resolved:
    """The setting under the trainer that the file is for, unless another one is named."""
    return read(msgspec.structs.replace(question, trainer=question.trainer or trainer_of(chosen, parse(question.plan))))


def _head(question: Export, asked: Resolved, chosen: Dialect) -> list[str]:
    return [
        f"{question.model} on {asked.place.text}, batch {question.batch}",
        f"plan: {asked.setting.plan}",
        f"fields of {chosen.version}; written by foretell",
    ]


CALL = Call(Export, Exported, answer)
