"""What the words of a script come to: variables filled in, words split as the shell splits them.

A piece of a value remembers how it stands in the script, because that is what is kept of it: values of the environment
serve for understanding alone, so that no secret of it enters a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Final, NamedTuple, TypeAlias

from foretell.dialects.shell.sums import computed
from foretell.dialects.shell.syntax import (
    CommandOutput,
    LiteralText,
    ShellAssignment,
    SumUse,
    VariableUse,
    Word,
    WordPart,
)
from foretell.dialects.shell.words import words_of
from foretell.errors import BadInput
from foretell.secrets import looked_up

LONGEST: Final = 1_000_000
"""Characters of a value after its variables were filled in."""

DEEPEST: Final = 20
"""Defaults inside defaults."""


class TextPiece(NamedTuple):
    """Part of a value.

    source   how it stands in the script; empty: the text is the script's own
    known    whether the text is what a run has, or stands for what only a running shell knows
    given    whether it is an argument of the script ($1): the script is read as it runs without any
    """

    text: str
    source: str = ""
    known: bool = True
    given: bool = False


Pieces: TypeAlias = tuple[TextPiece, ...]


@dataclass(frozen=True)
class ShellVariable:
    values: tuple[Pieces, ...]
    array: bool = False


class CommandWord(NamedTuple):
    """A word of a command after all was filled in."""

    value: Pieces
    raw: str

    @property
    def text(self) -> str:
        return text_of(self.value)


def text_of(value: Pieces) -> str:
    """A value as it is shown: what is not known stands as in the script."""
    return "".join(piece.text for piece in value)


def decided(value: Pieces) -> str | None:
    """A value in a condition, None where only a running shell knows it."""
    if all(piece.known or piece.given for piece in value):
        return "".join("" if piece.given else piece.text for piece in value)
    return None


def again(value: Pieces) -> str:
    """A value as the text of a script: what is not the script's own is looked up there again."""
    return "".join(piece.source or piece.text for piece in value)


