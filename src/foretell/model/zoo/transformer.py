"""The transformer as first published: an encoder and a decoder for translation, norms after each sum.

One token table serves both languages and the output. Places are told apart by sines, which are not trained.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family, Index, Rate
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.embedding import embedding
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm
from foretell.model.zoo._encoder import attend, feed_forward, head_size
from foretell.model.zoo._task import class_loss


class TranslationTransformer(Family, frozen=True, kw_only=True):
    """`layers` of encoder and as many of decoder (or `decoder_layers`); `target_seq` 0: as many tokens out as in."""

    references: ClassVar[tuple[str, ...]] = ("Vaswani et al. 2017, arXiv 1706.03762",)

    layers: Count = 6
    decoder_layers: Index = 0
    hidden: Count = 512
    heads: Count = 8
    ffn: Count = 2048
    vocab: Count = 37000
    seq: Count = 128
    target_seq: Index = 0
    dropout: Rate = 0.0

    def check(self) -> None:
        head_size(self.hidden, self.heads)

    @property
    def target_length(self) -> int:
        return self.target_seq or self.seq

    def build(self, g: Builder, batch: int) -> None:
        with g.scope("shared"):
            table = g.parameter("weight", dims(vocab=self.vocab, hidden=self.hidden))
        memory = self._embed(g, "tokens", table, batch, self.seq)
        with g.scope("encoder"):
            for layer in range(self.layers):
                with g.scope(f"layers.{layer}"):
                    memory = self._block(g, memory)
        x = self._embed(g, "target_tokens", table, batch, self.target_length)
        with g.scope("decoder"):
            future = self._future(g)
            for layer in range(self.decoder_layers or self.layers):
                with g.scope(f"layers.{layer}"):
                    x = self._block(g, x, future, memory)
        with g.scope("head"):
            x = linear(g, x, dims(vocab=self.vocab), bias=False, weight=table)
        class_loss(g, x)

    def _future(self, g: Builder) -> Value:
        """What is added to the scores of a decoder: nothing, or minus infinity for tokens to come."""
        return g.buffer("future", dims(sequence=self.target_length, key=self.target_length))

    def _embed(self, g: Builder, name: str, table: Value, batch: int, length: int) -> Value:
        with g.scope("shared"):
            tokens = g.input(name, dims(sample=batch, sequence=length), "int64")
            x = embedding(g, tokens, self.vocab, dims(hidden=self.hidden), weight=table)
        x = activation(g, x, "scale")
        places = g.buffer(f"{name}.places", dims(sequence=length, hidden=self.hidden))
        return dropout(g, broadcast(g, x, places, "add"), self.dropout)

    def _block(self, g: Builder, x: Value, future: Value | None = None, memory: Value | None = None) -> Value:
        with g.scope("attention"):
            y = attend(g, x, self.heads, score_bias=future, kernel="math", rate=self.dropout)
        x = self._summed(g, "attention_norm", x, y)
        if memory:
            with g.scope("cross_attention"):
                y = attend(g, x, self.heads, memory=memory, kernel="math", rate=self.dropout)
            x = self._summed(g, "cross_attention_norm", x, y)
        with g.scope("feed_forward"):
            y = feed_forward(g, x, self.ffn, "relu", self.dropout)
        return self._summed(g, "feed_forward_norm", x, y)

    def _summed(self, g: Builder, name: str, x: Value, y: Value) -> Value:
        x = combine(g, x, dropout(g, y, self.dropout))
        with g.scope(name):
            return layer_norm(g, x)


PRESETS = {
    "transformer": TranslationTransformer(),
    "transformer-base": TranslationTransformer(),
    "transformer-big": TranslationTransformer(hidden=1024, heads=16, ffn=4096),
}
