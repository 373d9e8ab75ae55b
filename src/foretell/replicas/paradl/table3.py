"""The eight rows as the paper prints them (Table 3, and section 4.5 for data + spatial), without the tool's oddities.

Where the print must be read in one way: D / B and D / p are not rounded; there are no seconds of the
weight update and no biases in a layer file; memory leaves out ReLU and norm layers (the paper's reuse
factor, as the tool takes it); sums over layers that exchange something are over layers with weights
(filter, channel) or with windows (spatial, dense layers apart); flows of one job do not disturb each
other (phi = 1).
"""

from __future__ import annotations

from foretell.model.zoo._layer_file import Layer
from foretell.replicas.paradl.choice import has_weights, has_window
from foretell.replicas.paradl.collectives import all_gather, all_reduce, send
from foretell.replicas.paradl.platform import Link
from foretell.replicas.paradl.projection import Projection, Question, Row, Term, face, half
from foretell.replicas.paradl.rows import stages_of, summary
from foretell.units import Quantity, product


def serial(q: Question) -> Projection:
    return _answer(q, "serial", (), _kept(q.file.layers), q.file.weights)


def data(q: Question) -> Projection:
    """2 D/B (p-1) (alpha + sum|w|/p delta beta)"""
    return _answer(q, "data", (_gradients(q, q.groups, q.file.weights),), _kept(q.file.layers), q.file.weights)


def spatial(q: Question) -> Projection:
    """2 D/B [(p-1)(alpha + sum|w|/p delta beta) + sum_l (2 alpha + B (halo(x) + halo(dL/dy)) delta beta)]"""
    terms = (_halos(q), _gradients(q, q.ranks, q.file.weights, "spatial"))
    return _answer(q, "spatial", terms, _kept(q.file.layers) / q.ranks, q.file.weights)


def filters(q: Question) -> Projection:
    """3 D/B (p-1) sum_{l<G} (alpha + B|y|/p delta beta)"""
    return _answer(q, "filter", (_layer_by_layer(q, "filter"),), _kept(q.file.layers), q.file.weights / q.ranks)


def channels(q: Question) -> Projection:
    """The same as filter."""
    return _answer(q, "channel", (_layer_by_layer(q, "channel"),), _kept(q.file.layers), q.file.weights / q.ranks)


def data_filter(q: Question) -> Projection:
    """3 D/B (p2-1) sum_{l<G} (alpha + B|y|/p delta beta) + 2 D/B (p1-1) (alpha + sum|w|/p delta beta)"""
    terms = (_layer_by_layer(q, "filter"), _gradients(q, q.groups, q.file.weights / q.ranks))
    return _answer(q, "data+filter", terms, _kept(q.file.layers), q.file.weights / q.ranks)


def data_spatial(q: Question) -> Projection:
    """Halos in a group, a sum of gradients in the group and one between leaders; a gathering before dense layers."""
    last = [at for at, layer in enumerate(q.file.layers) if has_window(layer)][-1]
    share = q.samples * product(q.file.layers[last].y) / q.ranks * _item(q)
    gather = 2 * _steps(q) * (q.ranks - 1) * send(share, _link(q, q.ranks))
    terms = (
        _halos(q),
        Term("all-gather and scatter at the last split layer", "spatial", gather),
        _gradients(q, q.ranks, q.file.weights, "spatial", "gradient all-reduce in the node"),
        _gradients(q, q.groups, q.file.weights, name="gradient all-reduce between leaders"),
    )
    kept = _kept(q.file.layers[: last + 1]) / q.ranks + _kept(q.file.layers[last + 1 :])
    return _answer(q, "data+spatial", terms, kept, q.file.weights)


def pipeline(q: Question) -> Projection:
    """D (p+S-1)/S max_i seconds; 2 D (p+S-2)/B max_i (alpha + B/S |y| delta beta); all of B is kept"""
    stages = stages_of(q)
    slots = q.ranks + q.segments - 1
    slowest = max(sum(layer.seconds for layer in stage) for stage in stages)
    computation = q.file.samples * slots / q.segments * slowest
    sizes = [q.batch / q.segments * product(stage[-1].y) * _item(q) for stage in stages[:-1]]
    passed = max((send(size, _link(q, at + 2)) for at, size in enumerate(sizes)), default=0.0)
    passing = Term("activations to the next stage", "pp", 2 * _steps(q) * (slots - 1) * passed)
    kept = [(_kept(tuple(stage)), sum(product(layer.w) for layer in stage)) for stage in stages]
    return Projection(
        strategy="pipeline",
        ranks=q.ranks,
        batch=q.batch,
        steps=_steps(q),
        computation=computation,
        bubble=computation * (q.ranks - 1) / slots,
        terms=(passing,),
        memory=max(2 * _item(q) * (q.batch * activations + weights) for activations, weights in kept),
        most_samples=min(_most(q, activations, weights) for activations, weights in kept),
        stages=tuple(summary(stage) for stage in stages),
    )


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
    q: Question, strategy: str, terms: tuple[Term, ...], activations: Quantity, weights: Quantity
) -> Projection:
    """D/p of all layers, and what each row adds to it."""
    ranks = q.groups * q.ranks
    return Projection(
        strategy=strategy,
        ranks=ranks,
        batch=q.batch,
        steps=_steps(q),
        computation=q.file.samples / ranks * q.file.seconds,
        terms=terms,
        memory=2 * _item(q) * (q.samples * activations + weights),
        most_samples=_most(q, activations, weights),
    )


def _steps(q: Question) -> Quantity:
    return q.file.samples / q.batch


def _item(q: Question) -> int:
    return q.release.platform.item


def _link(q: Question, ranks: Quantity) -> Link:
    return q.release.platform.link(ranks)


def _most(q: Question, activations: Quantity, weights: Quantity) -> Quantity:
    return (q.release.platform.memory / _item(q) / 2 - weights) / activations


def _kept(layers: tuple[Layer, ...]) -> Quantity:
    """|x| + |y| of layers whose memory is not used again at once."""
    kept = (layer for layer in layers if layer.kind not in ("relu", "norm"))
    return sum(product(layer.x) + product(layer.y) for layer in kept)


def _gradients(
    q: Question, ranks: Quantity, weights: Quantity, axis: str = "dp", name: str = "gradient all-reduce"
) -> Term:
    """A ring among these ranks, on the links that the whole plan spans where the axis is the outer one."""
    spanned = ranks if axis != "dp" else q.groups * q.ranks
    return Term(name, axis, _steps(q) * all_reduce(ranks, weights * _item(q), _link(q, spanned)))


def _layer_by_layer(q: Question, axis: str) -> Term:
    outputs = [product(layer.y) for layer in q.file.layers[:-1] if has_weights(layer)]
    link = _link(q, q.ranks)
    seconds = sum(3 * all_gather(q.ranks, q.samples * items * _item(q), link) for items in outputs)
    return Term("all-gather and all-reduce, layer by layer", axis, _steps(q) * seconds)


def _halos(q: Question) -> Term:
    link = _link(q, q.ranks)
    sizes = [half(layer) * (face(layer.x) + face(layer.y)) for layer in q.file.layers if has_window(layer)]
    seconds = sum(2 * (link.startup + send(q.samples * size * _item(q), link)) for size in sizes)
    return Term("halo exchange", "spatial", _steps(q) * seconds)
