"""What operators compute, found once for all layouts of a model: local sizes decide it, not how they came about."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any, NamedTuple, TypeAlias

from foretell.caches import forgettable
from foretell.model.graph import Graph
from foretell.program.action import Compute
from foretell.program.sharding.conventions import Conventions
from foretell.units import Quantity

Parts: TypeAlias = dict[tuple[str, bool], tuple[Compute, ...]]
"""What the parts of an operator compute, the first time and again."""


class Computations(NamedTuple):
    """What operators compute, which layouts of a model have in common where local sizes are the same."""

    parts: dict[Hashable, Parts]
    priced: dict[Any, Any]  # for whoever prices them


def computations(like: Graph, conventions: Conventions) -> Computations:
    """Those of a model whose bodies are written by the same conventions; none but its own where more than sizes
    decides."""
    return _shared(like, conventions.of_bodies) if _by_sizes_alone(like, conventions) else Computations({}, {})


@forgettable
@functools.lru_cache(maxsize=64)
def _shared(like: Graph, held: Hashable) -> Computations:
    return Computations({}, {})


@forgettable
@functools.lru_cache(maxsize=64)
def _by_sizes_alone(like: Graph, conventions: Conventions) -> bool:
    """Whether local sizes decide what operators compute: copies in another width are as large as tensors lie."""
    return not conventions.casts and not any(tensor.form for block in like.blocks for tensor in block.tensors)


def digits(size: Quantity) -> Hashable:
    """A size as what a table is looked up by, arrays too."""
    return (type(size), size) if isinstance(size, int | float) else (size.dtype.char, size.tobytes())
