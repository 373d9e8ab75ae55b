"""Configurations of other trainers: read what a person runs today, write what they should run.

One file a dialect, and a table in it. `foretell export --to NAME` writes; `--from-config FILE` reads.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from foretell.dialects._dialect import Dialect, Unsaid, WrittenConfig, notes, ranks_started, read, write
from foretell.dialects._formats import JSON, TOML, YAML
from foretell.dialects._model import shape_of
from foretell.dialects._options import unlike
from foretell.dialects._python import CALLED
from foretell.dialects._python import read as read_python
from foretell.dialects._recipe import Recipe, put_together, taken_apart
from foretell.dialects._shell import SHELL
from foretell.dialects._shell import read as read_script
from foretell.dialects._table import Document, Launch
from foretell.dialects.accelerate import NAMED
from foretell.dialects.deepspeed import STARTED
from foretell.errors import BadInput, ForetellError, unknown
from foretell.hardware.cluster import Cluster
from foretell.plan.facts import facts
from foretell.plan.plan import Plan
from foretell.plan.setting import Setting
from foretell.registry import OpenSet

__all__ = [
    "Configuration",
    "Dialect",
    "Launch",
    "Recipe",
    "Unsaid",
    "WrittenConfig",
    "dialect",
    "names",
    "open_configuration",
    "put_together",
    "read",
    "recipe_of",
    "taken_apart",
    "trainer_of",
    "write",
]

DIALECTS = OpenSet(__name__, "dialect")

LARGEST = 4 * 1024 * 1024
"""Bytes of the largest file that is read."""


def names() -> tuple[str, ...]:
    """The dialects that there are, as a person types them."""
    return tuple(name.replace("_", "-") for name in DIALECTS)


def dialect(name: str) -> Dialect:
    """A dialect by its name."""
    if name not in names():
        raise unknown("dialect", name, names()).within("--to")
    found: Dialect = DIALECTS[name.replace("-", "_")].DIALECT
    return found


def trainer_of(chosen: Dialect, plan: Plan) -> str:
    """The trainer that files of a dialect are for, under a plan."""
    return chosen.trainer(taken_apart(plan, batch=plan.ranks * plan.microbatches))


def recipe_of(setting: Setting, model: str, cluster: Cluster | None) -> Recipe:
    """The figures of a setting; `model` is as a person types it."""
    return taken_apart(
        setting.plan,
        batch=setting.job.batch,
        model=model,
        shape=shape_of(model),
        sequence=facts(setting.graph).sequence,
        optimizer=setting.job.optimizer,
        per_node=cluster.ranks_per_node if cluster else 8,
    )


class Configuration(NamedTuple):
    """A file that was recognised."""

    file: str
    dialect: Dialect
    document: Document

    def recipe(self, beside: Launch) -> Recipe:
        """What it says, with what is known beside it."""
        return read(self.dialect, self.document, beside, self.file)

    @property
    def started(self) -> int:
        """The ranks that it starts itself; 0: it does not say."""
        return ranks_started(self.dialect, self.document, self.file)

    @property
    def unlike(self) -> str:
        """What makes its model none of the zoo's; empty: nothing."""
        return unlike(self.document, self.dialect.unlike)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know about how it was read."""
        return notes(self.dialect, self.document, self.file)


def open_configuration(file: str) -> Configuration:
    """A file in the dialect that knows most of its keys. Of a Python file `FILE.py:function` names the one meant."""
    path, _, function = file.partition(":") if ".py:" in file else (file, "", "")
    text = _text(Path(path), file)
    found: list[tuple[tuple[int, int], Dialect, Document]] = []
    problems: list[ForetellError] = []
    for name, reader in _readers(Path(path), text, function):
        try:
            document = reader(text)
            _check_letters(document)
        except ForetellError as problem:
            problems.append(problem)
            continue
        for one in map(dialect, names()):
            if one.format.name == name:
                found.append((_likeness(one, document), one, document))
    known = [one for one in found if one[0] > (0, 0)]
    if known:
        _, best, document = max(known, key=lambda one: one[0])
        return _named(Path(path), document) or Configuration(file, best, document)
    if problems:
        raise problems[0].within(file)
    raise BadInput("no trainer's configuration that is known here", where=file, fix=f"one of {', '.join(names())}")


def _likeness(one: Dialect, document: Document) -> tuple[int, int]:
    """How many keys of a document a dialect knows, those that tell it from others too; and how many of the latter."""
    known = sum(key in document for key in one.keys if key != CALLED)
    own = sum(key in document for key in one.telling)
    return (known + own if known else 0, own if known else 0)


def _check_letters(document: Document) -> None:
    """Refuse halves of letters, which escapes such as \\ud800 make: no answer could hold them."""
    for key, value in document.items():
        try:
            f"{key}{value}".encode()
        except UnicodeEncodeError as problem:
            raise BadInput(f"{key!a} has half a letter: {problem.object[problem.start]!a}") from None


def _named(path: Path, document: Document) -> Configuration | None:
    """DeepSpeed's file, where one of Accelerate names it, with the ranks that Accelerate starts."""
    other = path.parent / str(document.get(NAMED) or "")
    if not document.get(NAMED) or not other.is_file():
        return None
    found = open_configuration(str(other))
    return found._replace(document=found.document | {STARTED: document.get("num_processes")})


def _text(path: Path, file: str) -> str:
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise BadInput(
            f"{path} cannot be read: {problem.strerror}", where="--from-config", fix="another file"
        ) from None
    if len(content) > LARGEST:
        raise BadInput(f"{len(content):,} bytes are no configuration", where=file, fix=f"at most {LARGEST:,}")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadInput("a binary file, not a configuration", where=file, fix="a text file") from None


def _readers(path: Path, text: str, function: str) -> list[tuple[str, Callable[[str], Document]]]:
    """The format that a name's ending tells, or those that a text may be."""
    if path.suffix == ".py":
        return [("Python", functools.partial(read_python, function=function, path=path.resolve()))]
    options = {key for one in map(dialect, names()) if one.format is SHELL for key in one.keys}
    script = dataclasses.replace(SHELL, read=functools.partial(read_script, known=options, folder=path.parent))
    known = {one.name: one for one in (TOML, JSON, YAML, script)}
    by_name = [one for one in known.values() if path.suffix.lower() in one.suffixes]
    guessed = [JSON] if text.lstrip().startswith("{") else [script, TOML, YAML]
    return [(one.name, one.read) for one in by_name or guessed]
