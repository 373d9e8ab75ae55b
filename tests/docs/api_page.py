"""The functions of the package: signatures and docstrings as they are."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import foretell

WIDTH = 100


def text() -> str:
    names = [name for name in foretell.__all__ if not name.startswith("_")]
    return "\n\n".join(part for name in names for part in _function(name))


def _function(name: str) -> Iterator[str]:
    function = inspect.unwrap(getattr(foretell, name))
    yield f"## foretell.{name}"
    yield f"```text\n{_signature(name, inspect.signature(function))}\n```"
    yield inspect.cleandoc(function.__doc__ or "")
    yield f"As a command: `foretell {COMMANDS.get(name, name)}`." if COMMANDS.get(name, name) else ""


COMMANDS = {"load": "", "trace": "", "choose_batch": "plan --batch auto"}
"""Where the command has another name; empty: it has none."""


def _signature(name: str, signature: inspect.Signature) -> str:
    """One line, or one for each argument where it would be long."""
    arguments = list(_arguments(signature))
    one = f"{name}({', '.join(arguments)}) -> {signature.return_annotation}"
    if len(one) <= WIDTH:
        return one
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"{name}(\n{lines}) -> {signature.return_annotation}"


def _arguments(signature: inspect.Signature) -> Iterator[str]:
    named = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not named:
            named = True
            yield "*"
        default = "" if one.default is one.empty else f" = {one.default!r}"
        yield f"{one.name}: {one.annotation}{default}"
