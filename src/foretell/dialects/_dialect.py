"""A dialect: the configuration of one trainer, as a table. What is written is read again before anybody gets it.

Reading back is how a dialect knows what it cannot say. A figure that comes back changed would be another plan, so the
plan is refused; one that files of this dialect leave to something else is told, with where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from foretell.dialects._formats import FileFormat
from foretell.dialects._options import refuse, unknown_keys, unlike
from foretell.dialects._python import CALLED, GIVEN
from foretell.dialects._recipe import HINTS, Recipe, put_together
from foretell.dialects._shell import SHELL
from foretell.dialects._table import (
    NOTES,
    VARIABLE,
    Correspondence,
    Document,
    Figures,
    Launch,
    Same,
    Source,
    UnknownValue,
    completed,
)
from foretell.dialects.launchers import launch, launching
from foretell.errors import BadInput
from foretell.plan.syntax import spelled_list

AUTO: Final = "auto"
"""What files say (DeepSpeed's, of Hugging Face's Trainer) where a script fills in the value."""


LONGEST: Final = 400
"""Characters of a message about a file."""


def _nothing(recipe: Recipe) -> Document:
    return {}


@dataclass(frozen=True)
class Dialect:
    """How one trainer is configured.

    table      which key says which figure
    elsewhere  figures that its files do not say, and where they are said
    beside     figures that its files say and something else must say too, and where
    fixed      keys that a file needs besides, to be complete
    command    the words that start the trainer with a file, after those of the launcher
    """

    name: str
    summary: str
    version: str  # the software whose fields were looked up
    trainer: Callable[[Recipe], str]
    format: FileFormat
    file: str  # what its file is usually called
    table: tuple[Correspondence, ...]
    command: Callable[[Document, str], Sequence[str]]
    elsewhere: Mapping[str, str] = field(default_factory=dict[str, str])
    beside: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: Callable[[Recipe], Document] = _nothing
    open: tuple[str, ...] = ()  # keys that only describe the model: where they are not known, a person names it
    assumed: tuple[str, ...] = ()  # keys whose absence leaves a figure to somebody else, and is told
    variables: Callable[[Recipe], Mapping[str, str]] = _nothing  # of the environment, that the trainer wants
    launcher: str = "torchrun"
    telling: tuple[str, ...] = ()  # keys that no figure has, and that files of others with the same keys have not
    free: tuple[str, ...] = ()  # keys, or patterns of them, that change no cost
    refused: Mapping[str, str] = field(default_factory=dict[str, str])  # keys of runs that no plan describes, and why
    unlike: Mapping[str, str] = field(default_factory=dict[str, str])  # keys of models that the zoo has not, and what
    own: str = ""  # the program that starts the ranks of a node itself; empty: the launcher does

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for one in self.table for key in one.keys))


class Unsaid(msgspec.Struct, frozen=True):
    """A figure of the plan that the file does not say, and where it is said instead."""

    figure: str
    value: Any
    where: str


class WrittenConfig(msgspec.Struct, frozen=True):
    """A configuration: its text, and what it leaves to others."""

    dialect: str
    text: str
    document: dict[str, Any]
    unsaid: tuple[Unsaid, ...]


def figures_of(dialect: Dialect, document: Document) -> Figures:
    """What a document says, as far as the table goes."""
    found: Figures = {}
    open_keys = [key for key in dialect.keys if document.get(key) == AUTO]
    notes = [f"{key} is {AUTO}: the training script decides, and it is read as not said" for key in open_keys]
    document = {key: value for key, value in document.items() if key not in open_keys}
    for one in dialect.table:
        said = {name: value for name, value in one.read(document).items() if value is not None}
        notes += said.pop(NOTES, ())
        found |= said
    notes += [f"{key} is not set: taken as 1" for key in dialect.assumed if document.get(key) is None]
    return found | {NOTES: tuple(notes)}


def read(dialect: Dialect, document: Document, beside: Launch, where: str) -> Recipe:
    """The recipe that a document is of."""
    try:
        return completed(_figures(dialect, document, where), beside, where, _said_as_it_is(dialect, document))
    except BadInput as problem:  # which may have a value in it that is as long as the file
        raise type(problem)(_short(problem.what), where=problem.where, fix=_short(problem.fix)) from None


def _said_as_it_is(dialect: Dialect, document: Document) -> dict[str, str]:
    """Figures that stand in a document under one key, and the key."""
    return {
        one.figure: next((key for key in one.keys if document.get(key) is not None), one.key)
        for one in dialect.table
        if isinstance(one, Same)
    }


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


def notes(dialect: Dialect, document: Document, where: str) -> tuple[str, ...]:
    """What a person should know about how a document was read."""
    found: tuple[str, ...] = _figures(dialect, document, where)[NOTES]
    told = document.notes if isinstance(document, Source) else ()
    others = {key: value for key, value in document.items() if not launching(key)}
    return (*told, *found, *(unknown_keys(others, dialect.keys, dialect.free) if dialect.free else ()))


def ranks_started(dialect: Dialect, document: Document, where: str) -> int:
    """The ranks that a file's own launcher starts; 0: it does not say."""
    found = _figures(dialect, document, where).get("ranks")
    return found if isinstance(found, int) else 0


