"""Scripts that start a training: the options of its command, and how many ranks its launcher starts.

A script is read, never run. Variables and arrays that it sets itself are filled in; others are the environment's, as
one word, which is for understanding alone: what is kept of a script has the words as they stand there, so that no
secret of the environment enters a file. What only a running shell knows ($1, $SLURM_NNODES) begins with $.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from foretell.dialects._formats import Code, FileFormat, number
from foretell.dialects._table import Document, Source
from foretell.errors import BadInput

DEPTH = 8
"""Variables inside variables that are filled in."""

LONGEST = 1_000_000
"""Characters of a script after its variables were filled in."""

_ARRAY = re.compile(r"^[ \t]*(?:export[ \t]+)?(\w+)(\+?)=\(([^)]*)\)", re.MULTILINE)
_VALUE = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|\$\(\([^\n]*?\)\)|\$\([^\n)]*\)|[^\s;#(]*"
_ASSIGNMENT = re.compile(rf"^[ \t]*(?:export[ \t]+)?(\w+)(\+?)=(?!\()({_VALUE})", re.MULTILINE | re.DOTALL)
_USE = re.compile(r"\$\{(\w+)(?:\[[@*]\])?(?::?-([^}]*))?\}|\$(\w+)")
_SUM = re.compile(r"\$\(\(((?:[\w$+*/ -]|\([\w$+*/ -]*\))*)\)\)")


_INSIDE = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\.|\$\(\([^\n]{0,200}?\)\)|\$\([^\n)]{0,200}\)|\$\{[^}\n]{0,200}\}+|[^\s\"']"
_WORD = re.compile(rf"\n\s*(?=-)|(\n)|((?:{_INSIDE})+)|([\"'])", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z]")
_BETWEEN = re.compile(r"[;&|]+")
_NO_VALUE = re.compile(r"--?[A-Za-z]|[0-9]*[><]|[|;&)]")


def read(text: str, known: Collection[str] = ()) -> Source:
    """Options by their names without dashes; those of Slurm begin with `sbatch.`.

    Of several commands it is the one with most of the `known` options, or with most options.
    """
    slurm = {f"sbatch.{key}": value for key, value, _ in _options(_slurm(text))}
    plain = re.sub(r"\\\r?\n", " ", "\n".join(_uncommented(line) for line in text.splitlines())).rstrip("\\ \n")
    variables: dict[str, str] = {}
    for match in sorted([*_ARRAY.finditer(plain), *_ASSIGNMENT.finditer(plain)], key=lambda one: one.start()):
        name, more, value = match[1], match[2], match[3]
        value = value[1:-1] if value[:1] in ("'", '"') else value
        value = _filled(" ".join(value.split()) if match.re is _ARRAY else value, variables)
        variables[name] = f"{variables.get(name, '')} {value}".strip() if more else value
    plain = re.sub(r'"(\$\{\w+\[@\]\})"', r"\1", _ASSIGNMENT.sub("", _ARRAY.sub("", plain)))
    commands = [list(_options(words)) for words in _commands(_filled(plain, variables))]
    best = max(commands, key=lambda one: (sum(name in known for name, _, _ in one), len(one)))
    return Source({name: value for name, value, _ in best} | slurm, {name: raw for name, _, raw in best})


def _uncommented(line: str) -> str:
    return "" if line.lstrip().startswith("#") else re.sub(r"\s#\s.*", "", line)


def _slurm(text: str) -> list[str]:
    lines = re.findall(r"^#SBATCH[ \t]+(.*)$", text, re.MULTILINE)
    return [word for line in lines for words in _commands(line) for word in words]


def _filled(text: str, variables: dict[str, str]) -> str:
    """The text with the variables that are set; a use of another stays as it stands."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1] or match[3], match[2]
        if variables.get(name):
            return variables[name]
        return match[0] if default is None else match[0].replace(default, _filled(default, variables))

    filled = _SUM.sub(lambda match: _summed(match, variables), _USE.sub(value, text))
    if len(filled) > LONGEST:
        raise BadInput("a script whose variables grow without end", fix="the command line itself")
    return filled


def _understood(word: str) -> str:
    """A word without quotes, with the environment's variables; one that is not set is its default, or its $name."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        found = os.environ.get(name) or match[2]
        return found if found is not None else f"${name}"

    text = _unquoted(word)
    for _ in range(DEPTH):
        filled = _SUM.sub(lambda match: _summed(match, {}), _USE.sub(value, text))[:LONGEST]
        if filled == text:
            break
        text = filled
    return text


def _unquoted(word: str) -> str:
    try:
        return "".join(shlex.split(word)) if re.search(r"[\"'\\]", word) else word
    except ValueError as problem:
        raise BadInput(f"not a script that can be read: {problem}", fix="close all quotes") from None


def _summed(match: re.Match[str], variables: dict[str, str]) -> str:
    """Whole numbers and variables with + - * / between, as a shell computes them; what is not known yet stays."""
    named = re.sub(r"[A-Za-z_]\w*", lambda name: variables.get(name[0], name[0]), match[1])
    try:
        tokens = re.findall(r"[0-9]+|[^\s0-9]", named)
        return str(_sum(tokens))
    except (IndexError, ZeroDivisionError, ValueError):
        return f"$(({named}))"


def _sum(tokens: list[str]) -> int:
    total = _product(tokens)
    while tokens and tokens[0] in "+-":
        sign = tokens.pop(0)
        total += _product(tokens) if sign == "+" else -_product(tokens)
    return total


def _product(tokens: list[str]) -> int:
    total = _factor(tokens)
    while tokens and tokens[0] in "*/":
        sign, other = tokens.pop(0), _factor(tokens)
        total = total * other if sign == "*" else total // other
    return total


def _factor(tokens: list[str]) -> int:
    token = tokens.pop(0)
    if token != "(":
        return int(token)
    total = _sum(tokens)
    tokens.pop(0)
    return total


def _commands(text: str) -> Iterator[list[str]]:
    """The words of each command, in their quotes. A line that begins with an option goes on with the one before."""
    words: list[str] = []
    for match in _WORD.finditer(text):
        newline, word, quote = match.groups()
        if quote:
            raise BadInput("not a script that can be read: No closing quotation", fix="close all quotes")
        if newline or (word and _BETWEEN.fullmatch(word)):
            yield words
            words = []
        elif word:
            words.append(word)
    yield words


def _options(words: Sequence[str]) -> Iterator[tuple[str, Any, Code]]:
    """Each --name with its value and that as it stands there: True where none follows, a list where several do."""
    name, values = "", list[str]()
    for word in [*words, "--end"]:
        if name and not _NO_VALUE.match(word):
            values.append(word)
            continue
        if name:
            found = [number(_understood(one)) for one in values]
            yield name, (found[0] if len(found) == 1 else found) if found else True, Code(" ".join(values))
        name, values = "", []
        if _OPTION.match(word):
            name, equals, value = word.lstrip("-").partition("=")
            if equals:
                yield name, number(_understood(value)), Code(value)
                name = ""


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
