"""Multi-token prediction: at every place, layers after the main model predict the tokens after the next one.

Each depth reads what the one before it made (the first: what the main model's head reads) and the embedding of the
token that it made it for. Token table and head are the main model's; each depth has a loss of its own.
"""

from __future__ import annotations

from typing import Final

from foretell.model.build import Builder, Value, dims
from foretell.model.operators.elementwise import activation, combine, copy
from foretell.model.operators.embedding import embedding
from foretell.model.operators.layout import concatenate, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import rms_norm
from foretell.model.zoo._decoder import Decoder, MainModel
from foretell.model.zoo._task import class_loss, targets

LOSS_SHARE: Final = 0.3
"""Of the mean loss of further tokens: DeepSeek-V3's for its first 10 T tokens (section 4.2 of its report), then 0.1."""


def losses(g: Builder, fields: Decoder, main: MainModel, depths: int) -> None:
    """The losses of the next token and of so many further ones, and their sum.

    The depths come before any head, as they run in trainers: the last stage of a pipeline has them with both heads.
    """
    made = [main.states]
    for depth in range(depths):
        with g.scope(f"mtp.{depth}"):
            made.append(_depth(g, fields, main, made[-1], fields.layers + depth))
    with g.scope("head"):
        head = main.table if fields.tied else g.parameter("weight", dims(vocab=fields.vocab, hidden=fields.hidden))
    target = targets(g, main.tokens.dims)
    total = None
    for states in made:
        with g.scope("head"):
            logits = linear(g, states, dims(vocab=fields.vocab), bias=False, weight=head)
        if total is None:
            total = class_loss(g, logits, target)
            continue
        with g.scope("loss"):
            later = copy(g, target)  # a place further
        loss = class_loss(g, logits, later)
        with g.scope("loss"):
            total = combine(g, total, activation(g, loss, "scale"))


def _depth(g: Builder, fields: Decoder, main: MainModel, states: Value, layer: int) -> Value:
    with g.scope("embedding"):
        text = copy(g, main.tokens)  # a place further
        x = embedding(g, text, fields.vocab, dims(hidden=fields.hidden), weight=main.table)
    with g.scope("hidden_norm"):
        states = rms_norm(g, states)
    with g.scope("embedding_norm"):
        x = rms_norm(g, x)
    both = concatenate(g, [states, x], "hidden")
    both = view(g, both, (*both.dims[:-1], *dims(both=2 * fields.hidden)))
    with g.scope("projection"):
        x = linear(g, both, states.dims[-1:], bias=False)
    x = fields.layer(g, x, main.context, layer)
    with g.scope("norm"):
        return rms_norm(g, x)
