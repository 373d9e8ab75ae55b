"""How many ranks each row may have (the last column of the paper's Table 3), and which plans are refused."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from foretell.model.zoo._layer_file import LayerLine
from foretell.plan.refusal import Refusal
from foretell.replicas.paradl.projection import ProjectionQuestion
from foretell.replicas.paradl.shapes import INNER
from foretell.units import product


class ParadlLimit(msgspec.Struct, frozen=True):
    """The most ranks, and why."""

    ranks: int
    rule: str


def limit(strategy: str, q: ProjectionQuestion) -> ParadlLimit:
    """The most ranks of a strategy for this model and batch."""
    if strategy == "serial":
        return ParadlLimit(1, "p = 1")
    if strategy == "data":
        return ParadlLimit(q.batch, f"p <= B = {q.batch:,}")
    if strategy == "pipeline":
        return ParadlLimit(len(q.file.layers), f"p <= layers = {len(q.file.layers):,}")
    if strategy in INNER:
        inner = limit(INNER[strategy], q)
        return ParadlLimit(q.batch * inner.ranks, f"p1 <= B = {q.batch:,} and {inner.rule.replace('p <=', 'p2 <=')}")
    return _of_layers(strategy, q)


def _of_layers(strategy: str, q: ProjectionQuestion) -> ParadlLimit:
    sizes = {layer.name: _size(strategy, layer, q.release.clean) for layer in _bounding(strategy, q)}
    if not sizes:
        return ParadlLimit(1, "p <= 1: no layer is split")
    name = min(sizes, key=lambda key: sizes[key])
    what = {
        "filter": "filters",
        "channel": "channels",
        "spatial": "positions" if q.release.clean else "first extent",
    }[strategy]
    return ParadlLimit(sizes[name], f"p <= least {what} = {sizes[name]:,} ({name})")


def _bounding(strategy: str, q: ProjectionQuestion) -> Iterator[LayerLine]:
    """The layers that are split. Channels: not the first, of three colours."""
    for at, (layer, split) in enumerate(q.layers):
        if split and not (strategy == "channel" and at == 0):
            yield layer


def _size(strategy: str, layer: LayerLine, clean: bool) -> int:
    if strategy == "filter":
        return layer.y[0]
    if strategy == "channel":
        return layer.x[0]
    # The tool cuts the first extent only; the paper counts all positions.
    return min(product(shape[1:]) if clean else shape[1] for shape in (layer.x, layer.y))


def refusals(strategy: str, q: ProjectionQuestion) -> Iterator[Refusal]:
    """The rules that the plan breaks."""
    inner = INNER.get(strategy, strategy)
    if q.groups > q.batch:
        yield _too_many("dp", q.groups, limit("data", q))
    elif q.batch % q.groups:
        fix = f"--batch {-(-q.batch // q.groups) * q.groups}"
        yield Refusal("batch divides", f"a batch of {q.batch} is no multiple of dp{q.groups}", fix)
    if inner in ("serial", "data"):
        return
    most = limit(inner, q)
    if q.ranks > most.ranks:
        yield _too_many({"pipeline": "pp"}.get(inner, inner), q.ranks, most)
    elif strategy == "pipeline":
        yield from _pipeline_refusals(q)


def _too_many(word: str, ranks: int, most: ParadlLimit) -> Refusal:
    return Refusal("p limit", f"{word}{ranks} is above the limit: {most.rule}", f"{word}{most.ranks} at most")


def _pipeline_refusals(q: ProjectionQuestion) -> Iterator[Refusal]:
    if q.batch % q.segments:
        fix = f"--batch {-(-q.batch // q.segments) * q.segments}"
        yield Refusal("batch divides", f"a batch of {q.batch} is no multiple of +m{q.segments}", fix)
    stages = len(q.stages())
    if stages < q.ranks:
        why = f"a stage ends where the mean of {q.ranks} stages is passed, and so the layers make {stages} stages only"
        yield Refusal("stages", why, f"pp{stages}:gpipe")