def _figures(dialect: Dialect, document: Document, where: str) -> Figures:
    refuse(document, dialect.refused, where)
    for key in dialect.keys:
        value = document.get(key)
        if isinstance(value, str) and value.startswith(VARIABLE) and key not in dialect.open:
            name = value.strip("${}[]@*")
            fix = f"{name}=8 foretell ..." if name.isidentifier() else "the number in its place"
            raise BadInput(f"{key} is {value}, which only a running shell knows", where=where, fix=fix)
        _known(dialect, document, key, where)
    try:
        return _without_model(dialect, document, figures_of(dialect, document))
    except BadInput as problem:
        raise problem.within(where) from None
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as problem:
        raise BadInput(f"a value that {dialect.name} does not have: {problem}", where=where) from None


def _without_model(dialect: Dialect, document: Document, figures: Figures) -> Figures:
    """The figures without a model, where the file has one that the zoo has not: a person names theirs."""
    what = unlike(document, dialect.unlike)
    if not what:
        return figures
    kept = {name: value for name, value in figures.items() if name != "model" and not name.startswith("shape.")}
    return kept | {NOTES: (*figures[NOTES], f"{what}; a model of your own goes before the options")}


def _known(dialect: Dialect, document: Document, key: str, where: str) -> None:
    """Refuse what a running program would say for a key: an expression, a call, a table that is unpacked."""
    value, call = document.get(key), f"{key}.{CALLED}"
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    said = next((str(one) for one in values if isinstance(one, UnknownValue)), "")
    if not said and call in document and call not in dialect.keys:
        said = f"made by {document[call]}(...)"
    if said:
        what = f"{key} is {said}: only the running program knows its value"
        raise BadInput(what, where=where, fix="a number or a word in its place")
    table = key.rpartition(".")[0]
    whole = document.get(table) if key not in document else None
    if isinstance(whole, UnknownValue):
        what = f"{table} is {whole}, which may say {key}: only the running program knows its value"
        raise BadInput(what, where=where, fix=f"{key} by its name")
    unpacked = next((one for one in document if one.rpartition(".")[0] == table and "**" in one), None)
    if unpacked is not None and key not in document:
        stars = "**" if not unpacked.endswith("**") else ""  # one without a place is what a call may have set
        what = f"{stars}{document[unpacked]} may say {key}: only the running program knows"
        raise BadInput(what, where=where, fix=f"{key} by its name")


def write(dialect: Dialect, recipe: Recipe, head: Sequence[str] = (), base: Document | None = None) -> WrittenConfig:
    """The configuration of a run. `base` is one that it replaces: keys that no figure has stay as they are."""
    said: Document = {}
    for one in dialect.table:
        said |= one.write(recipe)
    document = (dialect.fixed(recipe) if base is None else _kept(dialect, base, said)) | said
    text = _text(dialect, recipe, document, head)
    again = _read_back(dialect, recipe, text)
    return WrittenConfig(dialect.name, text, document, tuple(_unsaid(dialect, recipe, again)))


def _kept(dialect: Dialect, base: Document, said: Document) -> Document:
    """What stays of a file: all that no figure has, unless it was given to what is another thing now."""
    kept: Document = {}
    for key, value in (base.raw if isinstance(base, Source) else base).items():
        plain = key.removeprefix(GIVEN)
        call = f"{plain.rpartition('.')[0]}.{CALLED}"
        if launching(plain) or plain in dialect.keys or (call in dialect.keys and base.get(call) != said.get(call)):
            continue
        if value == "...":
            raise BadInput(f"{plain} is set in some cases only", fix="one value for it")
        kept[key] = value
    return kept


def _read_back(dialect: Dialect, recipe: Recipe, text: str) -> Recipe:
    try:
        document = dialect.format.read(text)
        return read(dialect, document, Launch(recipe.ranks, recipe.batch), f"as {dialect.name} reads it")
    except BadInput as problem:
        if lost := _axes_lost(dialect, recipe, text):
            names = " and no ".join(AXES[name] for name in lost)
            what = f"{dialect.name} cannot express this plan: its files have no {names}"
            raise BadInput(what, where="--to", fix=_without_axes(dialect, recipe)) from None
        what = f"{dialect.name} cannot express this plan: {problem.what}"
        raise BadInput(what, where="--to", fix="another target, or another plan") from None


