"""Messages in the words of whoever asks: what the command line calls `--batch` is the field `batch` here.

The parts that find out what is wrong speak of options. A question has fields of the same names; what it has no field
for is said as a command, since that is where it can be done. Commands, between backticks, stay as they are.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

OPTION: Final = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")

FIELDS: Final = frozenset(
    {"model", "cluster", "batch", "seq", "trainer", "optimizer", "hardware", "plan"}
    | {"tokens", "price"}
    | {"precision", "only", "without", "also", "fix", "max_memory"}
    | {"to", "launcher", "stack"}
)
"""Of questions, of searches and of exports."""

OTHERWISE: Final = {"on": "cluster", "gpus": "cluster", "sequence": "seq", "launch": "launcher"}
"""Options that a field has another name for."""


def spoken(text: str) -> str:
    """A message without options."""
    if "--" not in text:
        return text
    parts = text.split("`")
    parts[::2] = [OPTION.sub(_field, part) for part in parts[::2]]
    return "`".join(parts)


def _field(option: re.Match[str]) -> str:
    name = option[1]
    field = OTHERWISE.get(name, name.replace("-", "_"))
    return field if field in FIELDS else f"`foretell predict --{name}`"


def spoken_all(value: Any) -> Any:
    """The same for every text inside plain data."""
    if isinstance(value, str):
        return spoken(value)
    if isinstance(value, dict):
        return {name: spoken_all(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [spoken_all(one) for one in cast("list[Any]", value)]
    return value
