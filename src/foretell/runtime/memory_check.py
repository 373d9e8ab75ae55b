"""Whether a run has room in the memory of this machine: refused with the numbers, not ended by the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.hardware import this_machine
from foretell.model.matrices import kept_bytes
from foretell.model.optimizer import optimizer
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.program.updates import Bytes
from foretell.units import show_bytes

PROCESS = 35e6
"""Bytes that a rank of LeNet has for itself, by the kernel's count; what torch takes it shares with its parent."""


def without_room(setting: Setting, ranks: int) -> Iterator[tuple[str, str]]:
    """Every rank that is started here begins with the whole model, whatever it leaves others of it."""
    each = begins_with(setting)
    free = this_machine.free_bytes()
    if ranks * each > free:
        start = "one rank begins" if ranks == 1 else f"{ranks} ranks begin"
        yield (
            f"{start} with all weights, {show_bytes(each)} each with its process, and {show_bytes(free)} are free",
            "fewer layers, fewer ranks, or --dry-run, which has shapes alone",
        )


def begins_with(setting: Setting) -> float:
    """Bytes that a rank begins with."""
    return _weights(setting) * setting.plan.policy(Precision).format.weight + PROCESS


def without_room_for_all(setting: Setting) -> Iterator[tuple[str, str]]:
    """One rank that has all there is of every weight."""
    wanted = trained_bytes(setting)
    free = this_machine.free_bytes()
    if wanted > free:
        why = f"a dry run of what reads numbers lies in memory: {show_bytes(wanted)} of weights, gradients and states"
        yield f"{why}, and {show_bytes(free)} are free", "the same without it, which is tried by shapes alone"


def trained_bytes(setting: Setting) -> float:
    """Bytes of all weights with their gradients, buckets of these, and the optimizer's states."""
    each = Bytes.of(setting.plan.policy(Precision).format, setting.trainer)
    kept = kept_bytes(setting.graph, optimizer(setting.job.optimizer), each.master, each.state)
    return _weights(setting) * (each.weight + 2 * each.gradient) + kept


def _weights(setting: Setting) -> int:
    blocks = setting.graph.blocks
    return sum(
        block.times * tensor.elements() for block in blocks for tensor in block.tensors if tensor.role == "parameter"
    )
