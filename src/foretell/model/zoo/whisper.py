"""Whisper: a spectrogram through two convolutions and an encoder, text through a decoder that looks at it.

Positions of sound are sines and cosines in a table that is not trained; transformers counts it among the parameters,
and so do the counts here. Keys have no bias.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family, Index
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.convolution import convolution
from foretell.model.operators.elementwise import activation
from foretell.model.operators.embedding import embedding
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm
from foretell.model.zoo._encoder import NO_KEY, PreNorm, check_activation, head_size, pre_norm_layer
from foretell.model.zoo._task import class_loss


class Whisper(Family, frozen=True, kw_only=True):
    """`frames` of a spectrogram of `mels` bands go in, half as many are seen by the decoder of `seq` tokens."""

    references: ClassVar[tuple[str, ...]] = ("Radford et al. 2022 (Whisper), arXiv 2212.04356",)

    layers: Count = 12
    decoder_layers: Index = 0
    hidden: Count = 768
    heads: Count = 12
    ffn: Index = 0
    activation: str = "gelu"
    vocab: Count = 51865
    mels: Count = 80
    frames: Count = 3000
    seq: Count = 448
    positions: Count = 448
    attention: str = "flash"

    def check(self) -> None:
        head_size(self.hidden, self.heads)
        check_activation(self.activation)
        if self.seq > self.positions:
            raise BadInput(
                f"seq={self.seq} of positions={self.positions} that are learned", fix=f"seq={self.positions}"
            )
        if self.frames % 2:
            raise BadInput(f"frames={self.frames} are not halved evenly", fix=f"frames={self.frames + 1}")

    @property
    def inner(self) -> int:
        """Features between the layers of the feed-forward."""
        return self.ffn or 4 * self.hidden

    def each(self, *, decoder: bool) -> PreNorm:
        """A layer of the encoder or of the decoder."""
        heads, ffn, kernel = self.heads, self.inner, self.attention
        return PreNorm(heads, ffn, self.activation, NO_KEY, causal=decoder, crossed=decoder, kernel=kernel)

    def build(self, g: Builder, batch: int) -> None:
        memory = self._hear(g, batch)
        text = g.input("tokens", dims(sample=batch, sequence=self.seq), "int64")
        with g.scope("decoder"):
            with g.scope("embedding"):
                table = g.parameter("weight", dims(vocab=self.vocab, hidden=self.hidden))
                x = embedding(g, text, self.vocab, dims(hidden=self.hidden), weight=table)
            table_of_places = g.parameter("position", dims(place=self.positions, hidden=self.hidden))
            places = view(g, table_of_places, x.dims[1:], "slice")
            x = broadcast(g, x, places, "add")
            x = self._stack(g, x, self.decoder_layers or self.layers, memory)
        with g.scope("head"):
            x = linear(g, x, dims(vocab=self.vocab), bias=False, weight=table)
        class_loss(g, x)

    def _hear(self, g: Builder, batch: int) -> Value:
        """What the decoder looks at: [sample, sequence, hidden]."""
        x = g.input("spectrogram", dims(sample=batch, channel=self.mels, width=self.frames))
        with g.scope("encoder"):
            for name, stride in (("first", 1), ("second", 2)):
                with g.scope(name):
                    x = activation(g, convolution(g, x, self.hidden, 3, stride=stride, padding=1), "gelu")
            x = view(g, x, dims(sample=batch, sequence=self.frames // 2, hidden=self.hidden), "transpose")
            position = g.parameter("position", x.dims[1:], trainable=False)
            x = broadcast(g, x, position, "add", weight=True)
            return self._stack(g, x, self.layers)

    def _stack(self, g: Builder, x: Value, layers: int, memory: Value | None = None) -> Value:
        for layer in range(layers):
            with g.scope(f"layers.{layer}"):
                x = pre_norm_layer(g, x, self.each(decoder=memory is not None), memory)
        with g.scope("norm"):
            return layer_norm(g, x)


def _large(mels: int = 80, vocab: int = 51865, decoder_layers: int = 0) -> Whisper:
    return Whisper(layers=32, decoder_layers=decoder_layers, hidden=1280, heads=20, mels=mels, vocab=vocab)


PRESETS = {
    "whisper": Whisper(),
    "whisper-tiny": Whisper(layers=4, hidden=384, heads=6),
    "whisper-base": Whisper(layers=6, hidden=512, heads=8),
    "whisper-small": Whisper(),
    "whisper-medium": Whisper(layers=24, hidden=1024, heads=16),
    "whisper-large-v2": _large(),
    "whisper-large-v3": _large(mels=128, vocab=51866),
    "whisper-large-v3-turbo": _large(mels=128, vocab=51866, decoder_layers=4),
}
