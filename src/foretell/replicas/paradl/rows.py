"""The eight rows as the released tool computes them (papers and versions: `release.py`).

D samples, B a batch, p ranks; |x|, |y|, |w| elements of a layer's input, output and weights.
The tool knows the seconds of forward and backward together and no seconds of the weight update.
"""

from __future__ import annotations

from collections.abc import Iterable

from foretell.errors import BadInput
from foretell.model.zoo._layer_file import LayerLine
from foretell.replicas.paradl.platform import HockneyLink
from foretell.replicas.paradl.projection import (
    Projection,
    ProjectionQuestion,
    Row,
    Term,
    face,
    half,
    pipelined,
    projected,
    whole,
)
from foretell.units import Quantity, product


def serial(q: ProjectionQuestion) -> Projection:
    """Everything on one rank."""
    return projected(q, "serial", q.file.samples * q.file.seconds, (), _counted(q), q.file.weights)


def data(q: ProjectionQuestion) -> Projection:
    """Samples divided; gradients summed once a step."""
    computation = whole(q.file.samples / q.groups) * q.file.seconds
    gradients = q.link(q.groups).all_reduce(q.groups, q.size(q.file.weights))
    terms = (Term("gradient all-reduce", "dp", q.steps * gradients),)
    return projected(q, "data", computation, terms, _counted(q), q.file.weights)


def spatial(q: ProjectionQuestion) -> Projection:
    """The first extent divided; halos at each window, a gathering after the last split layer, gradients summed."""
    ranks, release = q.ranks, q.release
    activations = _spatial_activations(q, q.layers)
    most = q.most_samples(activations, q.file.weights)
    link = (release.platform.link_by_host if release.halos_by_host else release.platform.link)(ranks)
    halos = _edge_halos if release.spatial_halo_is_edge else _face_halos
    halo = halos(q, _windows(q), most if release.spatial_halo_of_most_samples else 1, link)
    gathered = link.all_gather(ranks, q.size(q.batch * product(_last_split(q).y)))
    gradients = link.all_reduce(ranks, q.size(q.file.weights))
    exchanges = q.file.samples / q.batch if release.spatial_broken_steps else q.steps
    terms = (
        Term("halo exchange", "spatial", q.steps * halo),
        Term("all-gather and scatter at the last split layer", "spatial", q.steps * 2 * gathered),
        Term("gradient all-reduce", "spatial", exchanges * gradients),
    )
    computation = q.file.samples * _seconds(q, q.layers)
    return projected(q, "spatial", computation, terms, activations, q.file.weights)


def filters(q: ProjectionQuestion) -> Projection:
    """Filters divided; outputs gathered forward, input gradients summed backward, layer by layer."""
    return _split_weights(q, "filter")


def channels(q: ProjectionQuestion) -> Projection:
    """Channels divided; outputs summed forward, input gradients gathered backward: the same seconds as filters."""
    return _split_weights(q, "channel")


def _split_weights(q: ProjectionQuestion, axis: str) -> Projection:
    weights = _weights(q)
    if q.release.filter_weights_divided_twice:
        weights = weights / q.ranks
    computation = q.steps * q.batch * _seconds(q, q.layers)
    terms = _layer_collectives(q, axis)
    return projected(q, axis, computation, terms, _counted(q), weights)


def data_filter(q: ProjectionQuestion) -> Projection:
    """Filters divided in a node, samples among nodes."""
    release, ranks = q.release, q.groups * q.ranks
    weights = _weights(q)
    link = release.platform.link(ranks).shared(release.df_contention * q.ranks)
    sent = q.file.weights if release.df_sends_all_weights else weights
    gradients = Term("gradient all-reduce", "dp", q.steps * link.all_reduce(q.groups, q.size(sent)))
    computation = q.steps * q.samples * _seconds(q, q.layers)
    terms = (*_layer_collectives(q, "filter"), gradients)
    return projected(q, "data+filter", computation, terms, _counted(q), weights)


def data_spatial(q: ProjectionQuestion) -> Projection:
    """The first extent divided in a node, samples among nodes; gradients summed in the node, then by its leader."""
    release, platform = q.release, q.release.platform
    first = q.layers[: _last_split_at(q) + 1] if release.ds_ends_at_split else q.layers
    inside = (platform.link_by_host if release.halos_by_host else platform.link)(q.ranks)
    weights = q.size(q.file.weights)
    local = platform.link(q.ranks).all_reduce(q.ranks, weights)
    flows = release.ds_leader_flows or release.ds_leader_contention * q.ranks
    leaders = platform.link(q.groups * q.ranks).shared(flows)
    terms = (
        Term("halo exchange", "spatial", q.steps * _ds_halos(q, inside)),
        Term("all-gather and scatter at the last split layer", "spatial", q.steps * 2 * _ds_gather(q, inside)),
        Term("gradient all-reduce in the node", "spatial", q.steps * local),
        Term("gradient all-reduce between leaders", "dp", q.steps * leaders.all_reduce(q.groups, weights)),
    )
    computation = whole(q.file.samples / q.groups) * _seconds(q, first)
    return projected(q, "data+spatial", computation, terms, _spatial_activations(q, first), q.file.weights)


