"""Inputs spoiled one step at a time, with the grammar of their form in mind: most still parse, and are wrong inside.

A form takes the bytes of an input and gives them spoiled once. Several steps in a row are several draws; what can no
longer be parsed is spoiled as text. Each draw has a seed of its own, so that an input is shrunk by leaving steps out.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import yaml

Form: TypeAlias = Callable[[bytes, random.Random], bytes]

NUMBERS: Final = (0, -1, 1, 2, 3, 7, 2**31, 2**63, -(2**63), 10**18, 10**30, 10**400, 0.5, -0.0, 1e-320, 1e308, -1e308,
                  1e-9, float("nan"), float("inf"), float("-inf"))  # fmt: skip
SMALL: Final = (0, 1, 2, 3, 4, 5, 8, 16, 64, 100, 128, 1000, 4096, 0.1, 0.5, 1.5)
TEXTS: Final = ("", " ", "x", "nan", "inf", "-1", "0", "1e999", "9" * 5000, "true", "null", "../..", "a/b", "\x00",
                "\u202eabc", "é", "\U0001d7d8", "١٢", "\ufeff", "'", '"', "%s%n", "${HOME}", "a" * 10_000, "dp2",
                "h100", "fp8", "\ud800", "\n\n", "[", "{}", "__class__")  # fmt: skip
OTHERS: Final = (None, True, False, [], {}, [[]], [None], {"": None}, [0] * 50)


def any_value(rng: random.Random) -> Any:
    """A value that few readers think of."""
    if rng.random() < 0.02:
        deep: Any = 0
        for _ in range(rng.choice((50, 3000))):
            deep = [deep] if rng.random() < 0.5 else {"a": deep}
        return deep
    return rng.choice((rng.choice(NUMBERS), rng.choice(TEXTS), rng.choice(OTHERS)))


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a tree with every key in it."""
    todo = [tree]
    while todo:
        holder = todo.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, value in items:
            yield holder, key
            if isinstance(value, dict | list):
                todo.append(value)


def _walk(tree: Any, rng: random.Random) -> tuple[Any, Any]:
    """A place found from the root inwards: what stands near it matters most, and is rare among all places."""
    while True:
        key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        if not isinstance(tree[key], dict | list) or not tree[key] or rng.random() < 0.1:
            return tree, key
        tree = tree[key]


def _near(value: Any, rng: random.Random) -> Any:
    """What is like a value and is not it: another number, another type, more or less of it."""
    if isinstance(value, bool):
        return rng.choice((not value, int(value), str(value)))
    if isinstance(value, int | float):
        ways = (lambda: 0, lambda: -value, lambda: value + 1, lambda: value * 10**9, lambda: value / 3,
                lambda: value * 1e-9, lambda: str(value), lambda: [value], lambda: value - 1, lambda: float(value),
                lambda: int(value))  # fmt: skip
        try:
            return rng.choice(ways)()
        except (OverflowError, ValueError):
            return 0
    if isinstance(value, str) and rng.random() < 0.6:
        return token(value, rng)
    if isinstance(value, str):
        return rng.choice((value[:-1], value * 2, value.upper(), [value], value + "x", f" {value}", token(value, rng)))
    if isinstance(value, list):
        ways = ([], value[:1], value * 2, value[::-1], value[1:], dict(enumerate(map(str, value))), (value or [0]) * 9)
        return json_copy(rng.choice(ways))
    if isinstance(value, dict):
        return rng.choice(([], list(value.values()), {}, {f"{key}_": one for key, one in value.items()}))
    return any_value(rng)


