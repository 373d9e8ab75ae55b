"""A script followed from top to bottom without being run: which commands it comes to, and with which words.

Where a condition cannot be known (a file, the output of a command, a variable that nobody set), both ways are followed
as two cases to the end of the script. What they differ in is undecided, and what they have in common is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from foretell.dialects.shell.conditions import tested
from foretell.dialects.shell.statements import parse
from foretell.dialects.shell.sums import computed
from foretell.dialects.shell.syntax import (
    AndOrList,
    CaseStatement,
    CommandGroup,
    FunctionDefinition,
    IfStatement,
    LiteralText,
    LoopStatement,
    Negation,
    ShellTest,
    SimpleCommand,
    Statement,
)
from foretell.dialects.shell.values import (
    LONGEST,
    CommandWord,
    Expander,
    Pieces,
    ShellVariable,
    TextPiece,
    again,
    text_of,
)
from foretell.errors import BadInput

CASES: Final = 64
"""Ways through a script that are followed."""

TIMES: Final = 64
"""Of a loop."""

DEEPEST: Final = 12
"""Scripts inside scripts, functions inside functions."""

STEPS: Final = 20_000
"""Statements that are followed in all."""

_QUIET: Final = ("echo", "printf", "mkdir", "cd", "rm", "cp", "mv", "ls", "touch", "chmod", "pip", "wget", "set")
_LAUNCH: Final = re.compile(r"(?:.*/)?(?:ba|z|da)?sh")


class ScriptCommand(NamedTuple):
    """A command that the script comes to."""

    line: int
    fields: tuple[CommandWord, ...]


class UnknownCondition(NamedTuple):
    """A condition that nobody knows, and which way a case goes."""

    line: int
    condition: str
    way: bool


@dataclass(frozen=True)
class ScriptCase:
    """One way through the script, up to a statement."""

    variables: dict[str, ShellVariable]
    commands: tuple[ScriptCommand, ...] = ()
    chosen: tuple[UnknownCondition, ...] = ()
    files: tuple[tuple[str, str], ...] = ()  # that the script writes with what it feeds to cat
    slurm: tuple[str, ...] = ()  # lines of #SBATCH
    unread: tuple[str, ...] = ()  # files that it takes in and that are not there
    over: bool = False


class ScriptFollower:
    """Follows a script. `wanted` says whether a command is one to keep; `folder` is where the script lies."""

    def __init__(self, wanted: Callable[[Sequence[CommandWord]], bool], folder: Path | None = None) -> None:
        self._wanted = wanted
        self._folder = folder
        self._functions: dict[str, FunctionDefinition] = {}
        self._steps = 0

    def followed(self, text: str) -> list[ScriptCase]:
        """All ways through a script."""
        return self._script(text, [ScriptCase({})], None, 0)

    def _script(
        self, text: str, worlds: list[ScriptCase], arguments: tuple[Pieces, ...] | None, depth: int
    ) -> list[ScriptCase]:
        if depth > DEEPEST:
            raise BadInput("scripts inside scripts without end", fix="the command line itself")
        lines = tuple(re.findall(r"^[ \t]*#SBATCH[ \t]+(.*)$", text, re.MULTILINE))
        worlds = [replace(world, slurm=(*world.slurm, *lines)) for world in worlds]
        return self._all(parse(text), worlds, _Frame(arguments, depth))

    def _all(self, body: Sequence[Statement], worlds: list[ScriptCase], frame: _Frame) -> list[ScriptCase]:
        for statement in body:
            self._steps += len(worlds)
            if self._steps > STEPS:
                raise BadInput("a script with loops inside loops", fix="the command line itself")
            worlds = _distinct(
                [after for world in worlds for after in ([world] if world.over else self._one(statement, world, frame))]
            )
            if len(worlds) > CASES:
                unknown = worlds[-1].chosen[-1]
                what = f"more than {CASES} cases: only a running shell knows {unknown.condition!r} and others"
                raise BadInput(what, where=f"line {unknown.line}", fix="the command line itself")
        return worlds

    # --- statements

    def _one(self, statement: Statement, world: ScriptCase, frame: _Frame) -> list[ScriptCase]:
        match statement:
            case SimpleCommand():
                return self._simple(statement, world, frame)
            case CommandGroup():
                return self._all(statement.body, [world], frame)
            case FunctionDefinition():
                self._functions[statement.name] = statement
                return [world]
            case IfStatement():
                return self._if(statement, world, frame)
            case CaseStatement():
                return self._case(statement, world, frame)
            case LoopStatement():
                return self._loop(statement, world, frame)
            case AndOrList():
                return [after for after, _ in self._chain(statement, world, frame)]
            case ShellTest() | Negation():
                return [after for after, _ in self._condition((statement,), world, frame)]

    def _condition(
        self, body: Sequence[Statement], world: ScriptCase, frame: _Frame, text: str = ""
    ) -> Iterator[tuple[ScriptCase, bool | None]]:
        """What the last statement says, in each way through those before."""
        *before, last = body
        for one in self._all(before, [world], frame):
            yield from self._says(last, one, frame)

    def _says(self, last: Statement, world: ScriptCase, frame: _Frame) -> Iterator[tuple[ScriptCase, bool | None]]:
        expander = Expander(dict(world.variables), frame.arguments)
        match last:
            case ShellTest():
                yield world, _tested(last, expander)
            case Negation():
                for after, found in self._says(last.body, world, frame):
                    yield after, None if found is None else not found
            case AndOrList():
                yield from self._chain(last, world, frame)
            case SimpleCommand():
                fields = expander.fields(last.words)
                name = fields[0].text if fields else ":"
                if name in ("[", "test"):
                    inside = [one.value for one in fields[1 : -1 if name == "[" else None]]
                    yield world, tested(inside, expander.number_of)
                    return
                known = {"true": True, ":": True, "false": False}.get(name)
                for after in self._simple(last, world, frame):
                    yield after, True if last.assignments and not last.words else known
            case _:
                for after in self._one(last, world, frame):
                    yield after, None

    def _chain(self, chain: AndOrList, world: ScriptCase, frame: _Frame) -> Iterator[tuple[ScriptCase, bool | None]]:
        cases: list[tuple[ScriptCase, bool | None]] = list(self._says(chain.first, world, frame))
        for sign, statement in chain.rest:
            following: list[tuple[ScriptCase, bool | None]] = []
            for one, found in cases:
                if one.over:
                    following.append((one, found))
                    continue
                for after, way in _ways(one, found, f"{sign} in a chain", chain.line):
                    if way == (sign == "&&"):
                        following += self._says(statement, after, frame)
                    else:
                        following.append((after, way))
            cases = following
        yield from cases

    def _if(self, statement: IfStatement, world: ScriptCase, frame: _Frame) -> list[ScriptCase]:
        done: list[ScriptCase] = []
        left = [world]
        for place, (condition, body) in enumerate(statement.branches):
            following: list[ScriptCase] = []
            text = statement.text if place == 0 else "elif"
            for one in left:
                for after, found in self._condition(condition, one, frame):
                    for way, taken in _ways(after, found, text, statement.line):
                        if taken:
                            done += self._all(body, [way], frame)
                        else:
                            following.append(way)
            left = following
        return [*done, *self._all(statement.otherwise, left, frame)] if left else done

    def _case(self, statement: CaseStatement, world: ScriptCase, frame: _Frame) -> list[ScriptCase]:
        expander = Expander(dict(world.variables), frame.arguments)
        left, done = [world], list[ScriptCase]()
        value = expander.value(statement.word)
        for patterns, body in statement.branches:
            found: bool | None = False
            for pattern in patterns:
                words = (value, (TextPiece("=="),), expander.value(pattern))
                said = True if _plain(pattern) == "*" else tested(words, expander.number_of)
                found = True if said or found else None if said is None else found
            following: list[ScriptCase] = []
            for one in left:
                for way, taken in _ways(one, found, f"case {text_of(value)}", statement.line):
                    if taken:
                        done += self._all(body, [way], frame)
                    else:
                        following.append(way)
            left = following
        return done + left

    def _loop(self, statement: LoopStatement, world: ScriptCase, frame: _Frame) -> list[ScriptCase]:
        if statement.words:
            expander = Expander(dict(world.variables), frame.arguments)
            worlds = [replace(world, variables=expander.variables)]
            for one in expander.fields(statement.words)[:TIMES]:
                worlds = [_with(after, statement.name, one.value) for after in worlds]
                worlds = self._all(statement.body, worlds, frame)
            return worlds
        if statement.name:  # for ((...)), or over arguments that nobody gave
            unknown = (TextPiece(f"${statement.name}", f"${statement.name}", known=False),)
            body = self._all(statement.body, [_with(world, statement.name, unknown)], frame)
            return [world, *(replace(one, chosen=(*one.chosen, UnknownCondition(statement.line, statement.text, True)))
                             for one in body)]  # fmt: skip
        done: list[ScriptCase] = []
        for after, found in self._condition(statement.condition, world, frame):
            wanted = None if found is None else found != statement.until
            for way, taken in _ways(after, wanted, statement.text, statement.line):
                done += self._all(statement.body, [way], frame) if taken else [way]
        return done

    # --- commands

    def _simple(self, statement: SimpleCommand, world: ScriptCase, frame: _Frame) -> list[ScriptCase]:
        expander = Expander(dict(world.variables), frame.arguments)
        for assignment in statement.assignments:
            expander.assign(assignment)
        fields = expander.fields(statement.words)
        own = not statement.words or _plain(statement.words[0]) in ("export", "local", "declare", "readonly", "typeset")
        after = replace(world, variables=expander.variables if own else world.variables)
        if own or not fields:
            return [after]
        inner = replace(world, variables=expander.variables)
        found = self._command(statement, fields, inner, frame)
        if any(_plain(word) for word in statement.words[:1]) and statement.assignments:  # NAME=1 command
            found = [replace(one, variables=world.variables) for one in found]
        return found

    def _command(
        self, statement: SimpleCommand, fields: list[CommandWord], world: ScriptCase, frame: _Frame
    ) -> list[ScriptCase]:
        name = fields[0].text
        deeper = _Frame(frame.arguments, frame.depth + 1)
        if name in ("exit", "return", "exec") and len(fields) <= 2:
            return [replace(world, over=name != "return")]
        if name in ("unset",):
            gone = {one.text for one in fields[1:]}
            return [replace(world, variables={key: one for key, one in world.variables.items() if key not in gone})]
        if name in self._functions:
            arguments = tuple(one.value for one in fields[1:])
            return self._all(self._functions[name].body, [world], _Frame(arguments, frame.depth + 1))
        if name in (".", "source"):
            return self._taken_in(fields[1:2], world, frame.arguments, deeper.depth)
        if name == "eval":
            return self._script(
                " ".join(again(one.value) for one in fields[1:]), [world], frame.arguments, deeper.depth
            )
        expander = Expander(dict(world.variables), frame.arguments)
        bodies = [again(expander.filled(text)) if filled else text for text, filled in statement.fed]
        if name == "cat" and bodies and statement.into:
            target = text_of(expander.value(statement.into[0]))
            text = "\n".join(text_of(expander.filled(text)) if filled else text for text, filled in statement.fed)
            return [replace(world, files=(*world.files, (Path(target).name, text)))]
        if bodies and (name == "sbatch" or _LAUNCH.fullmatch(name)):
            return self._script("\n".join(bodies), [world], frame.arguments, deeper.depth)
        inside = _inside(fields)
        if inside is not None:
            return self._script(inside, [world], frame.arguments, deeper.depth)
        if name == "sbatch" or _LAUNCH.fullmatch(name):
            return self._started(name, fields[1:], world, deeper.depth)
        if name not in _QUIET and self._wanted(fields):
            return [_kept(statement, fields, world)]
        return [world]

    def _taken_in(
        self, file: Sequence[CommandWord], world: ScriptCase, arguments: tuple[Pieces, ...] | None, depth: int
    ) -> list[ScriptCase]:
        """`source FILE`: one that lies beside the script is followed, another is told."""
        name = Path(file[0].text.strip("`'\"")).name if file else ""
        path = self._folder / name if self._folder and name else None
        if path is None or not path.is_file() or path.stat().st_size > LONGEST:
            return [replace(world, unread=(*world.unread, name))]
        return self._script(path.read_text(errors="replace"), [world], arguments, depth)

    def _started(self, name: str, words: Sequence[CommandWord], world: ScriptCase, depth: int) -> list[ScriptCase]:
        """`sbatch --nodes 4 FILE` or `bash FILE`: the file is followed, with what was exported and what it is given."""
        place = next(
            (place for place, one in enumerate(words) if one.text.endswith((".sh", ".sbatch", ".slurm"))), None
        )
        if place is None:
            return [world]
        arguments = tuple(one.value for one in words[place + 1 :]) or None
        options = " ".join(one.raw for one in words[:place]) if name == "sbatch" else ""
        found = self._taken_in(words[place : place + 1], world, arguments, depth)
        return [replace(one, slurm=(*one.slurm, options) if options else one.slurm) for one in found]


class _Frame(NamedTuple):
    """What belongs to a function or a script inside another."""

    arguments: tuple[Pieces, ...] | None
    depth: int


def _ways(world: ScriptCase, found: bool | None, condition: str, line: int) -> Iterator[tuple[ScriptCase, bool]]:
    if found is not None:
        yield world, found
        return
    for way in (True, False):
        yield replace(world, chosen=(*world.chosen, UnknownCondition(line, condition, way))), way


def _distinct(worlds: list[ScriptCase]) -> list[ScriptCase]:
    """Cases that have come to the same are one; which way it went does not matter any more."""
    found: list[ScriptCase] = []
    for world in worlds:
        same = next((one for one in found if replace(one, chosen=world.chosen) == world), None)
        if same is None:
            found.append(world)
    return found


def _tested(test: ShellTest, expander: Expander) -> bool | None:
    if test.expression:
        text = text_of(expander.filled(test.expression)) if "$" in test.expression else test.expression
        value = computed(text, expander.number_of)
        return None if value is None else value != 0
    return tested([expander.value(word) for word in test.words], expander.number_of)


def _with(world: ScriptCase, name: str, value: Pieces) -> ScriptCase:
    return replace(world, variables={**world.variables, name: ShellVariable((value,))})


def _plain(word: Sequence[object]) -> str:
    return "".join(part.text for part in word if isinstance(part, LiteralText))


def _kept(statement: SimpleCommand, fields: Sequence[CommandWord], world: ScriptCase) -> ScriptCase:
    return replace(world, commands=(*world.commands, ScriptCommand(statement.line, tuple(fields))))


def _inside(fields: Sequence[CommandWord]) -> str | None:
    """The script of `bash -c SCRIPT`, also behind `srun` and other launchers."""
    for place, one in enumerate(fields[:-1]):
        if _LAUNCH.fullmatch(one.text):
            rest = fields[place + 1 :]
            flags = next((number for number, word in enumerate(rest) if not word.text.startswith("-")), len(rest))
            if any("c" in word.text for word in rest[:flags]) and flags < len(rest):
                return again(rest[flags].value)
    return None
