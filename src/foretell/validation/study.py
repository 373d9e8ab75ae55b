"""A measured run as the setting that it was, or the reason why it cannot be compared.

A study family (`studies/`) turns each line of a file into a `MeasuredRun` or a `NotScored`. What a line leaves
blank is a stated default (`assumed` says which) or, where there is none, every plan that the run may have been
(`others`); runs with either are scored apart as well. Without a default the line is not scored, and its reason is
counted. A row says which memory number was printed, and of which rank.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec

from foretell.errors import BadInput, ForetellError, first_of
from foretell.files import decode_json, read_text
from foretell.model import zoo
from foretell.plan.job import Job, make_job
from foretell.plan.plan import Plan
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.precision import Precision
from foretell.plan.text import parse
from foretell.registry import OpenSet

GIB: Final = 2**30
T = TypeVar("T")

Outcome: TypeAlias = Literal["ok", "oom", "failed"]
"""What became of the run: it finished, it ran out of memory, or it failed and nobody says why."""

Number: TypeAlias = Literal["allocated", "reserved", "device"]
"""Which memory: tensors; with the allocator's cache; with the context, as the device reports it."""

Rank: TypeAlias = Literal["worst", "first stage"]

Timed: TypeAlias = Literal["step", "passes"]
"""What was timed: a whole step, or its forward and backward passes without the optimizer's step."""

Line: TypeAlias = Mapping[str, str]


class MeasuredPeak(msgspec.Struct, frozen=True):
    """A measured peak: which number it is, and of which rank."""

    bytes: float
    number: Number
    rank: Rank


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its source printed it, and how that is known."""

    figure: float
    unit: str  # s, or tokens/s/GPU
    source: str
    known: str  # read: in the source itself; summary: in somebody's summary of it; recalled: not looked up again
    seen: bool  # it is scored in a published study too, so constants may have been chosen with it in view
    note: str  # why the prediction is off, or what the source leaves open
    memory_before: float = 0.0  # bytes of a device that an earlier version of this package foretold; 0: not asked


class StepParts(msgspec.Struct, frozen=True):
    """Seconds of a step: of messages that are waited for, and of all else."""

    compute: float
    messages: float


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what was trained, how, on what, and what was measured."""

    id: str
    model: str  # in the zoo's words
    job: Job
    plan: Plan
    cluster: str  # as `foretell list clusters` and the cluster grammar write it
    trainer: str
    step_seconds: float = 0.0  # 0: not measured
    claimed_seconds: float = 0.0  # what the source itself predicts; 0: nothing
    memory: tuple[MeasuredPeak, ...] = ()
    outcome: Outcome = "ok"
    subsets: tuple[str, ...] = ()
    timed: Timed = "step"
    publication: Publication | None = None
    assumed: tuple[str, ...] = ()  # what the source does not say, in words
    others: tuple[Plan, ...] = ()  # further plans that the run may have been
    parts: StepParts | None = None  # of the step, where its source tells them apart
    claimed_parts: StepParts | None = None  # of what the source itself predicts
    release: str = ""  # of the software, where its source has several; empty: one

    @property
    def choice(self) -> tuple[str, ...]:
        """Rows with the same answer are ways to do the same thing with the same software: their order is compared.

        Adapters instead of all weights are another thing: they train something else. So is another release of the
        software: whoever had one container could not choose what another one does.
        """
        trained = str(self.plan.policy(Lora).rank > 0)
        return (
            self.model,
            self.cluster,
            self.release,
            trained,
            *(str(value) for value in msgspec.structs.astuple(self.job)),
        )


class MeasuredCall(msgspec.Struct, frozen=True, kw_only=True):
    """One collective or kernel, timed alone, with its price: no model, job or plan."""

    id: str
    what: str
    seconds: float
    predicted: float
    chosen: str = ""  # the algorithm that the price is of
    subsets: tuple[str, ...] = ()


class NotScored(msgspec.Struct, frozen=True):
    """A line that cannot be compared, and why."""

    id: str
    reason: str


class Unmapped(Exception):
    """Why a line cannot be compared, on its way to a `NotScored`."""


