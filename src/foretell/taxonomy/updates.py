"""What travels for one update of a model, technique by technique: gradients, fewer bits of them, models, curvature.

A worker's side, once: what it sends for one exchange. How often that is, and what comes back, is the algorithm's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from foretell.learning.compressor import WIDTH, Compressor, dense
from foretell.learning.members import COMPRESSORS, member
from foretell.learning.vector import Shapes
from foretell.model.source import load
from foretell.virtual.pace import weight_shapes

TAKEN: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "threshold": ({"share": 0.01}, ", that 1 % pass"),
    "factors": ({"samples": 32}, ", of 32 samples"),
}
"""Options, where the bytes would otherwise depend on gradients or on the batch, and how they are told."""


class UpdateTechnique(msgspec.Struct, frozen=True, kw_only=True):
    """One technique, with its order in the taxonomy of Ben-Nun and Hoefler 2019."""

    name: str
    order: str
    bytes: float
    what: str
    source: str


def travels(model: str) -> list[UpdateTechnique]:
    """The plain gradient first; then compressed ones by their bytes, models, and second order."""
    shapes = weight_shapes(load(model, 1))
    return [*_first(shapes), *_models(shapes), *_second(shapes)]


def _first(shapes: Shapes) -> Iterator[UpdateTechnique]:
    plain = "Ben-Nun and Hoefler 2019, section 7, arXiv 1802.09941"
    yield UpdateTechnique(
        name="gradient", order="first", bytes=dense(shapes), what="every element in 32 bits", source=plain
    )
    found: list[UpdateTechnique] = []
    for name in COMPRESSORS:
        if name == "none":
            continue
        options, beside = TAKEN.get(name, ({}, ""))
        one = member(COMPRESSORS, Compressor, name)(**options)
        size = one.size(np.zeros(1), shapes)
        found.append(UpdateTechnique(name=name, order="first", bytes=size, what=one.summary + beside, source=one.paper))
    yield from sorted(found, key=lambda update: -update.bytes)


def _models(shapes: Shapes) -> Iterator[UpdateTechnique]:
    for name, what, source in (
        ("averaging", "the model, every tau steps", "Stich 2019, arXiv 1805.09767"),
        ("easgd", "how far it is from the centre, every tau steps", "Zhang et al. 2015, arXiv 1412.6651"),
        ("admm", "the model and its price as one sum, every tau steps", "Boyd et al. 2011, section 7"),
    ):
        yield UpdateTechnique(name=name, order="first", bytes=dense(shapes), what=what, source=source)


def _second(shapes: Shapes) -> Iterator[UpdateTechnique]:
    """K-FAC: a layer's curvature as two symmetric matrices, of its inputs and of its outputs, half of each."""
    matrices = [(shape[0], math.prod(shape[1:])) for shape in shapes if len(shape) > 1]
    factors = WIDTH * sum(_triangle(rows) + _triangle(columns) for rows, columns in matrices)
    what = "the gradient, and two factors of the curvature of each layer"
    source = "Martens and Grosse 2015, arXiv 1503.05671; Osawa et al. 2019, arXiv 1811.12019"
    yield UpdateTechnique(name="k-fac", order="second", bytes=dense(shapes) + factors, what=what, source=source)


def _triangle(size: int) -> int:
    return size * (size + 1) // 2
