"""Columns of the engine's tables: figures of layers, stages, weights and orders of slots, and rows of plans.

Each table holds the rows of one thing that a plan's time or memory depends on. Plans that have it in common share the
row, and a plan is a row of places. Kernels read all of them from two long rows of numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

RealColumn: TypeAlias = int
"""Where a column of real numbers begins among all of them."""

WholeColumn: TypeAlias = int


class Tables(NamedTuple):
    """Two rows of numbers, and where in them each column begins.

    A column whose name ends in `_at` has for each row where its part of the columns after it begins.
    """

    f: Any  # real numbers
    i: Any  # whole numbers, and yes and no
    levels: int  # of the cluster
    # rank programs: kinds of layers, and of each four kinds of slots
    program_at: WholeColumn
    device: RealColumn
    launches: RealColumn
    waits: RealColumn  # by level
    rows: RealColumn  # of experts, as they travel beside a pair of passes
    recomputes: WholeColumn
    # partitions of a model into stages: stage signatures, and of each runs of equal layers
    partition_at: WholeColumn
    run_at: WholeColumn
    run_kind: WholeColumn
    run_times: WholeColumn
    layers: WholeColumn
    receives_forward: WholeColumn
    receives_back: WholeColumn
    stage_at: WholeColumn
    stage_signature: WholeColumn
    # seconds of sending what crosses between stages, by signature
    send_forward: RealColumn
    send_back: RealColumn
    # seconds after a rank requested what crosses, if it has to, by the signature that receives
    request_forward: RealColumn
    request_back: RealColumn
    # activations of a micro-batch, by signature
    kept: RealColumn
    forward_peak: RealColumn
    backward_peak: RealColumn
    making_peak: RealColumn
    # weight traffic, by signature
    traffic_at: WholeColumn
    traffic_inline: WholeColumn
    level_busy: WholeColumn  # by level
    has_traffic: WholeColumn
    enter_forward: RealColumn
    enter_back: RealColumn
    leave_back: RealColumn
    enter_copy: RealColumn
    leave_copy: RealColumn
    slot_update: RealColumn
    buckets_all: RealColumn
    once_all: RealColumn
    tied: RealColumn
    finish: RealColumn
    persistent: RealColumn  # weights, gradients and states
    weights: RealColumn
    gradients: RealColumn
    states: RealColumn
    trained: RealColumn  # parameters
    traffic_run_at: WholeColumn
    gather_forward: RealColumn
    gather_back: RealColumn
    reduce: RealColumn
    copy_forward: RealColumn
    copy_back: RealColumn
    unit_launches: RealColumn
    traffic_segment_at: WholeColumn
    buckets: RealColumn
    once: RealColumn
    # orders of slots
    order_ranks: WholeColumn
    order_at: WholeColumn
    order_places: WholeColumn
    order_shared: WholeColumn
    slot_rank: WholeColumn
    slot_kind: WholeColumn
    slot_stage: WholeColumn
    slot_takes: WholeColumn
    slot_puts: WholeColumn
    slot_last: WholeColumn
    slot_tail: WholeColumn
    slot_pair: WholeColumn  # the first or the second of a forward and a backward that run together
    tail_at: WholeColumn
    tail_slot: WholeColumn
    rank_at: WholeColumn
    held_at: WholeColumn
    held: WholeColumn
    moment_at: WholeColumn
    moment_stage: WholeColumn
    moment_forward: WholeColumn
    in_flight_at: WholeColumn
    in_flight: RealColumn
    # launch profiles, by trainer and execution
    host_launch: RealColumn
    host_layer: RealColumn
    host_recompute: RealColumn
    host_growth: RealColumn
    host_microbatch: RealColumn
    host_floor: RealColumn
    device_layer: RealColumn
    sharpness: RealColumn
    prefetch: WholeColumn
    beside: RealColumn  # share of a device that messages hold beside a pair of passes; 0: they are waited for


class Plans(NamedTuple):
    """The same, one row a plan: places in the tables, and figures of its own."""

    f: Any
    i: Any
    program: WholeColumn
    partition: WholeColumn
    sends: WholeColumn
    peaks: WholeColumn
    traffic: WholeColumn
    launch_profile: WholeColumn
    order: WholeColumn
    moments: WholeColumn  # in which ranks may hold most: the first rank's
    shorter_order: WholeColumn  # the order that is a round shorter; -1: nothing is left out
    rounds: WholeColumn  # that are left out
    splits: WholeColumn  # whether backward passes are in two parts
    overlap: RealColumn  # how fast messages for weights go while a rank computes
    made: RealColumn  # whether a step of one micro-batch makes its gradients in the backward pass
    # bytes for each parameter
    copies: RealColumn  # all the time
    fresh: RealColumn  # in a backward pass
    cached: RealColumn  # while working
    gathered: RealColumn  # after the update
    # other bytes
    workspace: RealColumn
    streams: RealColumn
    limit: RealColumn  # in tensors
    reserved: RealColumn  # a factor
    context: RealColumn


REAL = frozenset(
    name for table in (Tables, Plans) for name, kind in table.__annotations__.items() if "RealColumn" in str(kind)
)
"""Columns of real numbers."""

COLUMNS = tuple(name for name in Tables._fields if name not in ("f", "i", "levels"))
PLAN_COLUMNS = tuple(name for name in Plans._fields if name not in ("f", "i"))


def joined(columns: Mapping[str, Any]) -> tuple[dict[str, int], array[float], array[int]]:
    """Columns, lists or arrays, one after the other, and where each begins."""
    places: dict[str, int] = {}
    real, whole = array("d"), array("q")
    for name, values in columns.items():
        to: array[Any] = real if name in REAL else whole
        places[name] = len(to)
        if hasattr(values, "astype"):
            to.frombytes(values.astype(float if to is real else int).tobytes())
        else:
            to.extend(values)
    return places, real, whole


def plan_rows(columns: Mapping[str, Any], compiled: bool) -> Plans:
    """The rows of plans, for Python or for a compiler."""
    places, real, whole = joined(columns)
    if compiled:
        return Plans(f=readable(real), i=readable(whole), **places)
    return Plans(f=real.tolist(), i=whole.tolist(), **places)


def plan_arrays(columns: Mapping[str, Any], order: Any) -> Plans:
    """The rows of plans for a compiler, of columns that are arrays, in this order."""
    import numpy

    size = len(order)
    names = {wanted: [name for name in columns if (name in REAL) is wanted] for wanted in (True, False)}
    found = {kind: numpy.empty((len(names[kind]), size), float if kind else numpy.int64) for kind in names}
    for kind, table in found.items():
        for name, row in zip(names[kind], table, strict=True):
            numpy.take(columns[name], order, out=row, mode="clip")  # the only mode that writes there at once
    places = {name: at * size for own in names.values() for at, name in enumerate(own)}
    return Plans(f=found[True].ravel(), i=found[False].ravel(), **places)


def readable(values: array[Any]) -> Any:
    import numpy

    return numpy.frombuffer(values, dtype=numpy.float64 if values.typecode == "d" else numpy.int64)
