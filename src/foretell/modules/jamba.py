"""Jamba as a PyTorch module."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo.jamba import Jamba
from foretell.model.zoo.mixture import Mixture
from foretell.modules import mixture
from foretell.modules._normalization import RMSNorm
from foretell.modules._rotary import Angles
from foretell.modules._selective_scan import SelectiveScanLayer
from foretell.modules._state_space import ChannelConvolution
from foretell.modules.llama import GroupedQueryAttention
from foretell.modules.task import Example, tokens


class ScanLayer(nn.Module):
    """A short convolution, a selective scan, and a gate."""

    def __init__(self, fields: Jamba) -> None:
        super().__init__()
        inner = fields.expand * fields.hidden
        self.sizes = (fields.steps, fields.state, fields.state)
        self.input = nn.Linear(fields.hidden, 2 * inner, bias=False)
        self.convolution = ChannelConvolution(inner, fields.taps)
        self.parts = nn.Linear(inner, sum(self.sizes), bias=False)
        self.step_norm, self.key_norm, self.query_norm = (RMSNorm(size) for size in self.sizes)
        self.steps = nn.Linear(fields.steps, inner)
        self.scan = SelectiveScanLayer(inner, fields.state)
        self.output = nn.Linear(inner, fields.hidden, bias=False)
        nn.init.constant_(self.steps.bias, -4.6)

    def forward(self, x: torch.Tensor, angles: Angles, bias: torch.Tensor | None = None) -> torch.Tensor:
        mixed, gate = self.input(x).chunk(2, dim=-1)
        mixed = F.silu(self.convolution(mixed))
        step, key, query = self.parts(mixed).split(self.sizes, dim=-1)
        y = self.scan(mixed, self.steps(self.step_norm(step)), self.key_norm(key), self.query_norm(query))
        return self.output(y * F.silu(gate))


def _mixing(fields: Mixture, at: int) -> nn.Module:
    assert isinstance(fields, Jamba)
    return GroupedQueryAttention(fields, at) if fields.attends(at) else ScanLayer(fields)


class Unplaced(nn.Module):
    """Stands where others have a table of angles."""

    def forward(self, sequence: int) -> None:
        return None


def module(fields: Jamba) -> nn.Module:
    found = mixture.module(fields, _mixing)
    found.rotary = Unplaced()
    return found


def example(fields: Jamba, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
