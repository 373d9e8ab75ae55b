"""Stages of modules that are given less than they could be, read tables up to a length, or make several values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from foretell.model.source import load
from foretell.runtime import stages
from foretell.runtime.tasks import Batch
from foretell.trust import trust


class Heads(nn.Module):
    """Three layers in a row, a table, an input that nobody gives, and a second value from halfway."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.register_buffer("table", torch.arange(12.0).view(12, 1))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.layers[0](x) + self.table[: x.shape[1]]
        if mask is not None:
            x = x * mask
        halfway = self.layers[1](x)
        return self.layers[2](halfway), halfway.mean(1)


def heads() -> tuple[nn.Module, torch.Tensor]:
    return Heads(), torch.randn(2, 5, 6)


@pytest.mark.parametrize("meta", [False, True])
def test_stages_one_after_the_other_make_what_the_module_makes(meta: bool) -> None:
    trust(f"{Path(__file__)}:heads")
    graph = load(f"{Path(__file__)}:heads", 2, None, "fp32")
    with torch.device("meta" if meta else "cpu"):
        module, x = heads()
    parts = [frozenset({"layers.0"}), frozenset({"layers.1"}), frozenset({"layers.2"})]
    row = stages.cut(module, graph, parts, Batch((x,), torch.zeros(2)))
    values: tuple[torch.Tensor, ...] = (x,)
    for stage in row:
        made = stage(*values)
        values = made if isinstance(made, tuple) else (made,)
    whole = module(x)
    assert [one.shape for one in values] == [one.shape for one in whole]
    if not meta:
        torch.testing.assert_close(values, whole)
