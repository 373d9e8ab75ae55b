"""The eight rows as the paper prints them (Table 3, and section 4.5 for data + spatial), without the tool's oddities.

Where the print must be read in one way: D / B and D / p are not rounded; there are no seconds of the
weight update and no biases in a layer file; memory leaves out ReLU and norm layers (the paper's reuse
factor, as the tool takes it); sums over layers that exchange something are over layers with weights
(filter, channel) or with windows (spatial, dense layers apart); flows of one job do not disturb each
other (phi = 1).
"""

from __future__ import annotations

from collections.abc import Iterable

from foretell.model.zoo._layer_file import LayerLine
from foretell.replicas.paradl.choice import has_weights, has_window
from foretell.replicas.paradl.projection import (
    Projection,
    ProjectionQuestion,
    Row,
    Term,
    face,
    half,
    pipelined,
    projected,
)
from foretell.units import Quantity, product


def serial(q: ProjectionQuestion) -> Projection:
    return _answer(q, "serial", (), _kept(q.file.layers), q.file.weights)


def data(q: ProjectionQuestion) -> Projection:
    """2 D/B (p-1) (alpha + sum|w|/p delta beta)"""
    return _answer(q, "data", (_gradients(q, q.groups, q.file.weights),), _kept(q.file.layers), q.file.weights)


def spatial(q: ProjectionQuestion) -> Projection:
    """2 D/B [(p-1)(alpha + sum|w|/p delta beta) + sum_l (2 alpha + B (halo(x) + halo(dL/dy)) delta beta)]"""
    terms = (_halos(q), _gradients(q, q.ranks, q.file.weights, "spatial"))
    return _answer(q, "spatial", terms, _kept(q.file.layers) / q.ranks, q.file.weights)


def filters(q: ProjectionQuestion) -> Projection:
    """3 D/B (p-1) sum_{l<G} (alpha + B|y|/p delta beta)"""
    return _answer(q, "filter", (_layer_by_layer(q, "filter"),), _kept(q.file.layers), q.file.weights / q.ranks)


def channels(q: ProjectionQuestion) -> Projection:
    """The same as filter."""
    return _answer(q, "channel", (_layer_by_layer(q, "channel"),), _kept(q.file.layers), q.file.weights / q.ranks)


def data_filter(q: ProjectionQuestion) -> Projection:
    """3 D/B (p2-1) sum_{l<G} (alpha + B|y|/p delta beta) + 2 D/B (p1-1) (alpha + sum|w|/p delta beta)"""
    terms = (_layer_by_layer(q, "filter"), _gradients(q, q.groups, q.file.weights / q.ranks))
    return _answer(q, "data+filter", terms, _kept(q.file.layers), q.file.weights / q.ranks)


def data_spatial(q: ProjectionQuestion) -> Projection:
    """Halos in a group, a sum of gradients in the group and one between leaders; a gathering before dense layers."""
    last = [at for at, layer in enumerate(q.file.layers) if has_window(layer)][-1]
    share = q.size(q.samples * product(q.file.layers[last].y) / q.ranks)
    gather = 2 * q.steps * (q.ranks - 1) * q.link(q.ranks).send(share)
    terms = (
        _halos(q),
        Term("all-gather and scatter at the last split layer", "spatial", gather),
        _gradients(q, q.ranks, q.file.weights, "spatial", "gradient all-reduce in the node"),
        _gradients(q, q.groups, q.file.weights, name="gradient all-reduce between leaders"),
    )
    kept = _kept(q.file.layers[: last + 1]) / q.ranks + _kept(q.file.layers[last + 1 :])
    return _answer(q, "data+spatial", terms, kept, q.file.weights)


def pipeline(q: ProjectionQuestion) -> Projection:
    """D (p+S-1)/S max_i seconds; 2 D (p+S-2)/B max_i (alpha + B/S |y| delta beta); all of B is kept"""
    rounds = q.file.samples * (q.ranks + q.segments - 1) / q.segments
    return pipelined(q, rounds, q.batch, _kept)


ROWS: dict[str, Row] = {
    "serial": serial,
    "data": data,
    "spatial": spatial,
    "pipeline": pipeline,
    "filter": filters,
    "channel": channels,
    "data+filter": data_filter,
    "data+spatial": data_spatial,
}


def _answer(
    q: ProjectionQuestion, strategy: str, terms: tuple[Term, ...], activations: Quantity, weights: Quantity
) -> Projection:
    """D/p of all layers, and what each row adds to it."""
    computation = q.file.samples / (q.groups * q.ranks) * q.file.seconds
    return projected(q, strategy, computation, terms, activations, weights)


def _kept(layers: Iterable[LayerLine]) -> Quantity:
    """|x| + |y| of layers whose memory is not used again at once."""
    kept = (layer for layer in layers if layer.kind not in ("relu", "norm"))
    return sum(product(layer.x) + product(layer.y) for layer in kept)


def _gradients(
    q: ProjectionQuestion, ranks: Quantity, weights: Quantity, axis: str = "dp", name: str = "gradient all-reduce"
) -> Term:
    """A ring among these ranks, on the links that the whole plan spans where the axis is the outer one."""
    spanned = ranks if axis != "dp" else q.groups * q.ranks
    return Term(name, axis, q.steps * q.link(spanned).all_reduce(ranks, q.size(weights)))


def _layer_by_layer(q: ProjectionQuestion, axis: str) -> Term:
    outputs = [product(layer.y) for layer in q.file.layers[:-1] if has_weights(layer)]
    link = q.link(q.ranks)
    seconds = sum(3 * link.all_gather(q.ranks, q.size(q.samples * items)) for items in outputs)
    return Term("all-gather and all-reduce, layer by layer", axis, q.steps * seconds)


def _halos(q: ProjectionQuestion) -> Term:
    link = q.link(q.ranks)
    sizes = [half(layer) * (face(layer.x) + face(layer.y)) for layer in q.file.layers if has_window(layer)]
    seconds = sum(2 * (link.startup + link.send(q.size(q.samples * size))) for size in sizes)
    return Term("halo exchange", "spatial", q.steps * seconds)
