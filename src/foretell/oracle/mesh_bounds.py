"""Bounds of all plans of a mesh, from parts that meshes share: which of its policies and variants can still win."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy

from foretell.oracle.local_programs import LoweredModel, PolicySet, RoughPrograms
from foretell.oracle.lower_bounds import (
    FlightBytes,
    HostFigures,
    RankSeconds,
    bytes_by_kind,
    held_bytes,
    in_flight,
    least_held,
    least_seconds,
    rank_seconds,
    resting_bytes,
)
from foretell.oracle.parts import PartitionRow, Parts, StateRow
from foretell.program.rank_program import RankProgram


class MeshBounds:
    """Bounds that plans of a space have in common, found when they are asked for."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.seconds: dict[Hashable, Any] = {}  # of all plans of meshes that run alike
        self._rank_seconds: dict[tuple[int, int], RankSeconds] = {}
        self._kind_bytes: dict[Hashable, Any] = {}
        self._bytes: dict[Hashable, Any] = {}
        self._held: dict[Hashable, FlightBytes] = {}
        self._in_flight: dict[tuple[int, int], list[float]] = {}

    def least_seconds(
        self, programs: RoughPrograms, variant: PartitionRow, launch_profile: int, at: Any, microbatches: Any
    ) -> Any:
        """Seconds of plans with these micro-batches, at least; `at`: the places of their numbers of samples."""
        key = (programs.number, variant.row)
        if key not in self._rank_seconds:
            self._rank_seconds[key] = rank_seconds(variant.counts, programs.seconds)
        columns = self.parts.table.columns
        names = ("host_launch", "host_layer", "host_growth", "host_microbatch")
        host = HostFigures(*(columns[name][launch_profile] for name in names))
        return least_seconds(variant.counts, self._rank_seconds[key], host, at, microbatches)

    def resting(self, model: LoweredModel, local: RankProgram, variant: PartitionRow, state: StateRow) -> Any:
        """Bytes of weights and states on each rank of plans with this partition."""
        key = (model.number, tuple(state.alike.items()), state.manner)
        if key not in self._kind_bytes:
            self._kind_bytes[key] = bytes_by_kind(
                model.kinds, local, state.weight_state, not self.parts.trainer.memory.new_gradients
            )
        whole = (key, variant.row)
        if whole not in self._bytes:
            self._bytes[whole] = resting_bytes(variant.counts, self._kind_bytes[key])
        return self._bytes[whole]

    def held(
        self, programs: RoughPrograms, variant: PartitionRow, chosen: PolicySet, at: Any, microbatches: Any
    ) -> Any:
        """Bytes of micro-batches on each rank, at least: a column for each number of them."""
        key = (programs.number, variant.row, chosen.held)
        if key not in self._held:
            self._held[key] = held_bytes(variant.cut, *self.parts.activations(programs, variant, chosen))
        flying = [self._flying(variant, count) for count in microbatches.tolist()]
        return least_held(numpy.array(flying).T, self._held[key], at)

    def _flying(self, variant: PartitionRow, count: int) -> list[float]:
        key = (variant.row, count)
        if key not in self._in_flight:
            self._in_flight[key] = in_flight(variant.cut, count)
        return self._in_flight[key]


def least(values: Any) -> float:
    """The least of some figures; infinite where there is none."""
    return float(numpy.min(values)) if numpy.size(values) else float("inf")