@dataclass
class Expander:
    """Fills words in. `arguments` are $1, $2, ...; None: those of the script itself, of which there are none."""

    variables: dict[str, ShellVariable] = field(default_factory=dict[str, ShellVariable])
    arguments: tuple[Pieces, ...] | None = None

    def number_of(self, name: str) -> str | None:
        """A variable's text for a sum; None where it is not known. A name that nobody set counts as 0, as in bash."""
        value = self._looked_up(name, name)
        if value is None:
            return "0" if name in self.variables else None
        return decided(value)

    def fields(self, words: Iterable[Word]) -> list[CommandWord]:
        """The words of a command."""
        return [one for word in words for one in self._split(word)]

    def value(self, word: Word, depth: int = 0) -> Pieces:
        """A word that is not split: what is assigned, or compared."""
        pieces = tuple(piece for part in word for piece in self._joined(part, depth))
        if sum(len(piece.text) for piece in pieces) > LONGEST:
            raise BadInput("a script whose variables grow without end", fix="the command line itself")
        return pieces

    def filled(self, text: str) -> Pieces:
        """The body of a heredoc, or an argument of ${ }."""
        return self.value(words_of(text))

    def assign(self, one: ShellAssignment) -> None:
        """NAME=value, NAME+=value, NAME=(a list), NAME[2]=value."""
        before = self.variables.get(one.name)
        values = before.values if before else ()
        if one.array:
            more = tuple(found.value for found in self.fields(one.values))
            self.variables[one.name] = ShellVariable((*(values if one.more else ()), *more), array=True)
            return
        value = self.value(one.value)
        if one.index:
            place = decided(self.filled(one.index))
            inside = place is not None and place.isdecimal() and int(place) < len(values)
            at = int(place) if inside and place else len(values)
            self.variables[one.name] = ShellVariable((*values[:at], value, *values[at + 1 :]), array=True)
            return
        if one.more and before and not before.array:
            value = (*before.values[0], *value)
        self.variables[one.name] = ShellVariable((value,))

    # --- one word

    def _split(self, word: Word) -> list[CommandWord]:
        done: list[CommandWord] = []
        pieces: list[TextPiece] = []
        raw, there = "", False

        def end() -> None:
            nonlocal pieces, raw, there
            if there or pieces:
                done.append(CommandWord(tuple(pieces), raw))
            pieces, raw, there = [], "", False

        for part in word:
            values = self._values(part)
            spaced = not part.quote and not isinstance(part, LiteralText)
            if isinstance(part, VariableUse) and part.index == "*" and part.quote:
                values = (_with_blanks(values),)
            for place, value in enumerate(values):
                if place:
                    end()
                there = there or bool(part.quote) or bool(value)
                for piece in value:
                    if not spaced or piece.source:
                        pieces.append(piece)
                        raw = _beside(raw, _raw(piece, part))
                        continue
                    found = re.split(r"[ \t\n]+", piece.text)
                    for number, text in enumerate(found):
                        if number:
                            end()
                        if text:
                            pieces.append(TextPiece(text))
                            raw += text if _SAFE.fullmatch(text) else shlex.quote(text)
                if spaced and value and not text_of(value).strip() and not pieces:
                    there = False
        end()
        return done

    def _joined(self, part: WordPart, depth: int) -> Pieces:
        return _with_blanks(self._values(part, depth))

    def _values(self, part: WordPart, depth: int = 0) -> tuple[Pieces, ...]:
        """What a part comes to: one value, or those of a list."""
        if depth > DEEPEST:
            raise BadInput("a script whose variables grow without end", fix="the command line itself")
        if isinstance(part, LiteralText):
            return ((TextPiece(part.text),),)
        if isinstance(part, SumUse):
            return ((self._sum(part),),)
        if isinstance(part, CommandOutput):
            return ((TextPiece(part.raw, part.raw, known=False),),)
        if part.length:
            return ((TextPiece(self._length(part)),),)
        if part.name in ("@", "*") and not part.operator:
            return self.arguments or ()
        variable = self.variables.get(part.name)
        if part.index in ("@", "*") and not part.operator and (variable is None or variable.array):
            return variable.values if variable else ()  # no environment hands lists on
        return (self._parameter(part, depth),)

    def _sum(self, part: SumUse) -> TextPiece:
        text = text_of(self.filled(part.expression)) if "$" in part.expression else part.expression
        found = computed(text, self.number_of)
        return TextPiece(f"$(({text.strip()}))", part.raw, known=False) if found is None else TextPiece(str(found))

    def _length(self, part: VariableUse) -> str:
        variable = self.variables.get(part.name)
        if part.name in ("", "@", "*"):
            return str(len(self.arguments or ()))
        if variable is None:
            return "0"
        return str(len(variable.values) if variable.array else len(text_of(variable.values[0])))

    # --- one variable

    def _parameter(self, part: VariableUse, depth: int) -> Pieces:
        value = self._looked_up(part.name, part.raw, part.index)
        known = None if value is None else decided(value)
        empty = value is None or (known == "" and part.operator.startswith(":"))
        match part.operator:
            case ":-" | "-" | ":=" | "=":
                if not empty and value is not None:
                    return value
                return self._default(part, depth)
            case ":+" | "+":
                return () if empty else self.value(words_of(part.argument), depth + 1)
            case "" | ":?" | "?":
                return (TextPiece(f"${part.name}", part.raw, known=False),) if value is None else value
            case _:
                changed = _CHANGES.get(part.operator)
                if value is None or known is None or changed is None:
                    return (TextPiece(part.raw, part.raw, known=False),)
                return (TextPiece(changed(known, text_of(self.filled(part.argument)))),)

    def _default(self, part: VariableUse, depth: int) -> Pieces:
        found = self.value(words_of(_unquoted(part.argument)), depth + 1)
        if part.operator.endswith("="):
            self.variables[part.name] = ShellVariable((found,))
        inside = again(found)
        source = f"${{{part.name}{part.operator}{inside}}}"
        known = all(piece.known for piece in found)
        return (TextPiece(text_of(found), source, known),)

    def _looked_up(self, name: str, raw: str, index: str = "") -> Pieces | None:
        """The value of a variable: the script's, an argument's, the environment's; None: nobody set it."""
        if name == "#":
            return (TextPiece(str(len(self.arguments or ()))),)
        if name.isdecimal() or name in "@*":
            return self._argument(name, raw)
        variable = self.variables.get(name)
        if variable is None:
            outside = looked_up(name)
            return None if not outside else (TextPiece(outside, raw if raw.startswith("$") else f"${name}"),)
        if not variable.array or index in ("@", "*"):
            return _with_blanks(variable.values)
        place = decided(self.filled(index)) if index else "0"
        if place is None or not re.fullmatch(r"-?[0-9]+", place):
            return (TextPiece(raw, raw, known=False),)
        values = variable.values
        return values[int(place)] if -len(values) <= int(place) < len(values) else None

    def _argument(self, name: str, raw: str) -> Pieces | None:
        if self.arguments is None:
            return (
                (TextPiece(f"${name}", raw, known=False, given=True),)
                if name != "0"
                else (TextPiece("$0", raw, known=False),)
            )
        if name in "@*":
            return _with_blanks(self.arguments)
        return self.arguments[int(name) - 1] if 0 < int(name) <= len(self.arguments) else ()