def json_copy(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


def tree_step(tree: Any, rng: random.Random) -> Any:
    """A tree of tables and lists, spoiled at one place."""
    places = list(_places(tree)) if isinstance(tree, dict | list) else []
    if not places or rng.random() < 0.01:
        return any_value(rng)
    holder, key = rng.choice(places) if rng.random() < 0.5 else _walk(tree, rng)
    way = rng.randrange(10)
    if way < 3:
        holder[key] = _near(holder[key], rng)
    elif way < 6:
        holder[key] = any_value(rng)
    elif way == 6:
        del holder[key]
    elif way == 7:
        other, place = rng.choice(places)
        if isinstance(holder[key], dict | list) or isinstance(other[place], dict | list):
            holder[key] = json_copy(other[place])
        else:
            holder[key], other[place] = other[place], holder[key]
    elif way == 8 and isinstance(holder, dict):
        holder[rng.choice((f"{key}s", str(key)[:-1], str(key).upper(), "x", "schema", "kind"))] = holder[key]
    else:
        numbers = [at for at in places if isinstance(at[0][at[1]], int | float)]
        holder, key = rng.choice(numbers or places)
        holder[key] = rng.choice((rng.choice(NUMBERS), rng.choice(SMALL), rng.choice(SMALL)))
    return tree


def json_form(content: bytes, rng: random.Random) -> bytes:
    try:
        tree = json.loads(content)
        if rng.random() < 0.08:
            return text_form(content, rng)
        text = json.dumps(tree_step(tree, rng), indent=None if rng.random() < 0.1 else 1)
    except (ValueError, RecursionError):
        return text_form(content, rng)
    if rng.random() < 0.03:  # a key twice
        text = re.sub(r'("[a-z_]+"): ([^\n{\[]+?),?\n', r"\1: 0, \1: \2,\n", text, count=1)
    return text.encode()


def json_lines_form(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines()
    if not lines or rng.random() < 0.1:
        return text_form(content, rng)
    at = rng.randrange(len(lines))
    lines[at] = json_form(lines[at], rng).replace(b"\n", b" ")
    return b"\n".join(lines) + b"\n"


def toml_form(content: bytes, rng: random.Random) -> bytes:
    try:
        tree = tomllib.loads(content.decode())
        if rng.random() < 0.15:
            return text_form(content, rng)
        spoiled = tree_step(tree, rng)
        return "".join(f"{_toml_key(key)} = {_toml(value)}\n" for key, value in spoiled.items()).encode()
    except (ValueError, RecursionError, AttributeError):
        return text_form(content, rng)


def _toml_key(key: Any) -> str:
    return json.dumps(str(key))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)  # nan and inf as TOML has them
    return '""' if value is None else json.dumps(value)


def yaml_form(content: bytes, rng: random.Random) -> bytes:
    try:
        if rng.random() < 0.3:
            return text_form(content, rng)
        return yaml.safe_dump(tree_step(yaml.safe_load(content), rng), allow_unicode=True).encode()
    except (ValueError, RecursionError, yaml.YAMLError):
        return text_form(content, rng)


def csv_form(content: bytes, rng: random.Random) -> bytes:
    try:
        rows: list[list[Any]] = list(csv.reader(io.StringIO(content.decode())))
    except (ValueError, csv.Error):
        return text_form(content, rng)
    if rng.random() < 0.1 or not rows:
        return text_form(content, rng)
    out = io.StringIO()
    spoiled = tree_step(rows, rng)
    for row in spoiled if isinstance(spoiled, list) else ():
        cells = row if isinstance(row, list) else [row]
        csv.writer(out).writerow([str(cell).encode("utf-8", "replace").decode() for cell in cells])
    return out.getvalue().encode()


_TOKEN: Final = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\w+|\s+|[^\w\s]")


def token(text: str, rng: random.Random) -> str:
    """A text with one of its words spoiled."""
    words = _TOKEN.findall(text)
    if not words:
        return rng.choice(TEXTS)
    at = rng.randrange(len(words))
    way = rng.randrange(14)
    if way == 0:
        del words[at]
    elif way == 1:
        words[at] *= rng.choice((2, 2, 2, 3, 500))
    elif way == 2:
        words[at] = rng.choice(words)
    elif way == 3:
        words.insert(at, rng.choice(("(", ")", "[", "'", '"', "$", "`", ":", ",", "+", "-", "*", "/", "**", "\\", "\n",
                                     "=", "|", "#", "<<", "x", " ", "%", "{")))  # fmt: skip
    elif way == 4:
        words[at] = str(rng.choice(TEXTS))
    elif way == 5:
        words.insert(at, rng.choice(("(", "[", "{", "$((", "- ")) * rng.choice((3, 5000)))
    else:
        place = rng.choice([place for place, word in enumerate(words) if word[0].isdigit()] or [at])
        other = rng.choice([word for word in words if word[0].isdigit()] or ["8"])
        huge = "9" * 6000 if rng.random() < 0.1 else str(rng.choice(NUMBERS[:-3]))
        words[place] = rng.choice((huge, str(rng.choice(SMALL)), str(rng.choice(SMALL)), other))
    return "".join(words)


def text_form(content: bytes, rng: random.Random) -> bytes:
    """A text by its lines, words and bytes."""
    way = rng.randrange(12)
    if way == 0:
        return content[: rng.randrange(len(content) + 1)]
    if way == 1:
        at = rng.randrange(len(content) + 1)
        return (
            content[:at]
            + rng.choice((b"\xff", b"\x00", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\xc3"))
            + content[at:]
        )
    if way == 2 and content:
        at = rng.randrange(len(content))
        return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    if way == 3:
        lines = content.split(b"\n")
        at = rng.randrange(len(lines))
        lines[at : at + 1] = rng.choice(([], [lines[at]] * 2, [lines[at]] * 300, [rng.choice(lines)], [b"", lines[at]]))
        return b"\n".join(lines)
    return token(content.decode("utf-8", "surrogateescape"), rng).encode("utf-8", "surrogatepass")


def argument_form(content: bytes, rng: random.Random) -> bytes:
    """A word of the command line, which has no NUL."""
    return text_form(content, rng).replace(b"\x00", b"")
