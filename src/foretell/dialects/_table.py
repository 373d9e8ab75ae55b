"""The table of a dialect: which key of a file says which figure of a run. One text for reading and writing.

    Same("parallelism.tp", "tensor", 1)                 the number itself
    Same("tokens.sequence_length", "sequence")          the same; nothing is known where the key is missing
    Choice("storage", {"zero1": {"zero_stage": 1}})     a word, as one or several keys with their values
    Formula(write, read, keys)                          keys and figures that only together mean something

A document is a flat table of dotted keys, whatever the file's format. What is read is a table of figures that
may be incomplete: `completed` finds the rest from the number of ranks and from what a batch is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from foretell.dialects._model import Shape, layers_of, model_of, shape_of
from foretell.dialects._recipe import Recipe
from foretell.errors import BadInput
from foretell.model.optimizer import OPTIMIZERS, optimizer

Document: TypeAlias = dict[str, Any]
Figures: TypeAlias = dict[str, Any]


class Source(Document):
    """A document as it is understood, and `raw`: its values as they stand in the file, which is how they are kept.

    `notes` is what a person should know about how it was read, `files` the texts of files that a script writes.
    """

    def __init__(
        self, understood: Document, raw: Document, notes: tuple[str, ...] = (), files: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(understood)
        self.raw = raw
        self.notes = notes
        self.files = dict(files or {})


class UnknownValue(str):
    """An expression whose value only the running program knows."""


NONE: Final = object()
"""No default: where the key is missing the figure is not known."""

NOTES: Final = "notes"
"""Where a reader puts what a person should know about what was read."""

VARIABLE: Final = "$"
"""How a value begins that a shell would fill in later."""


@dataclass(frozen=True)
class Same:
    """A figure under its own value. With its default it is written only if `told`."""

    key: str
    figure: str
    default: Any = NONE
    told: bool = True
    others: tuple[str, ...] = ()  # older keys of the same meaning, read and not written

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key, *self.others)

    def write(self, recipe: Recipe) -> Document:
        value = figure(recipe, self.figure)
        unknown = value is None or (self.figure == "sequence" and not value)  # images have no sequence
        if unknown or (not self.told and value == self.default):
            return {}
        return {self.key: value}

    def read(self, document: Document) -> Figures:
        for key in self.keys:
            value = document.get(key)
            if value is not None:
                return {self.figure: value}
        return {} if self.default is NONE else {self.figure: self.default}


@dataclass(frozen=True)
class KeyChoice:
    """A word of a figure, as keys with values. A key of None is one that must not be there.

    Read is the first word all of whose keys agree; `default` where none of the keys is there.
    """

    figure: str
    words: Mapping[Any, Mapping[str, Any]]
    default: Any = NONE
    also: tuple[tuple[Any, Mapping[str, Any]], ...] = ()  # read, and not written
    near: tuple[tuple[Any, Mapping[str, Any], str], ...] = ()  # read as the word that comes closest, with a note why
    when: str = ""  # written only where this figure is more than 1
    open: bool = False  # whether other values of the keys say nothing, and are not wrong

    @property
    def keys(self) -> tuple[str, ...]:
        said = [*self.words.values(), *(keys for _, keys in self.also), *(keys for _, keys, _ in self.near)]
        return tuple(dict.fromkeys(key for keys in said for key in keys))

    def write(self, recipe: Recipe) -> Document:
        if self.when and figure(recipe, self.when) == 1:
            return {}
        keys = self.words.get(figure(recipe, self.figure), {})
        return {key: value for key, value in keys.items() if value is not None}

    def read(self, document: Document) -> Figures:
        given = [key for key in self.keys if document.get(key) is not None]
        if not given:
            return {} if self.default is NONE else {self.figure: self.default}
        for word, keys in (*self.words.items(), *self.also):
            if all(_alike(document.get(key), value) for key, value in keys.items()):
                return {self.figure: word}
        for word, keys, note in self.near:
            if all(_alike(document.get(key), value) for key, value in keys.items()):
                return {self.figure: word, NOTES: (note,)}
        if self.open:
            return {}
        said = ", ".join(f"{key} = {document[key]!r}" for key in given)
        known = "; ".join(
            ", ".join(f"{key} = {value!r}" for key, value in keys.items()) for keys in self.words.values()
        )
        raise BadInput(f"{said}: no plan has a word for it", fix=known)


def _alike(given: Any, value: Any) -> bool:
    if value is None or value is False:
        return given is None or given is False or (isinstance(given, str) and given.lower() in ("none", "no", "false"))
    if isinstance(given, str) and isinstance(value, str):
        return given.lower() == value.lower()
    if isinstance(given, str) and isinstance(value, bool):
        return given.lower() == str(value).lower()
    return bool(given == value)


def optimizer_words(dialect: str, key: str, default: Any = NONE) -> KeyChoice:
    """The optimizers that a dialect has a word for, under a key of its."""
    words = {name: optimizer(name).words.get(dialect) for name in OPTIMIZERS}
    return KeyChoice("optimizer", {name: {key: word} for name, word in words.items() if word}, default)


@dataclass(frozen=True)
class Formula:
    """Keys and figures that only together mean something."""

    keys: tuple[str, ...]
    write: Callable[[Recipe], Document]
    read: Callable[[Document], Figures]


Correspondence: TypeAlias = Same | KeyChoice | Formula


def figure(recipe: Recipe, name: str) -> Any:
    """A figure by its name; `shape.layers` is one of the model's, None where the model is not described."""
    value: Any = recipe
    for part in name.split("."):
        value = None if value is None else getattr(value, part)
    return value