class StudyFamily(Protocol):
    """What a file in `studies/` has."""

    COLUMNS: frozenset[str]
    """Columns (or keys) that a file of this family has, beside any others."""

    def rows(self, lines: list[Line]) -> Iterator[MeasuredRun | MeasuredCall | NotScored]:
        """Every line, mapped; in order. All are runs, or all are calls."""
        ...


class Study(msgspec.Struct, frozen=True):
    """A file of measured runs, mapped."""

    name: str
    family: str
    rows: tuple[MeasuredRun, ...]
    not_scored: tuple[NotScored, ...]
    calls: tuple[MeasuredCall, ...] = ()

    @property
    def total(self) -> int:
        return len(self.rows) + len(self.calls) + len(self.not_scored)


FAMILIES: Final = OpenSet("foretell.validation.studies", "study")


def read(path: Path) -> Study:
    """The study that a file holds: CSV with the columns of a family, or JSON lines with its keys."""
    lines = _json_lines(path) if path.suffix in (".jsonl", ".json") else csv_lines(path)
    name, family = recognise(lines, path)
    mapped = list(family.rows(_whole_lines(lines, family.COLUMNS, path)))
    rows = tuple(item for item in mapped if isinstance(item, MeasuredRun))
    calls = tuple(item for item in mapped if isinstance(item, MeasuredCall))
    return Study(path.stem, name, rows, tuple(item for item in mapped if isinstance(item, NotScored)), calls)


LONGEST_CELL: Final = 4000
"""Letters of a cell: remarks are sentences."""

LARGEST: Final = 1e18
"""No number of something, and no measured number, is larger than this."""


def _whole_lines(lines: list[Line], columns: Iterable[str], path: Path) -> list[Line]:
    """Lines that have a cell, maybe a blank one, in each of these columns."""
    for number, line in enumerate(lines, 1):
        for column, cell in line.items():
            if len(cell) > LONGEST_CELL:
                what = f"{column[:80]} has {len(cell):,} letters, where at most {LONGEST_CELL:,} are read"
                raise BadInput(what, where=f"{path}, run {number}")
    blank = dict.fromkeys(columns, "")
    return [blank | dict(line) for line in lines]


def recognise(lines: list[Line], path: Path) -> tuple[str, StudyFamily]:
    """The family whose columns a file has; of several the one that asks for most."""
    if not lines:
        raise BadInput("the file holds no run", where=str(path), fix="a header and one line for each run")
    columns = {column for line in lines[:50] for column in line}
    families = {name: cast("StudyFamily", FAMILIES[name]) for name in FAMILIES}
    fitting = [name for name, family in families.items() if columns >= family.COLUMNS]
    if not fitting:
        nearest = max(families, key=lambda name: len(families[name].COLUMNS & columns) / len(families[name].COLUMNS))
        missing = first_of(sorted(families[nearest].COLUMNS - columns), 6)
        raise BadInput(
            "no study has these columns", where=str(path), fix=f"{nearest} is nearest; it has {missing} besides"
        )
    best = max(fitting, key=lambda name: len(families[name].COLUMNS))
    return best, families[best]


def csv_lines(path: Path) -> list[Line]:
    """The lines of a table, by column."""
    text = read_text(path, "study", fix="a CSV file in UTF-8")
    try:
        lines = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as problem:
        raise BadInput(f"cannot read the study: {problem}", where=str(path), fix="a CSV file in UTF-8") from None
    return [{key.strip(): (value or "").strip() for key, value in _named(line)} for line in lines]


def _named(line: dict[str | Any, str | Any]) -> Iterator[tuple[str, str]]:
    """The cells that have a column; a line may have more of them."""
    return ((key, value) for key, value in line.items() if isinstance(key, str))


def _json_lines(path: Path) -> list[Line]:
    found: list[Line] = []
    text = read_text(path, "study", fix="JSON lines in UTF-8")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        content = decode_json(line, dict[str, Any], "JSON object", f"{path}, line {number}", "one object on each line")
        found.append({key: _cell(value) for key, value in content.items()})
    return found


