"""GLM-4.5 and MiniMax-M2 as PyTorch modules."""

from __future__ import annotations

from torch import nn

from foretell.model.zoo.glm import Glm
from foretell.modules import mixture
from foretell.modules.task import Example, tokens


def module(fields: Glm) -> nn.Module:
    return mixture.module(fields)


def example(fields: Glm, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
