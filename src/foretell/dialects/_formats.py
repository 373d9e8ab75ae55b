"""Files as documents: TOML, JSON and YAML. Nothing in a file is ever executed.

`shell` and `python` have files of their own. A writer keeps the order of the keys, and puts the lines of `head`
before them as a comment where the format has comments.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from foretell.dialects._table import Document
from foretell.errors import BadInput, MissingExtra


@dataclass(frozen=True)
class FileFormat:
    """How a document is written down. `options` are about one dialect's files."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[str], Document]
    write: Callable[[Document, Sequence[str]], str]


class Code(str):
    """A text that stands in a file as it is, without quotes."""


MOST = 20_000
"""Keys of the largest document. A few lines of YAML can name each other into billions."""


def flat(nested: Any) -> Document:
    """Tables inside tables as dotted keys; lists stay as they are."""
    found: Document = {}
    _flatten(nested, "", found)
    return found


def _flatten(nested: Any, before: str, found: Document) -> None:
    for key, value in cast("dict[Any, Any]", nested).items():
        if len(found) >= MOST:
            raise BadInput(f"more than {MOST:,} keys", fix="the configuration of a trainer")
        if isinstance(value, dict) and value:
            _flatten(value, f"{before}{key}.", found)
        else:
            _counted(value)
            found[f"{before}{key}"] = value


def _counted(value: Any) -> None:
    """Refuse lists inside lists that are as large: their texts would be."""
    left: list[Any] = [value]
    seen = 0
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += cast("dict[Any, Any]", one).values()
        elif isinstance(one, list):
            left += cast("list[Any]", one)
        seen += 1
        if seen + len(left) > MOST:
            raise BadInput(f"more than {MOST:,} values in one list", fix="the configuration of a trainer")


def nested(document: Document) -> dict[str, Any]:
    """Dotted keys as tables inside tables."""
    tree: dict[str, Any] = {}
    for key, value in document.items():
        *path, last = key.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return tree


def _table(content: Any, what: str) -> Document:
    if content is None:
        raise BadInput("the file is empty", fix=f"a {what} of a trainer")
    if not isinstance(content, dict):
        raise BadInput(
            f"not a table of keys, but {type(cast('object', content)).__name__}", fix=f"a {what} of a trainer"
        )
    return flat(content)


# --- TOML ---------------------------------------------------------------------------------------


def _read_toml(text: str) -> Document:
    try:
        return _table(tomllib.loads(text), "TOML file")
    except (ValueError, RecursionError) as problem:  # a ValueError too: a number of 5,000 digits
        raise BadInput(f"not TOML: {problem}") from None


def _write_toml(document: Document, head: Sequence[str]) -> str:
    lines = [f"# {line}".rstrip() for line in head]
    tables: dict[str, list[str]] = {}
    for key, value in document.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append(f"{name} = {_toml(value)}")
    for table, entries in sorted(tables.items(), key=lambda pair: bool(pair[0])):  # keys of no table come first
        lines += ["", f"[{table}]"] if table else [""]
        lines += entries
    return "\n".join(lines).strip() + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, cast('list[Any]', value)))}]"
    return json.dumps(value) if isinstance(value, str) else str(value)


# --- JSON ---------------------------------------------------------------------------------------


def _read_json(text: str) -> Document:
    try:
        return _table(json.loads(text), "JSON file")
    except (ValueError, RecursionError) as problem:
        raise BadInput(f"not JSON: {problem}") from None


def _write_json(document: Document, head: Sequence[str]) -> str:
    return json.dumps(nested(document), indent=2) + "\n"  # JSON has no comments: the head goes nowhere


# --- YAML ---------------------------------------------------------------------------------------


def _yaml() -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingExtra("YAML needs PyYAML, which is not installed", fix="pip install 'foretell[yaml]'") from None
    return yaml


def _read_yaml(text: str) -> Document:
    yaml = _yaml()
    try:
        return _table(yaml.safe_load(text), "YAML file")
    except (yaml.YAMLError, RecursionError, ValueError) as problem:  # a date of month 13 is a ValueError
        raise BadInput(f"not YAML: {' '.join(str(problem).split())}") from None


def _write_yaml(document: Document, head: Sequence[str]) -> str:
    body = _yaml().safe_dump(nested(document), sort_keys=False, default_flow_style=False, width=120)
    return "".join(f"# {line}".rstrip() + "\n" for line in head) + body


TOML = FileFormat("TOML", (".toml",), _read_toml, _write_toml)
JSON = FileFormat("JSON", (".json",), _read_json, _write_json)
YAML = FileFormat("YAML", (".yaml", ".yml"), _read_yaml, _write_yaml)


def number(text: str) -> Any:
    """A word of a command line as what it is: a number, or the text."""
    if re.fullmatch(r"[+-]?[0-9]{1,30}", text):  # more digits are a key or a hash
        return int(text)
    if re.fullmatch(r"[+-]?([0-9]+\.[0-9]*|\.?[0-9]+)(e[+-]?[0-9]+)?", text, re.IGNORECASE):
        return float(text)
    return text
