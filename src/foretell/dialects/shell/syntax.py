"""The grammar of a shell script, as far as scripts that start a training use it: text in, statements out.

Nothing is looked up and nothing is run here. A word keeps its quotes, because only a word without them is split.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

# --- words --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LiteralText:
    """Text as it stands. `quote` is what it stands in: nothing, ' or "."""

    text: str
    quote: str = ""
    escaped: str = ""  # as it stands between double quotes


@dataclass(frozen=True)
class VariableUse:
    """$name, ${name}, ${name:-default}, ${name[@]}, ${#name}."""

    name: str
    raw: str
    quote: str = ""
    index: str = ""  # what stands in [ ], empty: none
    operator: str = ""  # :- - := :+ + :? % %% # ## / //
    argument: str = ""
    length: bool = False


@dataclass(frozen=True)
class SumUse:
    """$((a * b))."""

    expression: str
    raw: str
    quote: str = ""


@dataclass(frozen=True)
class CommandOutput:
    """$(command) or `command`: what only a running shell knows."""

    command: str
    raw: str
    quote: str = ""


WordPart: TypeAlias = LiteralText | VariableUse | SumUse | CommandOutput
Word: TypeAlias = tuple[WordPart, ...]

# --- statements ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShellAssignment:
    name: str
    value: Word = ()
    values: tuple[Word, ...] = ()  # of a list
    array: bool = False
    more: bool = False  # +=
    index: str = ""


@dataclass(frozen=True)
class SimpleCommand:
    """Assignments, the words of a command, where its output goes, and what is fed to it."""

    line: int
    assignments: tuple[ShellAssignment, ...] = ()
    words: tuple[Word, ...] = ()
    into: tuple[Word, ...] = ()
    fed: tuple[tuple[str, bool], ...] = ()  # a text, and whether variables in it are filled in
    piped: bool = False  # gets the output of the command before


@dataclass(frozen=True)
class ShellTest:
    """[[ ... ]] with its words, or (( ... )) with its expression."""

    line: int
    words: tuple[Word, ...] = ()
    expression: str = ""


@dataclass(frozen=True)
class AndOrList:
    """Statements with && and || between."""

    line: int
    first: Statement
    rest: tuple[tuple[str, Statement], ...]


@dataclass(frozen=True)
class Negation:
    line: int
    body: Statement


@dataclass(frozen=True)
class IfStatement:
    line: int
    branches: tuple[tuple[tuple[Statement, ...], tuple[Statement, ...]], ...]
    otherwise: tuple[Statement, ...] = ()
    text: str = ""  # of the first condition


@dataclass(frozen=True)
class CaseStatement:
    line: int
    word: Word
    branches: tuple[tuple[tuple[Word, ...], tuple[Statement, ...]], ...]


@dataclass(frozen=True)
class LoopStatement:
    """`for name in words`, or `while` and `until` with conditions."""

    line: int
    body: tuple[Statement, ...]
    name: str = ""
    words: tuple[Word, ...] = ()
    condition: tuple[Statement, ...] = ()
    until: bool = False
    text: str = ""


@dataclass(frozen=True)
class FunctionDefinition:
    line: int
    name: str
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class CommandGroup:
    line: int
    body: tuple[Statement, ...] = field(default_factory=tuple)


Statement: TypeAlias = (
    SimpleCommand
    | ShellTest
    | AndOrList
    | Negation
    | IfStatement
    | CaseStatement
    | LoopStatement
    | FunctionDefinition
    | CommandGroup
)
