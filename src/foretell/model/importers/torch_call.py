# pyright: basic
"""One call of a PyTorch operator, with its arguments by name."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from foretell.model.importers.torch_dims import Layout
from foretell.model.importers.torch_tape import Tape


class _Schema(NamedTuple):
    name: str  # namespace.operator, without the underscore of in-place forms
    arguments: tuple[str, ...]
    defaults: dict[str, Any]
    written: tuple[str, ...]  # arguments that the call changes


@cache
def _schema(func: Any) -> _Schema:
    schema = func._schema
    namespace, _, name = schema.name.partition("::")
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    arguments = tuple(argument.name for argument in schema.arguments)
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    written = tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    return _Schema(f"{namespace}.{name}", arguments, defaults, written)


class TorchCall:
    """What was called with what, and what came out."""

    __slots__ = ("_given", "_schema", "args", "func", "kwargs", "outputs", "result", "tape", "tensors")

    def __init__(self, tape: Tape, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        self.tape = tape
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.result = result
        self._schema = _schema(func)
        self._given = dict(zip(self._schema.arguments, args, strict=False)) | kwargs
        self.tensors: list[torch.Tensor] = []
        _flatten(self._given.values(), self.tensors)
        self.outputs: list[torch.Tensor] = []
        _flatten((result,), self.outputs)

    @property
    def name(self) -> str:
        return self._schema.name

    @property
    def packet(self) -> Any:
        return self.func.overloadpacket

    def __getitem__(self, name: str) -> Any:
        """An argument by its name, or its default."""
        if name in self._given:
            return self._given[name]
        return self._schema.defaults.get(name)

    def written(self) -> list[torch.Tensor]:
        """Tensors that the call changes in place."""
        found: list[torch.Tensor] = []
        _flatten((self._given.get(name) for name in self._schema.written), found)
        return found

    def layout(self, name: str) -> Layout:
        """The dims of a tensor argument."""
        return self.tape.layout(self[name])


def _flatten(values: Any, found: list[torch.Tensor]) -> None:
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            _flatten(value, found)