def _cell(value: Any) -> str:
    """A JSON value as a table's cell; null is a blank."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


# what families share


def mapped(lines: Iterable[tuple[str, Line]], one: Callable[[str, Line], T]) -> Iterator[T | NotScored]:
    """Map each line with `one(id, line)`; a reason or a setting that cannot be written is not scored."""
    for name, line in lines:
        try:
            yield one(name, line)
        except Unmapped as reason:
            yield NotScored(name, str(reason))
        except ForetellError as problem:
            yield NotScored(name, f"cannot be written: {problem.what}")


def whole(line: Line, column: str) -> int:
    """A number of something, 1 or more; a blank is a reason."""
    return whole_or(line, column, 0) or _blank(column)


def whole_or(line: Line, column: str, otherwise: int) -> int:
    """A number of something, or what a blank means by the file's own convention."""
    number = real(line, column)
    if not number:
        return otherwise
    if number != int(number) or number < 0:
        raise Unmapped(f"{column} is {line[column]}")
    return int(number)


def real(line: Line, column: str) -> float:
    """A measured number; 0 for a blank."""
    text = line.get(column, "")
    if not text:
        return 0.0
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        raise Unmapped(f"{column} is not a number") from None
    if not 0 <= number <= LARGEST:
        raise Unmapped(f"{column} is {text}")
    return number


def meaning(line: Line, column: str, known: Mapping[str, T]) -> T:
    """What a word stands for that must be one of these."""
    word = stated(line, column)
    if word not in known:
        raise Unmapped(f"{column} is {word}, none of {', '.join(known)}")
    return known[word]


def stated(line: Line, column: str) -> str:
    """A word that must be there."""
    return line.get(column, "") or str(_blank(column))


def _blank(column: str) -> int:
    raise Unmapped(f"{column} is not stated")


def spec(base: str, **fields: object) -> str:
    """A model in the zoo's words; flags as `true` and `false`, fields that are None left out."""
    said = {key: value for key, value in fields.items() if value is not None}
    texts = (f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in said.items())
    return f"{base}:{','.join(texts)}" if said else base


def row(
    name: str,
    model: str,
    plan: str,
    cluster: str,
    *,
    batch: int,
    trainer: str,
    optimizer: str = "",
    sequence: int = 0,
    image: int = 0,
    step_seconds: float = 0.0,
    claimed_seconds: float = 0.0,
    memory: Iterable[MeasuredPeak] = (),
    outcome: Outcome = "ok",
    subsets: Iterable[str] = (),
) -> MeasuredRun:
    """A row; the model gets the type of activations of the plan's precision, unless it names its own."""
    parsed = _parsed(plan)
    text = typed(model, parsed)
    _known(text)
    job = make_job(batch, trainer=trainer, optimizer=optimizer, sequence=sequence, image=image)
    return MeasuredRun(
        id=name,
        model=text,
        job=job,
        plan=parsed,
        cluster=cluster,
        trainer=trainer,
        step_seconds=step_seconds,
        claimed_seconds=claimed_seconds,
        memory=tuple(memory),
        outcome=outcome,
        subsets=tuple(dict.fromkeys(tag for tag in subsets if tag)),
    )


_parsed = functools.cache(parse)


@functools.cache
def _known(model: str) -> None:
    """A model that nobody has, or a field that does not fit, is a reason now, not a surprise later."""
    if zoo.canonical(model).partition(":")[0] in zoo.names() or not _of_package(model):
        zoo.parse(model)


def _of_package(model: str) -> bool:
    from foretell.model.importers import packages  # seldom asked, and slow to import

    return packages.parse(model) is not None


def typed(model: str, plan: Plan) -> str:
    """The model in the plan's type of activations, where it can be built in any and none is named."""
    name, _, rest = model.partition(":")
    wanted = plan.policy(Precision).format.activation
    if name not in zoo.names() and not _of_package(model):
        return model
    own = zoo.names()[name].dtype if name in zoo.names() else "fp32"
    if re.search(r"(^|,)dtype=", rest) or own == wanted:
        return model
    return f"{model}{',' if rest else ':'}dtype={wanted}"


def written(*parts: str) -> str:
    """The parts of a plan, axes of one rank left out; `dp1` if none is left.

    A data axis of one rank stays where it has options: `dp1:zero1` shares states among the context ranks.
    """
    kept = [part for part in parts if part and not re.fullmatch(r"dp1|(?!dp)[a-z]+1(:.*)?", part)]
    axes = [part for part in kept if not part.startswith("+")]
    return " ".join(kept if axes else ["dp1", *kept])