_SAFE = re.compile(r"[\w@%+=:,./\[\]*-]+")


def _with_blanks(values: Sequence[Pieces]) -> Pieces:
    found: list[TextPiece] = []
    for place, value in enumerate(values):
        found += [TextPiece(" "), *value] if place else value
    return tuple(found)


def _unquoted(argument: str) -> str:
    """A default without the quotes around it."""
    if len(argument) > 1 and argument[0] == argument[-1] and argument[0] in "'\"":
        return argument[1:-1]
    return argument


def _raw(piece: TextPiece, part: WordPart) -> str:
    """A piece as it is written in a file anew."""
    if isinstance(part, LiteralText):
        inside = part.escaped or part.text
        return f"{part.quote}{inside}{part.quote}" if part.quote else part.text
    if piece.source:
        return f'"{piece.source}"' if part.quote else piece.source
    return piece.text if _SAFE.fullmatch(piece.text) else shlex.quote(piece.text)


def _beside(before: str, after: str) -> str:
    """Two pieces of one word, in one pair of quotes where both are quoted."""
    if before.endswith('"') and after.startswith('"') and len(before) > 1:
        return before[:-1] + after[1:]
    return before + after


def _cut(pattern: str, text: str, *, front: bool, longest: bool) -> str:
    """A text without what matches at its front or its end."""
    inside = translate(pattern).removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")
    places = range(len(text) + 1) if front != longest else range(len(text), -1, -1)
    for place in places:
        part = text[:place] if front else text[place:]
        if re.fullmatch(inside, part, re.DOTALL):
            return text[place:] if front else text[:place]
    return text


def _replaced(text: str, argument: str, *, every: bool) -> str:
    old, _, new = argument.partition("/")
    return text.replace(old, new) if every else text.replace(old, new, 1)


_CHANGES: Final[Mapping[str, Callable[[str, str], str]]] = {
    "%": lambda text, pattern: _cut(pattern, text, front=False, longest=False),
    "%%": lambda text, pattern: _cut(pattern, text, front=False, longest=True),
    "#": lambda text, pattern: _cut(pattern, text, front=True, longest=False),
    "##": lambda text, pattern: _cut(pattern, text, front=True, longest=True),
    "/": lambda text, argument: _replaced(text, argument, every=False),
    "//": lambda text, argument: _replaced(text, argument, every=True),
    "^^": lambda text, argument: text.upper(),
    ",,": lambda text, argument: text.lower(),
}
