"""The eight rows as the released tool computes them (papers and versions: `release.py`).

D samples, B a batch, p ranks; |x|, |y|, |w| elements of a layer's input, output and weights.
The tool knows the seconds of forward and backward together and no seconds of the weight update.
"""

from __future__ import annotations

from collections.abc import Iterable

from foretell.errors import BadInput
from foretell.model.zoo._layer_file import Layer
from foretell.replicas.paradl.collectives import all_gather, all_reduce, exchange_halo, send
from foretell.replicas.paradl.platform import Link
from foretell.replicas.paradl.projection import Projection, Question, Row, Stage, Term, face, half, whole
from foretell.units import Quantity, product


def serial(q: Question) -> Projection:
    """Everything on one rank."""
    return _answer(q, "serial", q.file.samples * q.file.seconds, (), _counted(q), q.file.weights)


def data(q: Question) -> Projection:
    """Samples divided; gradients summed once a step."""
    computation = whole(q.file.samples / q.groups) * q.file.seconds
    gradients = all_reduce(q.groups, _bytes(q, q.file.weights), q.release.platform.link(q.groups))
    terms = (Term("gradient all-reduce", "dp", q.steps * gradients),)
    return _answer(q, "data", computation, terms, _counted(q), q.file.weights)


def spatial(q: Question) -> Projection:
    """The first extent divided; halos at each window, a gathering after the last split layer, gradients summed."""
    ranks, release = q.ranks, q.release
    activations = _spatial_activations(q, q.layers)
    most = _most(q, activations, q.file.weights)
    link = (release.platform.link_by_host if release.halos_by_host else release.platform.link)(ranks)
    halos = _edge_halos if release.spatial_halo_is_edge else _face_halos
    halo = halos(q, _windows(q), most if release.spatial_halo_of_most_samples else 1, link)
    gathered = all_gather(ranks, _bytes(q, q.batch * product(_last_split(q).y)), link)
    gradients = all_reduce(ranks, _bytes(q, q.file.weights), link)
    exchanges = q.file.samples / q.batch if release.spatial_broken_steps else q.steps
    terms = (
        Term("halo exchange", "spatial", q.steps * halo),
        Term("all-gather and scatter at the last split layer", "spatial", q.steps * 2 * gathered),
        Term("gradient all-reduce", "spatial", exchanges * gradients),
    )
    computation = q.file.samples * _seconds(q, q.layers)
    return _answer(q, "spatial", computation, terms, activations, q.file.weights)


def filters(q: Question) -> Projection:
    """Filters divided; outputs gathered forward, input gradients summed backward, layer by layer."""
    return _split_weights(q, "filter")


def channels(q: Question) -> Projection:
    """Channels divided; outputs summed forward, input gradients gathered backward: the same seconds as filters."""
    return _split_weights(q, "channel")


def _split_weights(q: Question, axis: str) -> Projection:
    weights = _weights(q)
    if q.release.filter_weights_divided_twice:
        weights = weights / q.ranks
    computation = q.steps * q.batch * _seconds(q, q.layers)
    terms = _layer_collectives(q, axis)
    return _answer(q, axis, computation, terms, _counted(q), weights)


def data_filter(q: Question) -> Projection:
    """Filters divided in a node, samples among nodes."""
    release, ranks = q.release, q.groups * q.ranks
    weights = _weights(q)
    link = release.platform.link(ranks).shared(release.df_contention * q.ranks)
    sent = q.file.weights if release.df_sends_all_weights else weights
    gradients = Term("gradient all-reduce", "dp", q.steps * all_reduce(q.groups, _bytes(q, sent), link))
    computation = q.steps * q.samples * _seconds(q, q.layers)
    terms = (*_layer_collectives(q, "filter"), gradients)
    return _answer(q, "data+filter", computation, terms, _counted(q), weights)


