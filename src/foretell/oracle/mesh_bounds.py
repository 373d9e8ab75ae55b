"""Bounds of all plans of a mesh, from parts that meshes share: which of its policies and variants can still win."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy

from foretell.oracle.lower_bounds import (
    HostFigures,
    RankSeconds,
    bytes_by_kind,
    least_bytes,
    least_seconds,
    rank_seconds,
)
from foretell.oracle.parts import LoweredModel, PartitionRow, Parts, Programs, StateRow
from foretell.program.rank_program import RankProgram


class MeshBounds:
    """Bounds that plans of a space have in common, found when they are asked for."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._rank_seconds: dict[tuple[int, int], RankSeconds] = {}
        self._kind_bytes: dict[Hashable, Any] = {}
        self._bytes: dict[Hashable, float] = {}

    def seconds(
        self, programs: Programs, variant: PartitionRow, launch_profile: int, at: Any, microbatches: Any
    ) -> Any:
        """Seconds of plans with these micro-batches, at least; `at`: the places of their numbers of samples."""
        key = (programs.row, variant.row)
        if key not in self._rank_seconds:
            self._rank_seconds[key] = rank_seconds(variant.counts, programs.seconds)
        columns = self.parts.table.columns
        names = ("host_launch", "host_layer", "host_growth", "host_microbatch")
        host = HostFigures(*(columns[name][launch_profile] for name in names))
        return least_seconds(variant.counts, self._rank_seconds[key], host, at, microbatches)

    def bytes(self, model: LoweredModel, local: RankProgram, variant: PartitionRow, state: StateRow) -> float:
        """Bytes of plans with this partition, at least."""
        key = (model.number, tuple(state.alike.items()), state.manner)
        if key not in self._kind_bytes:
            self._kind_bytes[key] = bytes_by_kind(model.kinds, local, state.weight_state)
        whole = (key, variant.row)
        if whole not in self._bytes:
            self._bytes[whole] = least_bytes(variant.counts, self._kind_bytes[key])
        return self._bytes[whole]


def least(values: Any) -> float:
    """The least of some figures; infinite where there is none."""
    return float(numpy.min(values)) if numpy.size(values) else float("inf")
