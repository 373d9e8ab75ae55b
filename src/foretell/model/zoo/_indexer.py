"""What chooses the places that sparse attention sees: small heads over one key, run without gradients."""

from __future__ import annotations

from typing import NamedTuple

from foretell.model.build import Builder, Value, dims
from foretell.model.operators.elementwise import activation
from foretell.model.operators.experts import top_k
from foretell.model.operators.index_scores import index_scores
from foretell.model.operators.layout import concatenate, split, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm
from foretell.model.operators.rotary import rotary
from foretell.model.zoo._decoder import LayerContext, heads_outside


class Indexer(NamedTuple):
    """So many heads of so many features choose so many places."""

    heads: int
    features: int
    top_k: int


def index_of(g: Builder, x: Value, latent: Value, context: LayerContext, of: Indexer) -> Value:
    """The places that each of x[sample, sequence, hidden] sees, its queries made from the latent ones."""
    assert context.angles
    turning = 2 * context.angles[0].dims[-1].size
    x, latent = (part._replace(needs_gradient=False) for part in (x, latent))
    was, g.frozen = g.frozen, True
    with g.scope("index"):
        with g.scope("query"):
            q = linear(g, latent, dims(head=of.heads, head_dim=of.features), bias=False)
        with g.scope("key"):
            k = linear(g, x, dims(head_dim=of.features), bias=False)
        with g.scope("key_norm"):
            k = layer_norm(g, k)
        sample, sequence, _ = k.dims
        k = view(g, k, (sample, sequence, *dims(head=1, head_dim=of.features)))
        q, k = (_first_turned(g, part, turning, context) for part in (q, k))
        with g.scope("weights"):
            weights = linear(g, x, dims(head=of.heads), bias=False)
        k = view(g, k, (sample, sequence, k.dims[-1]))
        scores = index_scores(g, q, k, activation(g, weights, "scale"))
        found = top_k(g, scores, min(of.top_k, sequence.size), places=True)
    g.frozen = was
    return found


def _first_turned(g: Builder, x: Value, turning: int, context: LayerContext) -> Value:
    """x[sample, sequence, head, head_dim] with its first features turned."""
    size = x.size("head_dim")
    if turning == size:
        return turned(g, x, context)
    first, rest = split(g, x, "head_dim", (turning, size - turning))
    return concatenate(g, [turned(g, first, context), rest], "head_dim")


def turned(g: Builder, x: Value, context: LayerContext) -> Value:
    """x[sample, sequence, head, head_dim] turned with its position."""
    assert context.angles
    y = rotary(g, heads_outside(g, x), *context.angles)
    return view(g, y, x.dims, "transpose")