def data_spatial(q: Question) -> Projection:
    """The first extent divided in a node, samples among nodes; gradients summed in the node, then by its leader."""
    release, platform = q.release, q.release.platform
    first = q.layers[: _last_split_at(q) + 1] if release.ds_ends_at_split else q.layers
    inside = (platform.link_by_host if release.halos_by_host else platform.link)(q.ranks)
    weights = _bytes(q, q.file.weights)
    local = all_reduce(q.ranks, weights, platform.link(q.ranks))
    flows = release.ds_leader_flows or release.ds_leader_contention * q.ranks
    leaders = platform.link(q.groups * q.ranks).shared(flows)
    terms = (
        Term("halo exchange", "spatial", q.steps * _ds_halos(q, inside)),
        Term("all-gather and scatter at the last split layer", "spatial", q.steps * 2 * _ds_gather(q, inside)),
        Term("gradient all-reduce in the node", "spatial", q.steps * local),
        Term("gradient all-reduce between leaders", "dp", q.steps * all_reduce(q.groups, weights, leaders)),
    )
    computation = whole(q.file.samples / q.groups) * _seconds(q, first)
    return _answer(q, "data+spatial", computation, terms, _spatial_activations(q, first), q.file.weights)


def pipeline(q: Question) -> Projection:
    """Layers divided, segments of the batch pass through. The tool has this row, but leaves it before it begins."""
    stages = stages_of(q)
    slots = q.ranks + q.segments - 1
    slowest = max(sum(layer.seconds for layer in stage) for stage in stages)
    computation = q.file.samples / q.segments * slots * slowest
    sent = max(_stage_boundaries(q, stages), default=0.0)
    passing = Term("activations to the next stage", "pp", 2 * q.file.samples / q.batch * (slots - 1) * sent)
    kept = q.batch / q.segments if q.release.pipeline_keeps_one_segment else q.batch
    sizes = [(_activations(stage), sum(product(layer.w) for layer in stage)) for stage in stages]
    memory = max(2 * _bytes(q, kept * activations + weights) for activations, weights in sizes)
    room = q.release.platform.memory / q.release.platform.item / 2
    return Projection(
        strategy="pipeline",
        ranks=q.ranks,
        batch=q.batch,
        steps=q.steps,
        computation=computation,
        bubble=computation * (q.ranks - 1) / slots,
        terms=(passing,),
        memory=memory,
        most_samples=min((room - weights) / activations for activations, weights in sizes) * q.batch / kept,
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
    q: Question,
    strategy: str,
    computation: Quantity,
    terms: tuple[Term, ...],
    activations: Quantity,
    weights: Quantity,
) -> Projection:
    """The row; activations are elements for one sample of a group, each with its gradient, as weights are."""
    return Projection(
        strategy=strategy,
        ranks=q.groups * q.ranks,
        batch=q.batch,
        steps=q.steps,
        computation=computation,
        terms=terms,
        memory=2 * _bytes(q, q.samples * activations + weights),
        most_samples=_most(q, activations, weights),
    )


def _bytes(q: Question, items: Quantity) -> Quantity:
    return items * q.release.platform.item


def _most(q: Question, activations: Quantity, weights: Quantity) -> Quantity:
    """Samples of a group for which the memory of one rank is enough."""
    return (q.release.platform.memory / q.release.platform.item / 2 - weights) / activations


def _counted(q: Question) -> int:
    """|x| + |y| of a sample, without ReLU and norm layers, whose memory is used again."""
    return q.file.inputs + q.file.outputs


def _weights(q: Question) -> Quantity:
    """|w| of one rank, split layers in shares."""
    return sum(product(layer.w) / (q.ranks if split else 1) for layer, split in q.layers)


def _seconds(q: Question, layers: Iterable[tuple[Layer, bool]]) -> Quantity:
    """Seconds a sample of one rank, split layers in shares."""
    return sum(layer.seconds / (q.ranks if split else 1) for layer, split in layers)


def _spatial_activations(q: Question, layers: Iterable[tuple[Layer, bool]]) -> Quantity:
    """|x| + |y| of a sample on one rank, each tensor of a split layer in shares, rounded up."""
    total: Quantity = 0
    for layer, split in layers:
        if q.release.spatial_counts_reused or layer.kind not in ("relu", "norm"):
            total = total + sum(whole(product(shape) / q.ranks) if split else product(shape) for shape in _xy(layer))
    return total