def pipeline(q: ProjectionQuestion) -> Projection:
    """Layers divided, segments of the batch pass through. The tool has this row, but leaves it before it begins."""
    kept = q.batch / q.segments if q.release.pipeline_keeps_one_segment else q.batch
    rounds = q.file.samples / q.segments * (q.ranks + q.segments - 1)
    return pipelined(q, rounds, kept, _activations)


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


def _counted(q: ProjectionQuestion) -> int:
    """|x| + |y| of a sample, without ReLU and norm layers, whose memory is used again."""
    return q.file.inputs + q.file.outputs


def _weights(q: ProjectionQuestion) -> Quantity:
    """|w| of one rank, split layers in shares."""
    return sum(product(layer.w) / (q.ranks if split else 1) for layer, split in q.layers)


def _seconds(q: ProjectionQuestion, layers: Iterable[tuple[LayerLine, bool]]) -> Quantity:
    """Seconds a sample of one rank, split layers in shares."""
    return sum(layer.seconds / (q.ranks if split else 1) for layer, split in layers)


def _spatial_activations(q: ProjectionQuestion, layers: Iterable[tuple[LayerLine, bool]]) -> Quantity:
    """|x| + |y| of a sample on one rank, each tensor of a split layer in shares, rounded up."""
    total: Quantity = 0
    for layer, split in layers:
        if q.release.spatial_counts_reused or layer.kind not in ("relu", "norm"):
            total = total + sum(whole(product(shape) / q.ranks) if split else product(shape) for shape in _xy(layer))
    return total


def _xy(layer: LayerLine) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return layer.x, layer.y


def _activations(layers: Iterable[LayerLine]) -> int:
    return sum(product(shape) for layer in layers for shape in _xy(layer))


def _layer_collectives(q: ProjectionQuestion, axis: str) -> tuple[Term, ...]:
    """One gathering and one sum a split layer; the last layer of the model needs none."""
    link = q.link(q.ranks)
    outputs = [product(layer.y) for layer, split in q.layers[:-1] if split]
    gathered = sum(link.all_gather(q.ranks, q.size(q.samples * items)) for items in outputs)
    forward, backward = ("all-gather", "all-reduce") if axis == "filter" else ("all-reduce", "all-gather")
    times = {"all-gather": 1, "all-reduce": 2}
    return (
        Term(f"{forward} of outputs, forward", axis, times[forward] * q.steps * gathered),
        Term(f"{backward} of gradients, backward", axis, times[backward] * q.steps * gathered),
    )


def _last_split_at(q: ProjectionQuestion) -> int:
    found = [at for at, (_, split) in enumerate(q.layers) if split]
    if not found:
        raise BadInput(f"{q.file.model or 'the model'} has no layer that can be split in space", fix="dp16, or pp4")
    return found[-1]


def _last_split(q: ProjectionQuestion) -> LayerLine:
    return q.file.layers[_last_split_at(q)]


def _windows(q: ProjectionQuestion, every: bool = False) -> list[LayerLine]:
    """Layers that look at more than one position: the split ones, or every one up to the last of those."""
    layers = q.layers[: _last_split_at(q) + 1]
    return [layer for layer, split in layers if (split or every) and len(layer.w) > 2 and layer.w[2] > 1]


def _edge_halos(q: ProjectionQuestion, windows: list[LayerLine], samples: Quantity, link: HockneyLink) -> Quantity:
    """Halos of one row of positions, without channels and other extents: forward of y, backward of x."""
    sizes = (shape[1] * half(layer) * samples for layer in windows for shape in _xy(layer))
    return sum(link.exchange_halo(q.size(size)) for size in sizes)


def _face_halos(q: ProjectionQuestion, windows: list[LayerLine], samples: Quantity, link: HockneyLink) -> Quantity:
    """Halos of whole slices of x, forward and backward."""
    sizes = (q.size(face(layer.x) * half(layer) * samples) for layer in windows)
    return sum(2 * link.exchange_halo(size) for size in sizes)


def _ds_halos(q: ProjectionQuestion, link: HockneyLink) -> Quantity:
    release = q.release
    if release.ds_halo_contention:
        link = link.shared(release.ds_halo_contention * q.ranks)
    windows = _windows(q, every=release.ds_halo_at_every_window)
    if not release.ds_halo_is_face:
        return _edge_halos(q, windows, 1, link)
    return _face_halos(q, windows, q.samples, link)


def _ds_gather(q: ProjectionQuestion, link: HockneyLink) -> Quantity:
    link = link.shared(q.release.ds_gather_contention)
    size = q.size(q.samples * product(_last_split(q).y))
    return (q.ranks - 1) * link.send(size) if q.release.ds_gathers_whole else link.all_gather(q.ranks, size)
