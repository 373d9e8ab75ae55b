"""BERT: a post-norm transformer encoder over tokens, bare or with its pretraining heads.

`objective` says what the step trains, and so what counts as a parameter:

features     the encoder and pooler alone (Hugging Face's BertModel, the published counts); the
             loss is the squared distance of its output to given features: no head, no weights
mlm          masked tokens (BertForMaskedLM): no pooler; a dense layer, a norm, and the token
             table once more as the decoder, with a bias of its own
pretraining  masked tokens and next sentence (BertForPreTraining): both heads and the pooler
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim
from foretell.model.family import Count, Family, Index, Rate
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation, cast, combine, copy
from foretell.model.operators.embedding import embedding
from foretell.model.operators.experts import gather
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm
from foretell.model.operators.reduction import reduce
from foretell.model.zoo._encoder import attend, check_activation, feed_forward, head_size
from foretell.model.zoo._task import class_loss, targets, tokens

OBJECTIVES = ("features", "mlm", "pretraining")


class Bert(Family, frozen=True, kw_only=True):
    """`predictions` masked places a sequence go through the token head; 0 is every place.

    `types` is the number of sentence types (0: no table), `positions` the longest sequence.
    """

    references: ClassVar[tuple[str, ...]] = (
        "Devlin et al. 2019, arXiv 1810.04805",
        "Liu et al. 2019 (RoBERTa), arXiv 1907.11692",
        "Sanh et al. 2019 (DistilBERT), arXiv 1910.01108",
    )

    layers: Count = 12
    hidden: Count = 768
    heads: Count = 12
    ffn: Count = 3072
    activation: str = "gelu"
    vocab: Count = 30522
    seq: Count = 512
    positions: Count = 512
    types: Index = 2
    pooler: bool = True
    objective: str = "features"
    predictions: Index = 0
    dropout: Rate = 0.0
    attention: str = "flash"

    def check(self) -> None:
        head_size(self.hidden, self.heads)
        check_activation(self.activation)
        if self.objective not in OBJECTIVES:
            raise BadInput(f"objective={self.objective} is not known", fix=", ".join(OBJECTIVES))
        if self.seq > self.positions:
            what = f"seq={self.seq} is longer than the positions={self.positions} that BERT learns"
            raise BadInput(what, fix=f"seq={self.positions} or positions={self.seq}")
        if self.predictions > self.seq:
            what = f"predictions={self.predictions} in a sequence of seq={self.seq} tokens"
            raise BadInput(what, fix=f"predictions={self.seq} at most; 0 is every token")

    @property
    def pools(self) -> bool:
        """Whether the pooler is there: the next-sentence head needs it, masked tokens alone do not."""
        return self.objective == "pretraining" or (self.objective == "features" and self.pooler)

    def build(self, g: Builder, batch: int) -> None:
        x, table = self._embed(g, batch)
        for layer in range(self.layers):
            with g.scope(f"layers.{layer}"):
                x = self._block(g, x)
        pooled = self._pool(g, x) if self.pools else x
        if self.objective == "features":
            with g.scope("loss"):
                _squared_distance(g, pooled)
            return
        scores = self._token_scores(g, x, table)
        places = scores.dims[:-1]
        if self.objective == "mlm":
            class_loss(g, scores)
            return
        with g.scope("next_sentence"):
            order = linear(g, pooled, dims(class_=2))
        # one more column in the target says which sentence came first
        target = targets(g, dims(sample=batch, sequence=places[1].size + 1))
        words = class_loss(g, scores, copy(g, view(g, target, places, "slice")))
        combine(g, words, class_loss(g, order, view(g, target, dims(sample=batch), "slice")))

    def _embed(self, g: Builder, batch: int) -> tuple[Value, Value]:
        hidden = dims(hidden=self.hidden)
        shape = dims(sample=batch, sequence=self.seq)
        with g.scope("token"):
            table = g.parameter("weight", dims(vocab=self.vocab, hidden=self.hidden))
            x = embedding(g, tokens(g, batch, self.seq), self.vocab, hidden, weight=table)
        with g.scope("position"):
            rows = g.parameter("weight", dims(position=self.positions, hidden=self.hidden))
            x = broadcast(g, x, view(g, rows, dims(sequence=self.seq, hidden=self.hidden), "slice"), "add")
        if self.types:
            with g.scope("sentence_type"):
                x = combine(g, x, embedding(g, g.input("types", shape, "int64"), self.types, hidden))
        with g.scope("embedding_norm"):
            x = layer_norm(g, x)
        return dropout(g, x, self.dropout), table

    def _block(self, g: Builder, x: Value) -> Value:
        with g.scope("attention"):
            y = attend(g, x, self.heads, kernel=self.attention, rate=self.dropout)
        with g.scope("attention_norm"):
            x = layer_norm(g, combine(g, x, dropout(g, y, self.dropout)))
        with g.scope("feed_forward"):
            y = feed_forward(g, x, self.ffn, self.activation)
        with g.scope("feed_forward_norm"):
            return layer_norm(g, combine(g, x, dropout(g, y, self.dropout)))

    def _pool(self, g: Builder, x: Value) -> Value:
        first = view(g, x, (x.dims[0], x.dims[2]), "slice")
        with g.scope("pooler"):
            return activation(g, linear(g, first, first.dims[1:]), "tanh")

    def _token_scores(self, g: Builder, x: Value, table: Value) -> Value:
        if self.predictions:
            places = (x.dims[0], Dim("sequence", self.predictions))
            x = gather(g, x, g.input("places", places, "int64"), places)
        with g.scope("token_head.transform"):
            x = activation(g, linear(g, x, x.dims[-1:]), self.activation)
        with g.scope("token_head.transform_norm"):
            x = layer_norm(g, x)
        with g.scope("token_head.decoder"):
            return linear(g, x, dims(vocab=self.vocab), weight=table)


def _squared_distance(g: Builder, x: Value) -> None:
    difference = combine(g, cast(g, x, "fp32"), g.input("features", x.dims, "fp32"), "subtract")
    squares = activation(g, difference, "square")
    reduce(g, squares, tuple(dim.name for dim in x.dims))


def _with_heads(name: str, fields: Bert) -> dict[str, Bert]:
    """One size bare, and with the heads of each training objective."""
    trained = {f"{name}-{word}": msgspec.structs.replace(fields, objective=word) for word in OBJECTIVES[1:]}
    return {name: fields, **trained}


PRESETS = {
    "bert": Bert(),
    **_with_heads("bert-base", Bert()),
    **_with_heads("bert-large", Bert(layers=24, hidden=1024, heads=16, ffn=4096)),
    "distilbert-base": Bert(layers=6, types=0, pooler=False),
    "roberta-base": Bert(vocab=50265, positions=514, types=1),
    "roberta-large": Bert(layers=24, hidden=1024, heads=16, ffn=4096, vocab=50265, positions=514, types=1),
}