# --- what was read, completed -------------------------------------------------------------------


class Launch(msgspec.Struct, frozen=True):
    """What is known beside a file: ranks, and samples of a step (0: not known)."""

    ranks: int = 0
    batch: int = 0


_COUNTS: Final = ("data", "tensor", "context", "pipeline", "microbatches", "micro_batch", "batch", "ranks", "experts")
"""Figures that are whole numbers, of one or more."""


def completed(figures: Figures, beside: Launch, where: str, keys: Mapping[str, str]) -> Recipe:
    """The recipe with these figures; ranks and batches that a file leaves open follow from the others.

    `keys` are those of the file that say a figure as it is.
    """
    try:
        for name in _COUNTS:
            if figures.get(name) is not None:
                figures = {**figures, name: _count(figures[name], keys.get(name, name), where)}
        return _completed(figures, beside, where)
    except (
        msgspec.ValidationError,
        TypeError,
        ValueError,
        ArithmeticError,
    ) as problem:  # a word where a number belongs
        said = str(problem)
        for name, key in keys.items():
            said = said.replace(f"`$.{name}`", key)
        raise BadInput(f"a value that cannot be: {said}", where=where, fix="the value as the trainer has it") from None


def _completed(figures: Figures, beside: Launch, where: str) -> Recipe:
    known = {name: value for name, value in figures.items() if value is not None}
    shape = _shape(known)
    if shape is None and known.get("model"):
        shape = shape_of(known["model"])
    known["data"] = _data(known, beside.ranks, where)
    _experts(known, where)
    if known.get("replicas", 1) > 1 and known.get("storage", "replicated") != "replicated":
        known.setdefault("shard", known["data"] // known["replicas"])
    if "layers_per_stage" in known:
        known["chunks"] = _chunks(known, shape, where)
    if "ends" in known and known.get("pipeline", 1) > 1:
        known["split"] = _split(known, shape, where)
    known |= _batch(known, beside.batch, where)
    if shape is not None:
        known |= {"shape": shape, "model": known.get("model") or model_of(shape)}
    names = {one.name for one in msgspec.structs.fields(Recipe)}
    fields = {name: value for name, value in known.items() if name in names}
    return msgspec.convert(msgspec.to_builtins(fields) | {"shape": shape}, Recipe, strict=False)


def _count(value: Any, name: str, where: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise BadInput(f"{name} is {value!r}, not a number", where=where, fix="a whole number") from None
    if number < 1:
        raise BadInput(f"{name} is {number}", where=where, fix="1 or more")
    return number


def _shape(known: Figures) -> Shape | None:
    """The model's sizes, where the file has them all."""
    said = {name.removeprefix("shape."): known.pop(name) for name in list(known) if name.startswith("shape.")}
    needed = ("layers", "hidden", "heads", "ffn", "vocab")
    if not all(said.get(name) for name in needed):
        return None
    said.setdefault("kv_heads", said["heads"])
    said.setdefault("head_dim", int(said["hidden"]) // int(said["heads"]))
    if said.get("experts"):
        said["family"] = "mixture"
    return msgspec.convert(said, Shape, strict=False)


def _chunks(known: Figures, shape: Shape | None, where: str) -> int:
    """Stages of a rank, from the layers of a stage; the embedding and the head count as a layer each."""
    if shape is None:
        raise BadInput("layers of a stage, and nobody knows how many the model has", where=where, fix="name the model")
    stages = -(-(shape.layers + 2) // known["layers_per_stage"])
    return stages // known.get("pipeline", 1)


class PipelineEnds(msgspec.Struct, frozen=True):
    """Layers of the first and the last rank of a pipeline (0: as the others), or that the embedding and the head count
    as a layer each."""

    first: int = 0
    last: int = 0
    embedding: bool = False
    head: bool = False


def _split(known: Figures, shape: Shape | None, where: str) -> tuple[int, ...]:
    """Layers of each stage as Megatron-Core shares them out: core/transformer/transformer_block.py of d98e8a6."""
    ends: PipelineEnds = known["ends"]
    layers = shape.layers if shape else layers_of(known.get("model", "")) or known.get("layers", 0)
    if not layers:
        raise BadInput("stages of unlike size, of a model whose layers nobody knows", where=where, fix="another file")
    ranks, chunks = known["pipeline"], known.get("chunks") or 1
    given = {place: count for place, count in ((0, ends.first), (ranks - 1, ends.last)) if count}
    left = layers + ends.embedding + ends.head - sum(given.values())
    each = [given.get(rank, left // max(1, ranks - len(given))) for rank in range(ranks)]
    uneven = sum(each) != layers + ends.embedding + ends.head or any(count % chunks for count in each)
    split = [count // chunks for _ in range(chunks) for count in each]
    split[0] -= ends.embedding
    split[-1] -= ends.head
    if uneven or min(split) < 1:
        what = f"{layers} layers do not divide into {ranks} x {chunks} stages with ends of {ends.first} and {ends.last}"
        raise BadInput(what, where=where, fix="another number of stages")
    return tuple(split)


def _data(known: Figures, ranks: int, where: str) -> int:
    """Ranks of the data axis: said, or what the other axes leave of all ranks."""
    said = known.get("data", 0)
    others = known.get("tensor", 1) * known.get("context", 1) * known.get("pipeline", 1)
    total = ranks or known.get("ranks")
    if said:
        return said
    if not total:
        raise BadInput("the file does not say how many ranks there are", where=where, fix="--on 64xh100")
    group = known.get("replicas", 1) * max(1, known.get("shard", 0))
    if total % (others * group):
        what = f"{total} ranks are not a multiple of the {others * group} that the file's degrees need"
        raise BadInput(what, where=where, fix=f"--on with a multiple of {others * group}")
    return total // others


def _experts(known: Figures, where: str) -> None:
    """Experts lie on ranks of the data, context and tensor axes: there must be enough of them."""
    each = known.get("experts", 1) * (known.get("expert_tensor") or known.get("tensor", 1))
    if known.get("experts", 1) == 1:
        return
    room = known["data"] * known.get("context", 1) * known.get("tensor", 1)
    if room % each:
        what = f"{known['experts']} ranks of experts do not divide among {room} ranks of a stage"
        need = each * known.get("pipeline", 1)
        raise BadInput(what, where=where, fix=f"--on with a multiple of {need}")


def _batch(known: Figures, batch: int, where: str) -> Figures:
    """Micro-batches and their size: batch = data x micro-batches x micro-batch."""
    batch = batch or known.get("batch", 0)
    micro, count, data = known.get("micro_batch", 0), known.get("microbatches", 0), known["data"]
    if not batch and not micro:
        raise BadInput("the file does not say its batch", where=where, fix="--batch 64")
    if not batch:
        return {"micro_batch": micro, "microbatches": count or 1}
    if not micro and not count:
        count = 1
    found = batch // (data * (micro or count))
    if found * data * (micro or count) != batch:
        each = f"micro-batches of {micro}" if micro else f"{count} micro-batches"
        raise BadInput(f"a batch of {batch} does not divide among {data} data ranks and {each}", where=where)
    return {"micro_batch": micro or found, "microbatches": found if micro else count}