AXES: Final = {"tensor": "tensor parallelism", "context": "context parallelism", "pipeline": "pipeline stages"}


def _axes_lost(dialect: Dialect, recipe: Recipe, text: str) -> list[str]:
    """Axes of a plan that a file reads as one rank."""
    try:
        figures = figures_of(dialect, dialect.format.read(text))
    except BadInput:
        return []
    return [name for name in AXES if getattr(recipe, name) > 1 and figures.get(name) == 1]


def _without_axes(dialect: Dialect, recipe: Recipe) -> str:
    """A way out of what a file has no axes for: all ranks as data ranks states in shares, if that is written."""
    fix = "another target, or another plan"
    if recipe.batch % recipe.ranks:
        return fix
    data = {"data": recipe.ranks, "storage": "zero3", "microbatches": 1, "micro_batch": recipe.batch // recipe.ranks}
    alone = msgspec.structs.replace(recipe, **data, **dict.fromkeys(AXES, 1), shard=0)
    try:
        write(dialect, alone)
    except BadInput:
        return fix
    return f"another target, or --plan '{put_together(alone)}'"


def _text(dialect: Dialect, recipe: Recipe, document: Document, head: Sequence[str]) -> str:
    """The file. Where options of a command are the configuration, the file is the script that starts it."""
    if dialect.format is not SHELL:
        return dialect.format.write(document, head)
    script = launch(
        dialect.launcher, recipe, dialect.command(document, dialect.file), dialect.own, dialect.variables(recipe)
    )
    comment = "".join(f"# {line}".rstrip() + "\n" for line in head)
    return f"#!/bin/bash\n{comment}{script}"


def changed(recipe: Recipe, again: Recipe) -> dict[str, Any]:
    """Figures that came back changed."""
    names = [one.name for one in msgspec.structs.fields(Recipe) if one.name != "per_node"]
    found = {name: getattr(recipe, name) for name in names if getattr(recipe, name) != getattr(again, name)}
    if recipe.shape is not None and recipe.shape == again.shape:
        found.pop("model", None)
    elif recipe.model == again.model:
        found.pop("shape", None)
    return found


def _unsaid(dialect: Dialect, recipe: Recipe, again: Recipe) -> list[Unsaid]:
    lost = changed(recipe, again)
    wrong = [name for name in lost if name not in HINTS and name not in dialect.elsewhere]
    if wrong:
        raise _refused(dialect, recipe, _saving(dialect, recipe, again), wrong)
    usual = Recipe()
    told: dict[str, str] = {}
    for name, where in dialect.elsewhere.items():
        if getattr(recipe, name) != getattr(usual, name):
            told[name] = where
    for name, where in dialect.beside.items():
        if getattr(recipe, name) != getattr(usual, name):
            told[name] = where
    for name in lost:
        told.setdefault(name, dialect.elsewhere.get(name) or _instead(dialect, recipe, name, getattr(again, name)))
    if "model" in told:
        told.pop("shape", None)
    return [Unsaid(name, msgspec.to_builtins(getattr(recipe, name)), where) for name, where in told.items()]


def _instead(dialect: Dialect, recipe: Recipe, name: str, value: Any) -> str:
    """What holds in place of a figure that a file cannot express: in the words of a plan, where it has them."""
    said = str(put_together(recipe)).split()
    meant = str(put_together(msgspec.structs.replace(recipe, **{name: value}))).split()
    words = " ".join(one for one in meant if one not in said)
    what = f"{dialect.name} files cannot express it: "
    return what + (f"--plan '... {words}' predicts what it runs" if words else "the trainer's default holds")


def _refused(dialect: Dialect, recipe: Recipe, again: Recipe, wrong: Sequence[str]) -> BadInput:
    said = "; ".join(f"{name} {_shown(getattr(recipe, name))}" for name in wrong)
    what = f"{dialect.name} cannot express this plan: {said}"
    meant = str(put_together(again))
    return BadInput(what, where="--to", fix=f"another target, or what its file would mean: --plan '{meant}'")


def _saving(dialect: Dialect, recipe: Recipe, again: Recipe) -> Recipe:
    """What a file would mean; where recomputation is lost with it, by whole blocks, if the dialect can say that."""
    blocks = msgspec.structs.replace(again, recompute="block")
    if recipe.recompute in ("none", "block") or again.recompute != "none":
        return again
    try:
        write(dialect, blocks)
    except BadInput:
        return again
    return blocks


def _shown(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    values = cast("tuple[Any, ...]", value)
    return spelled_list(values) if all(isinstance(one, int) for one in values) else " ".join(map(str, values))
