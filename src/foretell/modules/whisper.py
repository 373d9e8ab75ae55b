"""Whisper as a PyTorch module."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo.whisper import Whisper
from foretell.modules._encoder import PreNormLayer
from foretell.modules.task import Example, token_loss


class WhisperStack(nn.Module):
    """Layers and the norm after them."""

    def __init__(self, fields: Whisper, layers: int, *, decoder: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PreNormLayer(fields.hidden, fields.each(decoder=decoder)) for _ in range(layers))
        self.norm = nn.LayerNorm(fields.hidden)

    def run(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        """What comes out of all layers."""
        for layer in self.layers:
            x = layer(x, memory)
        return self.norm(x)


class WhisperEncoder(WhisperStack):
    """A spectrogram [sample, mel, frame] to places."""

    def __init__(self, fields: Whisper) -> None:
        super().__init__(fields, fields.layers, decoder=False)
        self.first = nn.Conv1d(fields.mels, fields.hidden, 3, padding=1)
        self.second = nn.Conv1d(fields.hidden, fields.hidden, 3, stride=2, padding=1)
        self.position = nn.Parameter(torch.randn(fields.frames // 2, fields.hidden), requires_grad=False)

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.second(F.gelu(self.first(spectrogram))))
        return self.run(x.transpose(1, 2) + self.position)


class WhisperDecoder(WhisperStack):
    """Tokens, and what was heard, to what the head reads."""

    def __init__(self, fields: Whisper) -> None:
        super().__init__(fields, fields.decoder_layers or fields.layers, decoder=True)
        self.embedding = nn.Embedding(fields.vocab, fields.hidden)
        self.position = nn.Parameter(torch.empty(fields.positions, fields.hidden).normal_(std=0.02))
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return self.run(self.embedding(tokens) + self.position[: tokens.shape[1]], memory)


class WhisperModule(nn.Module):
    """A spectrogram and tokens to the logits of the next token; the head is the token table."""

    def __init__(self, fields: Whisper) -> None:
        super().__init__()
        self.encoder = WhisperEncoder(fields)
        self.decoder = WhisperDecoder(fields)

    def forward(self, spectrogram: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return F.linear(self.decoder(tokens, self.encoder(spectrogram)), self.decoder.embedding.weight)


def module(fields: Whisper) -> nn.Module:
    return WhisperModule(fields)


def example(fields: Whisper, batch: int) -> Example:
    """Spectrograms, tokens, and the next token at every place."""
    text = torch.randint(fields.vocab, (batch, fields.seq))
    target = torch.randint(fields.vocab, (batch, fields.seq))
    return Example((torch.randn(batch, fields.mels, fields.frames), text), target, token_loss)
