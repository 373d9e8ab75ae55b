"""One question to the paper's oracle, from a layer file and a plan to an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo._layer_file import LayerFile, read
from foretell.model.zoo.paradl import NETWORKS, Paradl
from foretell.oracle.predict import predict
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.plan import Plan
from foretell.replicas.paradl import rows, table3
from foretell.replicas.paradl.choice import split_layers
from foretell.replicas.paradl.limits import refusals
from foretell.replicas.paradl.projection import Projection, ProjectionQuestion
from foretell.replicas.paradl.release import Release
from foretell.replicas.paradl.shapes import INNER, RowShape

LARGEST_BATCH = 10_000_000

LAYER_FILES = f"{', '.join(f'{network}-paradl' for network in NETWORKS)}, or a path to a .net file"


def layer_file(spec: str) -> LayerFile:
    """The layer file that this text names: one of the paper's networks, or a path."""
    if spec.endswith(".net"):
        return read(Path(spec))
    name = spec.partition(":")[0]
    if name not in zoo.names():
        raise BadInput(f"{spec!r} is no layer file, and the paper's oracle reads nothing else", fix=LAYER_FILES)
    _, fields = zoo.parse(spec)
    if not isinstance(fields, Paradl):
        what = f"{name} is a model of the zoo, but no layer file with the seconds of each layer"
        near = f"{name}-paradl; " if name in NETWORKS else ""
        raise BadInput(f"{what}; the paper's oracle reads nothing else", fix=f"{near}{LAYER_FILES}")
    if fields.dtype != "fp32":
        raise BadInput(f"the paper counts 4 bytes an element, not {fields.dtype}", where=spec, fix=name)
    return fields.file()


def on_device(file: LayerFile, request: Request, batch: int, ranks: int) -> LayerFile:
    """The file with seconds of the cluster's device. A path's own seconds are a person's profile and stay; those of the
    paper's networks are a V100's, and ours take their place: forward and backward of a rank's samples, with what was
    measured of the device or the model (--calibration, --profile), shared out by flops as the paper does."""
    if request.model.endswith(".net") and file.seconds:
        return file
    samples = max(1, batch // ranks)
    one = request.changed(plan=Plan(), batch=samples)
    asked = resolve(one)
    found = predict(asked.setting, asked.place)
    passes = sum(found.breakdown.get(part, 0.0) for part in ("forward", "backward", "host"))
    return file.timed(passes / samples)


def timed(file: LayerFile, release: Release) -> LayerFile:
    """The file with the seconds that this version of the tool gives its layers."""
    if not file.seconds:
        return file.timed(sum(layer.flops for layer in file.layers) / release.platform.speed)
    return file.timed(file.seconds) if release.seconds_shared_by_flops and not release.clean else file


def question(file: LayerFile, asked: RowShape, batch: int, release: Release) -> ProjectionQuestion:
    """What is asked, complete; a batch or a part that makes no sense is refused here."""
    if not 1 <= batch <= LARGEST_BATCH:
        raise BadInput(f"a batch of {batch} samples", fix=f"a whole number from 1 to {LARGEST_BATCH:,}")
    if asked.only and release.clean:
        raise BadInput(f"Table 3 splits all layers alike, not [{asked.only}]", fix="--release 2021, or no part")
    way = INNER.get(asked.strategy, asked.strategy)
    return ProjectionQuestion(
        file=timed(file, release),
        release=release,
        batch=batch,
        groups=asked.groups,
        ranks=asked.ranks,
        segments=asked.segments,
        split=split_layers(file, way, asked.only, release.clean),
    )


def project(strategy: str, q: ProjectionQuestion) -> Projection:
    """The row, computed as the release does."""
    return (table3.ROWS if q.release.clean else rows.ROWS)[strategy](q)


def checked(asked: RowShape, q: ProjectionQuestion) -> Projection:
    """The row, or the error for the first rule that the plan breaks."""
    for refusal in refusals(asked.strategy, q):
        raise BadInput(str(refusal), where=f"{asked.strategy}, batch {q.batch}", fix=refusal.way_out)
    return project(asked.strategy, q)


def at(ranks: int, node: int) -> Iterator[RowShape]:
    """Each row on this many ranks (serial on one), pipelines with a segment a rank, hybrids with a node a group."""
    yield RowShape("serial")
    yield RowShape("data", groups=ranks)
    for strategy in ("spatial", "pipeline", "filter", "channel"):
        yield RowShape(strategy, ranks=ranks, segments=ranks if strategy == "pipeline" else 1)
    if not left_out(ranks, node):
        for strategy in INNER:
            yield RowShape(strategy, groups=ranks // node, ranks=node)


def left_out(ranks: int, node: int) -> dict[str, str]:
    """Hybrids that there are not on this many ranks, and why."""
    if ranks % node:
        why = f"a group is a node of {node} ranks, and {ranks} ranks are not whole nodes"
    elif ranks <= node:
        why = f"a group is a node of {node} ranks, and {ranks} ranks are one group"
    else:
        return {}
    enough = max(2 * node, -(-ranks // node) * node)
    return dict.fromkeys(INNER, f"{why} (they are there on {enough})")
