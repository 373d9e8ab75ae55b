"""Scripts that start a training: the options of its command, and how many ranks its launcher starts.

A script is read, never run. Variables and arrays that it sets itself are filled in, others from the environment; what
only a running shell knows ($1, $SLURM_NNODES) stays a text that begins with $.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, cast

from foretell.dialects._formats import Format, number
from foretell.dialects._table import Document
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


def read(text: str) -> Document:
    """Options by their names without dashes; those of Slurm begin with `sbatch.`."""
    slurm = {f"sbatch.{key}": value for key, value in _options(_slurm(text))}
    plain = re.sub(r"\\\r?\n", " ", "\n".join(_uncommented(line) for line in text.splitlines())).rstrip("\\ \n")
    variables: dict[str, str] = {}
    for match in sorted([*_ARRAY.finditer(plain), *_ASSIGNMENT.finditer(plain)], key=lambda one: one.start()):
        name, more, value = match[1], match[2], match[3]
        value = value[1:-1] if value[:1] in ("'", '"') else value
        value = _filled(" ".join(value.split()) if match.re is _ARRAY else value, variables)
        variables[name] = f"{variables.get(name, '')} {value}".strip() if more else value
    commands = re.sub(r'"(\$\{\w+\[@\]\})"', r"\1", _ASSIGNMENT.sub("", _ARRAY.sub("", plain)))
    return dict(_options(_words(_filled(commands, variables)))) | slurm


def _uncommented(line: str) -> str:
    return "" if line.lstrip().startswith("#") else re.sub(r"\s#\s.*", "", line)


def _slurm(text: str) -> list[str]:
    lines = re.findall(r"^#SBATCH[ \t]+(.*)$", text, re.MULTILINE)
    return [word for line in lines for word in _words(line)]


def _filled(text: str, variables: dict[str, str]) -> str:
    """The text with its variables; one that is not set is the environment's, its default, or stays its $name."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        known = variables.get(name) or os.environ.get(name) or match[2]
        return known if known is not None else f"${name}"

    for _ in range(DEPTH):
        filled = _SUM.sub(lambda match: _summed(match, variables), _USE.sub(value, text))
        if len(filled) > LONGEST:
            raise BadInput("a script whose variables grow without end", fix="the command line itself")
        if filled == text:
            break
        text = filled
    return text


def _summed(match: re.Match[str], variables: dict[str, str]) -> str:
    """Whole numbers and variables with + - * / between, as a shell computes them."""
    named = re.sub(r"[A-Za-z_]\w*", lambda name: variables.get(name[0], "?"), match[1])
    try:
        tokens = re.findall(r"[0-9]+|[^\s0-9]", named)
        return str(_sum(tokens))
    except (IndexError, ZeroDivisionError, ValueError):
        return "$?"


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


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError as problem:
        raise BadInput(f"not a script that can be read: {problem}", fix="close all quotes") from None


def _options(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Each --name with its value: True where none follows, a list where several do."""
    for place, word in enumerate(words):
        if not re.match(r"--?[A-Za-z]", word):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if equals:
            yield name, number(value)
            continue
        values: list[str] = []
        for later in words[place + 1 :]:
            if re.match(r"--?[A-Za-z]|[|;&><)]", later):
                break
            values.append(later)
        single = number(values[0]) if len(values) == 1 else [number(one) for one in values]
        yield name, single if values else True


# --- writing ------------------------------------------------------------------------------------


def arguments(document: Document) -> list[str]:
    """A document as options: true ones alone, those that are false not at all."""
    lines: list[str] = []
    for key, value in document.items():
        if value is True:
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


SHELL = Format("a script", (".sh", ".slurm", ".sbatch", ".bash", ".args", ".txt"), read, _write)
