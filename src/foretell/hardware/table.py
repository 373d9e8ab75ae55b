"""One table of a TOML file, read strictly, and its figures: each with the source it comes from beside it.

Files that ship must say where a figure comes from. In a person's own file a figure may stand alone, `size = 8`: its
source is that file.

    [sources]
    reducer = "PyTorch 2.13, torch/csrc/distributed/c10d/reducer.hpp"

    [gradients]
    bucket = { value = "25 MiB", source = "reducer" }

A table says first which keys it has: a slip of the pen is told before anything is missed. What is
missing or wrong is an error with the file, the key, and lines that could stand there.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple, cast

from foretell.errors import BadInput, first_of, near
from foretell.files import read_bytes
from foretell.hardware import quantity

NEXT_LINE = "\n         "
"""Between the lines of a suggestion: they stand below one another, and are TOML all the same."""

EXAMPLES = {
    "memory": '"80 GiB"',
    "cache": '"50 MiB"',
    "memory_bandwidth": '"3.35 TB/s"',
    "multiprocessors": "132",
    "clock": '"1.83 GHz"',
    "power": '"700 W"',
    "launch": '"1.85 us"',
    "domain": "72",
    "int8": '"1979 Top/s"',
    "bandwidth": '"400 Gb/s"',
    "ceiling": '"3 GB/s"',
    "latency": '"4 us"',
    "hop": '"4 us"',
    "oversubscription": "2",
}
"""What a figure looks like under its key; others look as their kind does."""


LARGEST = 1e15
"""More than any count or ratio is: what is larger is a slip."""


LONGEST = 1 << 20
"""Bytes of a file: hardware and trainers take some thousand."""


class Figure(NamedTuple):
    """A value as it is written, its source in full, and the file and key that say so."""

    value: Any
    source: str
    where: str


class Table:
    """One table of a file, with the file and its place in it for messages."""

    def __init__(
        self, content: dict[str, Any], file: str, path: str = "", root: Table | None = None, *, own: bool = False
    ) -> None:
        self._content = content
        self.file = file
        self._path = path
        self._own: bool = root._own if root else own  # a person's: figures need no source
        self._named_sources: dict[str, str] = root._named_sources if root else self._read_sources()
        self.sources: dict[str, str] = root.sources if root else {}

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def __iter__(self) -> Any:
        return iter(self._content)

    def at(self, key: str) -> str:
        """The file and the key, for messages."""
        return f"{self.file}, {self.full(key)}"

    def full(self, key: str) -> str:
        """The key with those of the tables around it, dotted."""
        return f"{self._path}.{key}" if self._path else key

    def _read_sources(self) -> dict[str, str]:
        found = self._content.get("sources", {})
        if not isinstance(found, dict):
            raise BadInput("sources is not a table", where=self.file, fix='[sources], then datasheet = "..."')
        named = cast(dict[str, Any], found)
        for name, text in named.items():
            if not isinstance(text, str) or not text.strip():
                raise BadInput(f"the source {name!r} is not a text", where=self.file, fix=f'{name} = "title, year"')
        return named

    def only(self, *keys: str) -> None:
        """Refuse keys that are none of these: the first one, with what was probably meant."""
        for key in self._content:
            if key not in keys:
                close = [known for known in near(key, keys) if known not in self._content]
                fix = f"did you mean {close[0]}?" if close else f"the keys here: {', '.join(keys)}"
                raise BadInput(f"unknown key {self.full(key)!r}", where=self.file, fix=fix)

    def _value(self, key: str, line: str) -> Any:
        """What stands under a key; `line` is what could."""
        if key not in self._content:
            raise BadInput(f"{self.full(key)} is missing", where=self.file, fix=line)
        return self._content[key]

    def text(self, key: str, example: str) -> str:
        """A plain text, which needs no source."""
        value = self._value(key, f'{key} = "{example}"')
        if not isinstance(value, str) or not value.strip():
            raise BadInput(f"{value!r} is not a text", where=self.at(key), fix=f'{key} = "{example}"')
        return value

    def flag(self, key: str) -> bool:
        """true or false."""
        value = self._value(key, f"{key} = true")
        if not isinstance(value, bool):
            raise BadInput(f"{value!r} is not true or false", where=self.at(key), fix=f"{key} = true")
        return value

    def figure(self, key: str, kind: str) -> float:
        """A figure with its source, in SI units."""
        found = self.entry(key, figure_line(key, kind, next(iter(self._named_sources), "datasheet")))
        return self._number(key, found.value, kind)

    def entry(self, key: str, line: str = '{ value = ..., source = "..." }') -> Figure:
        """A figure as it is written; `line` is what could stand there."""
        entry = self._value(key, line)
        if not isinstance(entry, dict) and not self._own:
            raise BadInput(f"{entry!r} has no source beside it", where=self.at(key), fix=line)
        fields = cast(dict[str, Any], entry if isinstance(entry, dict) else {"value": entry})
        for name in fields:
            if name not in ("value", "source"):
                raise BadInput(f"unknown key {name!r}", where=self.at(key), fix=line)
        for name in ("value",) if self._own else ("value", "source"):
            if name not in fields:
                raise BadInput(f"the figure has no {name}", where=self.at(key), fix=line)
        source = self._source(key, fields["source"]) if "source" in fields else f"given in {self.file}"
        self.sources[self.full(key)] = source
        return Figure(fields["value"], source, self.at(key))

    def check_every_source_is_used(self) -> None:
        """Refuse a source that no figure read so far names."""
        for name, source in self._named_sources.items():
            if source not in self.sources.values():
                raise BadInput(f"no figure names the source {name!r}", where=self.at("sources"), fix="leave it out")

    def count(self, key: str) -> int:
        """A whole number with its source."""
        return int(self.figure(key, "count"))

    def _source(self, key: str, name: Any) -> str:
        if not isinstance(name, str) or name not in self._named_sources:
            known = list(self._named_sources)
            fix = ", ".join(near(str(name), known) or known) or f'[sources], then {name} = "title, year"'
            raise BadInput(f"[sources] has no {name!r}", where=self.at(key), fix=fix)
        return self._named_sources[name]

    def _number(self, key: str, value: Any, kind: str) -> float:
        example = EXAMPLES.get(key, quantity.EXAMPLES[kind])
        if kind not in ("count", "ratio"):
            if not isinstance(value, str):
                raise BadInput(f"{value!r} is not a text with a unit", where=self.at(key), fix=example)
            return quantity.parse(value, kind, where=self.at(key))
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
            raise BadInput(f"{value!r} is not a positive number", where=self.at(key), fix=example)
        if kind == "count" and not isinstance(value, int):
            raise BadInput(f"{value!r} is not a whole number", where=self.at(key), fix=example)
        return value

    def table(self, key: str, example: str) -> Table:
        """A table inside this one."""
        lines = f"[{self.full(key)}]{NEXT_LINE}{example}"
        value = self._value(key, lines)
        if not isinstance(value, dict):
            raise BadInput(f"{key} is not a table", where=self.file, fix=lines)
        return Table(cast(dict[str, Any], value), self.file, self.full(key), root=self)

    def tables(self, key: str, example: str) -> list[Table]:
        """An array of tables: [[key]]."""
        lines = f"[[{key}]]{NEXT_LINE}{example}"
        found = self._value(key, lines)
        items = cast(list[Any], found) if isinstance(found, list) else []
        if not items or not all(isinstance(item, dict) for item in items):
            raise BadInput(f"{key} is not a list of tables", where=self.file, fix=lines)
        return [
            Table(cast(dict[str, Any], item), self.file, f"{self.full(key)}[{at}]", root=self)
            for at, item in enumerate(items)
        ]


def figure_line(key: str, kind: str, source: str) -> str:
    """A line with a figure as it stands in a file."""
    example = EXAMPLES.get(key, quantity.EXAMPLES[kind]).partition(" or ")[0].partition(" (")[0]
    return f'{key} = {{ value = {example}, source = "{source}" }}'


def open_table(path: Path) -> Table:
    """A TOML file as a table."""
    if path.is_dir():
        raise BadInput("a folder, not a TOML file", where=str(path), fix=_inside(path))
    if not path.exists():
        raise BadInput("no such file", where=str(path))
    try:
        content = tomllib.loads(read_bytes(path, "file", most=LONGEST).decode())
    except UnicodeDecodeError as problem:
        what = f"a binary file, not a TOML file: byte {problem.start + 1:,} is no text"
        raise BadInput(what, where=str(path), fix="a text file, in UTF-8") from None
    except (ValueError, RecursionError) as problem:  # a ValueError too: a number of 5,000 digits
        raise BadInput(f"not a TOML file: {problem}", where=str(path)) from None
    return Table(content, _shown(path), own=not _ships(path))


def _inside(folder: Path) -> str:
    """The files of a folder that could have been meant."""
    try:
        found = sorted(str(path) for path in folder.glob("*.toml"))
    except OSError:
        found = []
    return first_of(found, 4) or "the path of a .toml file"


def _shown(path: Path) -> str:
    """A file that ships is shown by its place in the package: hardware/devices/h100.toml."""
    return str(path.relative_to(PACKAGE)) if _ships(path) else str(path)


PACKAGE = Path(__file__).parents[1]


def _ships(path: Path) -> bool:
    return path.is_relative_to(PACKAGE)
