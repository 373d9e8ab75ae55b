"""The keys of every answer, from the types of `foretell.cli.answers` and the comments beside their fields."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from foretell.cli.answers import FORMS, AnswerForm, FailureAnswer

FIELD = re.compile(r"^    (\w+): [^#]*(?:#\s*(.*))?$")

WORDS: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Any: "anything",
    object: "anything",
    type(None): "null",
}


class Page:
    """Types are told once, after the first answer that has them."""

    def __init__(self) -> None:
        self.told: dict[type, str] = {}
        self.places: dict[type, str] = {}
        self.waiting: list[type] = []

    def text(self) -> str:
        parts = [_index(), "## An error", *self._form(FailureAnswer, "An error")]
        for form in FORMS:
            parts.append(f"## {heading(form)}\n\n`foretell {form.command} --json`: {form.says}.")
            parts += self._form(form.type, heading(form))
        return "\n\n".join(parts)

    def _form(self, shape: Any, title: str) -> Iterator[str]:
        """One answer, and after it the types that were not told yet."""
        if not _is_struct(shape):
            yield f"One object: {self.named(shape)}."
        elif shape in self.told:
            yield f"The keys are those of {self.named(shape)}."
        else:
            self.told[shape], self.places[shape] = self._title(shape), title  # there is no other heading for it
            yield self._keys(shape)
        while self.waiting:
            one = self.waiting.pop(0)
            yield f"### {self.told[one]}\n\n{_summary(one)}"
            yield self._keys(one)

    def _keys(self, shape: type) -> str:
        said = dict(_comments(shape))
        hints = typing.get_type_hints(shape)
        lines = ["| key | value | meaning |", "|---|---|---|"]
        for field in msgspec.structs.fields(shape):
            lines.append(f"| `{field.encode_name}` | {self.named(hints[field.name])} | {_cell(said.get(field.name))} |")
        return "\n".join(lines)

    def named(self, hint: Any) -> str:
        """A type in words."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if _is_struct(hint):
            return self._link(hint)
        if origin in (typing.Union, types.UnionType):
            kinds = [one for one in arguments if one is not msgspec.UnsetType]
            absent = ", or left out" if len(kinds) < len(arguments) else ""
            return " or ".join(map(self.named, sorted(kinds, key=lambda one: one is type(None)))) + absent
        if origin is dict:
            return f"object of {self.named(arguments[1])}"
        if origin in (list, tuple, frozenset) and (origin is not tuple or arguments[-1] is ...):
            return f"list of {self.named(arguments[0])}"
        if origin is tuple:
            return f"list: {', '.join(map(self.named, arguments))}"
        if origin is typing.Literal:
            return " or ".join(f"`{one}`" for one in arguments)
        if origin is typing.Annotated:
            return self.named(arguments[0])
        if hint not in WORDS and isinstance(hint, type) and hasattr(hint, "_fields"):
            return "list: " + ", ".join(hint._fields)
        return WORDS.get(hint) or getattr(hint, "__name__", str(hint)).lower()

    def _link(self, shape: type) -> str:
        if shape not in self.told:
            self.told[shape] = self._title(shape)
            self.waiting.append(shape)
        return f"[{self.told[shape]}](#{anchor(self.places.get(shape, self.told[shape]))})"

    def _title(self, shape: type) -> str:
        """The name of a type; of two with one name the second is told with where it is from."""
        taken = self.told.values()
        name = shape.__name__
        return name if name not in taken else f"{name} of {shape.__module__.removeprefix('foretell.')}"


def _index() -> str:
    """Where to look, on a page that is long."""
    lines = ["| answer | what it is |", "|---|---|"]
    return "\n".join(lines + [f"| [{form.command}](#{anchor(heading(form))}) | {form.says} |" for form in FORMS])


def heading(form: AnswerForm) -> str:
    """The command without dashes, of which readers of Markdown make different anchors."""
    verb, _, options = form.command.partition(" --")
    return f"{verb} ({options})" if options else verb


def anchor(title: str) -> str:
    """The anchor of a heading, as readers of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _summary(shape: type) -> str:
    return (shape.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


def _comments(shape: type) -> Iterator[tuple[str, str]]:
    """What stands beside the fields of a type and of those it is made from."""
    for one in reversed(shape.__mro__):
        if issubclass(one, msgspec.Struct) and one is not msgspec.Struct:
            for line in inspect.getsource(one).splitlines():
                match = FIELD.match(line)
                if match and match[2]:
                    yield match[1], match[2]


def text() -> str:
    return Page().text()
