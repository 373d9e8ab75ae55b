"""LLaVA as a PyTorch module."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo.llava import Llava
from foretell.modules._decoder import DecoderLayer, DecoderModule, GatedFeedForward
from foretell.modules._tower import VisionTower
from foretell.modules.llama import GroupedQueryAttention
from foretell.modules.task import Example, token_loss


class LlavaEye(VisionTower):
    """All but the last layer are read; that one, and a norm nobody reads, run without gradients."""

    def __init__(self, fields: Llava) -> None:
        super().__init__(fields.tower)
        self.norm = nn.LayerNorm(fields.vision_hidden)
        self.requires_grad_(not fields.frozen)
        for part in (self.layers[-1], self.norm):
            part.requires_grad_(False)

    def seen(self, image: torch.Tensor) -> torch.Tensor:
        """The squares of an image, without the token for all of it."""
        x = self(image, len(self.layers) - 1)
        with torch.no_grad():
            self.norm(self.layers[-1](x)[:, 0])
        return x[:, 1:]


class LlavaModule(DecoderModule):
    """Tokens and images to the logits of the next token, images first."""

    def __init__(self, fields: Llava) -> None:
        def layer(at: int) -> DecoderLayer:
            feed_forward = GatedFeedForward(fields.hidden, fields.inner)
            return DecoderLayer(fields.hidden, GroupedQueryAttention(fields, at), feed_forward)

        super().__init__(fields, layer, fields.window if fields.masked else 0)
        self.vision = LlavaEye(fields)
        self.projector = nn.ModuleDict(
            {
                "up": nn.Linear(fields.vision_hidden, fields.hidden),
                "down": nn.Linear(fields.hidden, fields.hidden),
            }
        )

    def forward(self, tokens: torch.Tensor, image: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        text = self.embedding(tokens)
        seen = self.projector["down"](F.gelu(self.projector["up"](self.vision.seen(image))))
        x = torch.cat([seen, text], dim=1)
        return self.head(self.through(x, self.rotary(x.shape[1])))


def module(fields: Llava) -> nn.Module:
    return LlavaModule(fields)


def example(fields: Llava, batch: int) -> Example:
    """Texts, an image each, and the next token at every place."""
    text = torch.randint(fields.vocab, (batch, fields.text))
    image = torch.randn(batch, 3, fields.image, fields.image)
    return Example((text, image), torch.randint(fields.vocab, (batch, fields.seq)), token_loss)