def _xy(layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return layer.x, layer.y


def _activations(layers: Iterable[Layer]) -> int:
    return sum(product(shape) for layer in layers for shape in _xy(layer))


def _layer_collectives(q: Question, axis: str) -> tuple[Term, ...]:
    """One gathering and one sum a split layer; the last layer of the model needs none."""
    link = q.release.platform.link(q.ranks)
    outputs = [product(layer.y) for layer, split in q.layers[:-1] if split]
    gathered = sum(all_gather(q.ranks, _bytes(q, q.samples * items), link) for items in outputs)
    forward, backward = ("all-gather", "all-reduce") if axis == "filter" else ("all-reduce", "all-gather")
    times = {"all-gather": 1, "all-reduce": 2}
    return (
        Term(f"{forward} of outputs, forward", axis, times[forward] * q.steps * gathered),
        Term(f"{backward} of gradients, backward", axis, times[backward] * q.steps * gathered),
    )


def _last_split_at(q: Question) -> int:
    found = [at for at, (_, split) in enumerate(q.layers) if split]
    if not found:
        raise BadInput(f"{q.file.model or 'the model'} has no layer that can be split in space", fix="dp16, or pp4")
    return found[-1]


def _last_split(q: Question) -> Layer:
    return q.file.layers[_last_split_at(q)]


def _windows(q: Question, every: bool = False) -> list[Layer]:
    """Layers that look at more than one position: the split ones, or every one up to the last of those."""
    layers = q.layers[: _last_split_at(q) + 1]
    return [layer for layer, split in layers if (split or every) and len(layer.w) > 2 and layer.w[2] > 1]


def _edge_halos(q: Question, windows: list[Layer], samples: Quantity, link: Link) -> Quantity:
    """Halos of one row of positions, without channels and other extents: forward of y, backward of x."""
    sizes = (shape[1] * half(layer) * samples for layer in windows for shape in _xy(layer))
    return sum(exchange_halo(_bytes(q, size), link) for size in sizes)


def _face_halos(q: Question, windows: list[Layer], samples: Quantity, link: Link) -> Quantity:
    """Halos of whole slices of x, forward and backward."""
    sizes = (_bytes(q, face(layer.x) * half(layer) * samples) for layer in windows)
    return sum(2 * exchange_halo(size, link) for size in sizes)


def _ds_halos(q: Question, link: Link) -> Quantity:
    release = q.release
    if release.ds_halo_contention:
        link = link.shared(release.ds_halo_contention * q.ranks)
    windows = _windows(q, every=release.ds_halo_at_every_window)
    if not release.ds_halo_is_face:
        return _edge_halos(q, windows, 1, link)
    return _face_halos(q, windows, q.samples, link)


def _ds_gather(q: Question, link: Link) -> Quantity:
    link = link.shared(q.release.ds_gather_contention)
    size = _bytes(q, q.samples * product(_last_split(q).y))
    return (q.ranks - 1) * send(size, link) if q.release.ds_gathers_whole else all_gather(q.ranks, size, link)


def stages_of(q: Question) -> list[list[Layer]]:
    """Layers in order, a new stage when the mean of all stages would be passed: the tool's greedy rule."""
    mean = q.file.seconds / q.ranks
    stages: list[list[Layer]] = [[]]
    filled = 0.0
    for layer in q.file.layers:
        filled += layer.seconds
        if stages[-1] and filled > mean and len(stages) < q.ranks:
            stages.append([])
            filled = layer.seconds
        stages[-1].append(layer)
    return stages


def _stage_boundaries(q: Question, stages: list[list[Layer]]) -> list[Quantity]:
    """Seconds of one segment from each stage to the next; stage i is on rank i."""
    samples = q.batch / q.segments
    return [
        send(_bytes(q, samples * product(stage[-1].y)), q.release.platform.link(at + 2))
        for at, stage in enumerate(stages[:-1])
    ]


def summary(layers: list[Layer]) -> Stage:
    """A stage for people: its ends, its layers, its seconds."""
    return Stage(layers[0].name, layers[-1].name, len(layers), sum(layer.seconds for layer in layers))
