"""Scripts that start a training: the options of its command, and how many ranks its launcher starts.

A script is read, never run: `foretell.dialects.shell` follows it. Variables that it sets itself are filled in; others
are the environment's, as one word, which is for understanding alone: what is kept of a script has the words as they
stand there, so that no secret of the environment enters a file. What only a running shell knows ($1, $SLURM_NNODES)
begins with $; what depends on a condition that nobody knows is undecided.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from foretell.dialects._formats import Code, FileFormat, number
from foretell.dialects._python import CALLED
from foretell.dialects._table import Document, Source, UnknownValue
from foretell.dialects.shell.cases import ScriptCase, ScriptCommand, ScriptFollower
from foretell.dialects.shell.statements import parse
from foretell.dialects.shell.syntax import SimpleCommand
from foretell.dialects.shell.values import CommandWord, Expander
from foretell.errors import BadInput

_OPTION = re.compile(r"--?[A-Za-z]")
_PROGRAM = re.compile(r"[^-\s=][^\s=]*\.py")

ABSENT: Final = object()
"""In place of the value of an option that one case of a script has and another has not."""


class _Read(NamedTuple):
    """A command of a script: its options as they are understood, as they stand there, and where it is."""

    line: int
    understood: Document
    raw: Document


def read(text: str, known: Collection[str] = (), folder: Path | None = None) -> Source:
    """Options by their names without dashes; those of Slurm begin with `sbatch.`, the program is under `()`.

    Of several commands it is the one with most of the `known` options, or with most options. `folder` is where the
    script lies: files that it takes in are looked for there.
    """

    def wanted(words: Sequence[CommandWord]) -> bool:
        names = [one.text.lstrip("-").partition("=")[0] for one in words if _OPTION.match(one.text)]
        return any(name in known for name in names) if known else bool(names)

    cases = ScriptFollower(wanted, folder).followed(text)
    found = [(case, _best(case, known)) for case in cases if case.commands]
    if not found:
        return Source(_slurm(cases[0]), {})
    understood = _merged([(case, one.understood | _slurm(case)) for case, one in found])
    files = {name: content for case, _ in found for name, content in case.files}
    unread = sorted({name for case, _ in found for name in case.unread if name})
    notes = tuple(f"{name}, which the script takes in, is not read: it is not beside it" for name in unread)
    return Source(understood, found[0][1].raw, notes=notes, files=files)


def _best(case: ScriptCase, known: Collection[str]) -> _Read:
    """The command that trains. Two of one program that differ are two trainings, and nobody knows which is meant."""
    commands = [_command(one) for one in case.commands]
    count = [sum(name in known for name in one.understood) for one in commands]
    most = max(zip(count, (len(one.understood) for one in commands), strict=True))
    best = [one for one, number in zip(commands, count, strict=True) if (number, len(one.understood)) == most]
    first, last = best[0], best[-1]
    changed = [name for name in first.understood if first.understood[name] != last.understood.get(name)]
    if known and any(name in known for name in changed) and first.understood.get(CALLED) == last.understood.get(CALLED):
        name = next(name for name in changed if name in known)
        values = sorted({str(one.understood.get(name)) for one in best})
        what = f"{len(best)} commands train, with --{name} {', '.join(values)}"
        raise BadInput(what, where=f"line {first.line}", fix="a script with the one that is meant")
    return last


def _command(command: ScriptCommand) -> _Read:
    understood: Document = {}
    raw: Document = {}
    place = next((place for place, one in enumerate(command.fields) if _PROGRAM.fullmatch(one.text)), None)
    if place is not None:
        understood[CALLED] = Path(command.fields[place].text).name
    parts = [command.fields] if place is None else [command.fields[:place], command.fields[place + 1 :]]
    for part in parts:  # the launcher's options end where the program stands
        for name, value, kept in _options(part):
            understood[name], raw[name] = value, kept
    return _Read(command.line, understood, raw)


def _slurm(case: ScriptCase) -> Document:
    found: Document = {}
    for line in case.slurm:
        for statement in parse(line):
            if isinstance(statement, SimpleCommand):
                for name, value, _ in _options(Expander(dict(case.variables)).fields(statement.words)):
                    found[f"sbatch.{name}"] = value
    return found


def _merged(cases: Sequence[tuple[ScriptCase, Document]]) -> Document:
    """What all cases agree on; an option in which they differ is undecided, and says by which condition."""
    first, *others = cases
    found = dict(first[1])
    for name in dict.fromkeys(name for _, document in cases for name in document):
        value = first[1].get(name, ABSENT)
        for case, document in others:
            other = document.get(name, ABSENT)
            if other is value or (other is not ABSENT and value is not ABSENT and other == value):
                continue
            found[name] = UnknownValue(f"{_shown(value)} or {_shown(other)}{_by(first[0], case)}")
            break
    return found


def _shown(value: Any) -> str:
    return "not given" if value is ABSENT else "given" if value is True else str(value)


def _by(one: ScriptCase, other: ScriptCase) -> str:
    """The condition in which two cases differ."""
    ways = {(each.line, each.condition): each.way for each in one.chosen}
    for each in other.chosen:
        if ways.get((each.line, each.condition)) == (not each.way):
            return f", by `{each.condition}` in line {each.line}"
    return ""


def _options(words: Sequence[CommandWord]) -> Iterator[tuple[str, Any, Code]]:
    """Each --name with its value and that as it stands there: True where none follows, a list where several do."""
    name, values = "", list[CommandWord]()
    for word in [*words, None]:
        if name and word is not None and not _OPTION.match(word.text):
            values.append(word)
            continue
        if name:
            found = [_understood(one) for one in values]
            raw = Code(" ".join(one.raw for one in values))
            yield name, (found[0] if len(found) == 1 else found) if found else True, raw
        name, values = "", []
        if word is not None and _OPTION.match(word.text):
            name, equals, _ = word.text.lstrip("-").partition("=")
            if equals:
                value = CommandWord(_after(word), word.raw.partition("=")[2])
                yield name, _understood(value), Code(value.raw)
                name = ""


def _after(word: CommandWord) -> Any:
    """What stands behind the = of --name=value."""
    pieces = list(word.value)
    while pieces and "=" not in pieces[0].text:
        pieces.pop(0)
    first = pieces[0]._replace(text=pieces[0].text.partition("=")[2])
    return tuple(one for one in (first, *pieces[1:]) if one.text or one.source)


def _understood(word: CommandWord) -> Any:
    """A number, or the text; what only a running shell knows begins with $."""
    if all(piece.known for piece in word.value):
        return number(word.text)
    return word.text if word.text.startswith("$") else UnknownValue(word.text)


# --- writing ------------------------------------------------------------------------------------


def arguments(document: Document) -> list[str]:
    """A document as options: true ones alone, those that are false not at all."""
    lines: list[str] = []
    for key, value in document.items():
        if isinstance(value, Code):
            lines.append(f"--{key} {value}".rstrip())
        elif value is True:
            lines.append(f"--{key}")
        elif isinstance(value, list | tuple):
            parts = [shlex.quote(str(one)) for one in cast("list[Any]", value)]
            lines.append(f"--{key} {' '.join(parts)}")
        elif value is not False and value is not None:
            lines.append(f"--{key} {shlex.quote(str(value))}")
    return lines


def _write(document: Document, head: Sequence[str]) -> str:
    comment = [f"# {line}".rstrip() for line in head]
    return "\n".join([*comment, *arguments(document)]) + "\n"


SHELL = FileFormat("a script", (".sh", ".slurm", ".sbatch", ".bash", ".args", ".txt"), read, _write)
