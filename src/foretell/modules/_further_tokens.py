"""Multi-token prediction as PyTorch modules; the counterpart of `foretell.model.zoo._further_tokens`."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo._further_tokens import LOSS_SHARE
from foretell.modules._decoder import DecoderLayer
from foretell.modules._normalization import RMSNorm
from foretell.modules._rotary import Angles
from foretell.modules.task import token_loss

IGNORED = -100
"""The target of places that have no token to predict: cross-entropy leaves them out."""


class FurtherToken(DecoderLayer):
    """One depth: a layer over what was made of each place and the embedding of the token that comes then.

    The token table is the main model's, and is handed in.
    """

    def __init__(self, hidden: int, attention: nn.Module, feed_forward: nn.Module, depth: int) -> None:
        super().__init__(hidden, attention, feed_forward)
        self.depth = depth
        self.hidden_norm = RMSNorm(hidden)
        self.embedding_norm = RMSNorm(hidden)
        self.projection = nn.Linear(2 * hidden, hidden, bias=False)
        self.norm = RMSNorm(hidden)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor, table: torch.Tensor, angles: Angles) -> torch.Tensor:
        known = F.embedding(tokens.roll(-self.depth, 1), table)
        both = torch.cat([self.hidden_norm(x), self.embedding_norm(known)], dim=-1)
        return self.norm(super().forward(self.projection(both), angles))


def further_loss(
    outputs: torch.Tensor | tuple[torch.Tensor, ...],
    target: torch.Tensor,
    each: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = token_loss,
) -> torch.Tensor:
    """The next token's loss and a share of the mean of those after it; the last places have no such token."""
    if isinstance(outputs, torch.Tensor):
        return each(outputs, target)
    total = each(outputs[0], target)
    share = LOSS_SHARE / (len(outputs) - 1)
    for depth, logits in enumerate(outputs[1:], start=1):
        later = target.roll(-depth, 1)
        later[:, -depth:] = IGNORED
        total = total + share * each(logits, later)
    return total
