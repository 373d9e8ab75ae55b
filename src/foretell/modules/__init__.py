"""The zoo as real PyTorch modules: one file a family, under the zoo's words.

module = foretell.modules.build("llama3-8b:layers=2")
example = foretell.modules.example("llama3-8b:layers=2", batch=4)
loss = example.loss(module(*example.inputs), example.target)
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from foretell.model import zoo
from foretell.registry import OpenSet

if TYPE_CHECKING:
    from foretell.modules.task import Example

FAMILIES = OpenSet(__name__, "module family")

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def _file(fields: object) -> str:
    return type(fields).__module__.rpartition(".")[2]


@contextmanager
def _default(dtype: str) -> Generator[None]:
    """New tensors have this type. (Casting a finished module fails under fake tensors.)"""
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[dtype])
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def build(spec: str) -> torch.nn.Module:
    """The PyTorch module of a model of the zoo, in the type its fields say."""
    _, fields = zoo.parse(spec)
    fields.ensure()
    with _default(fields.dtype):
        return FAMILIES[_file(fields)].module(fields)


def example(spec: str, batch: int = 1) -> Example:
    """One batch for that module; floating-point inputs have the module's type."""
    _, fields = zoo.parse(spec)
    with _default(fields.dtype):
        return FAMILIES[_file(fields)].example(fields, batch)
