"""Recurrent language model: word embedding, recurrent layers (LSTM, GRU or plain), output layer."""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import unknown
from foretell.model.build import Builder, dims
from foretell.model.family import Count, Family, Index, Rate
from foretell.model.operators.dropout import dropout
from foretell.model.operators.embedding import embedding
from foretell.model.operators.matmul import linear
from foretell.model.operators.recurrent import CELLS, recurrent
from foretell.model.zoo import _task as task


class Lstm(Family, frozen=True, kw_only=True):
    """`layers` layers of `hidden` cells; `embedding` is the width of a word, 0 for that of a layer."""

    references: ClassVar[tuple[str, ...]] = (
        "Zaremba, Sutskever, Vinyals 2014, arXiv 1409.2329",
        "Hochreiter, Schmidhuber 1997, doi 10.1162/neco.1997.9.8.1735",
        "Cho et al. 2014, arXiv 1406.1078 (GRU)",
    )

    cell: str = "lstm"
    layers: Count = 2
    hidden: Count = 650
    embedding: Index = 0
    vocab: Count = 10_000
    seq: Count = 35
    dropout: Rate = 0.0

    def check(self) -> None:
        if self.cell not in CELLS:
            raise unknown("recurrent cell", self.cell, CELLS)

    def build(self, g: Builder, batch: int) -> None:
        words = task.tokens(g, batch, self.seq)
        with g.scope("embedding"):
            x = embedding(g, words, self.vocab, dims(hidden=self.embedding or self.hidden))
        with g.scope("dropout"):
            x = dropout(g, x, self.dropout)
        for layer in range(self.layers):
            with g.scope(f"layers.{layer}.recurrent"):
                x = recurrent(g, x, self.cell, self.hidden)
            with g.scope(f"layers.{layer}.dropout"):
                x = dropout(g, x, self.dropout)
        with g.scope("output"):
            x = linear(g, x, dims(vocab=self.vocab))
        task.class_loss(g, x)


PRESETS = {
    "lstm": Lstm(),
    "lstm-small": Lstm(hidden=200, seq=20),
    "lstm-medium": Lstm(hidden=650),
    "lstm-large": Lstm(hidden=1500),
    "gru": Lstm(cell="gru"),
    "rnn": Lstm(cell="rnn"),
}
