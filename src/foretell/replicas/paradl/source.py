"""Layer files by name or path, timed as the tool times them."""

from __future__ import annotations

from pathlib import Path

from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo._layer_file import LayerFile, read
from foretell.model.zoo.paradl import NETWORKS, Paradl
from foretell.replicas.paradl.release import Release

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


def timed(file: LayerFile, release: Release) -> LayerFile:
    """The file with the seconds that this version of the tool gives its layers."""
    if not file.seconds:
        return file.timed(sum(layer.flops for layer in file.layers) / release.platform.speed)
    return file.timed(file.seconds) if release.seconds_shared_by_flops and not release.clean else file
