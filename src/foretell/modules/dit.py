"""DiT as a PyTorch module."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo.dit import WAVES, Dit
from foretell.modules._encoder import FeedForward, MultiHeadAttention
from foretell.modules.task import Example


def _modulated(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (1 + scale)[:, None] + shift[:, None]


class DitLayer(nn.Module):
    """Attention and feed-forward, scaled and shifted before, gated after."""

    def __init__(self, fields: Dit) -> None:
        super().__init__()
        self.hidden = fields.hidden
        self.modulation = nn.Linear(fields.hidden, 6 * fields.hidden)
        self.attention = MultiHeadAttention(fields.hidden, fields.heads, kernel=fields.attention)
        self.feed_forward = FeedForward(fields.hidden, fields.ratio * fields.hidden, "gelu_tanh")

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift_2, scale_2, gate_2 = self.modulation(told).chunk(6, dim=1)
        y = self.attention(_modulated(F.layer_norm(x, (self.hidden,)), shift, scale))
        x = x + y * gate[:, None]
        y = self.feed_forward(_modulated(F.layer_norm(x, (self.hidden,)), shift_2, scale_2))
        return x + y * gate_2[:, None]


class DitModule(nn.Module):
    """A noisy latent image, its time step and its class, to the noise of each patch."""

    def __init__(self, fields: Dit) -> None:
        super().__init__()
        self.hidden = fields.hidden
        self.patches = nn.Conv2d(fields.channels, fields.hidden, fields.patch, stride=fields.patch)
        self.position = nn.Parameter(torch.randn(fields.places, fields.hidden), requires_grad=False)
        self.time = nn.ModuleDict(
            {"up": nn.Linear(WAVES, fields.hidden), "down": nn.Linear(fields.hidden, fields.hidden)}
        )
        self.classes = nn.Embedding(fields.classes + 1, fields.hidden)
        self.layers = nn.ModuleList(DitLayer(fields) for _ in range(fields.layers))
        self.modulation = nn.Linear(fields.hidden, 2 * fields.hidden)
        self.head = nn.Linear(fields.hidden, 2 * fields.patch**2 * fields.channels)

    def forward(self, image: torch.Tensor, waves: torch.Tensor, wished: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2) + self.position
        told = F.silu(self.time["down"](F.silu(self.time["up"](waves))) + self.classes(wished))
        for layer in self.layers:
            x = layer(x, told)
        shift, scale = self.modulation(told).chunk(2, dim=1)
        noise, _ = self.head(_modulated(F.layer_norm(x, (self.hidden,)), shift, scale)).chunk(2, dim=-1)
        return noise


def module(fields: Dit) -> nn.Module:
    return DitModule(fields)


def noise_loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean squared error of the noise, in fp32."""
    return F.mse_loss(outputs.float(), target)


def example(fields: Dit, batch: int) -> Example:
    """Noisy latent images, waves of their time steps, classes, and the noise of each patch."""
    image = torch.randn(batch, fields.channels, fields.image, fields.image)
    target = torch.randn(batch, fields.places, fields.patch**2 * fields.channels, dtype=torch.float32)
    wished = torch.randint(fields.classes, (batch,))
    return Example((image, torch.randn(batch, WAVES), wished), target, noise_loss)
