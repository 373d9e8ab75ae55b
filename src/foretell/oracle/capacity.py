"""What a step holds of a device's memory in tensors, on devices of which nothing but their capacity is known.

Tensors are those of PyTorch's programs, rank by rank: weights, gradients, states, and activations at the fullest
moment. What a runtime, a compiler or an allocator keeps besides is not known, and not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.hardware.capacity import CapacityDevice, capacity_device, names
from foretell.hardware.cluster import Cluster, DeviceGroup
from foretell.model.totals import totals
from foretell.oracle.predicted import predicted
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve

STAND_IN: Final = "h100"
"""Whose kernels say what is kept: tensors do not depend on a device's rates."""

TENSORS: Final = ("weights", "gradients", "states", "activations", "working", "resting", "update's copies")
"""Kinds of memory that are tensors of the step."""

NOT_KNOWN: Final = (
    "what runtime, compiler and allocator keep besides is not known; compilers may fuse more, and keep less"
)


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The fullest rank of a plan, in tensors."""

    model: str
    plan: str
    device: str
    title: str
    ranks: int
    batch: int
    micro_batch: int
    parameters: int
    by_kind: dict[str, float]  # bytes, adding up to `tensor_bytes`
    tensor_bytes: float
    memory_bytes: int  # of the device, as labelled
    fits: bool
    peak_moment: str
    step_seconds: None  # refused: no trainer was measured on it
    reason: str
    sources: dict[str, str]  # of the device's figures
    notes: tuple[str, ...]


def place(text: str) -> tuple[int, CapacityDevice]:
    """How many of which device a text such as 16xtpu-v5p names."""
    form = re.fullmatch(r"(?:([1-9][0-9]{0,7})x)?(.+)", text.strip().lower())
    name = form[2] if form else ""
    if form is None or name not in names():
        if name and catalog_has(text):
            verb = "predict" if catalog.cluster(text).mixed else "fit"
            fix = f"foretell {verb} MODEL --on {text.strip()}"
            what = f"{text.strip()} has trainers that were measured: its memory is known whole"
            raise BadInput(what, where="--on", fix=fix)
        raise BadInput(f"no device for capacity questions is called {name!r}", where="--on", fix=", ".join(names()))
    return int(form[1] or 1), capacity_device(name)


def catalog_has(text: str) -> bool:
    """Whether steps on this cluster have a time."""
    try:
        return bool(catalog.cluster(text).ranks)
    except BadInput:
        return False


def capacity(request: Request, on: str) -> Capacity:
    """What the fullest rank holds in tensors."""
    ranks, device = place(on)
    asked, found = predicted(request.changed(cluster=_standing_in(ranks, device)))
    parts = {kind: size for kind, size in found.memory.by_kind.items() if kind in TENSORS and size}
    held = sum(parts.values())
    return Capacity(
        model=found.model,
        plan=found.plan,
        device=device.name,
        title=device.title,
        ranks=ranks,
        batch=found.batch,
        micro_batch=found.micro_batch,
        parameters=totals(asked.setting.graph).parameters,
        by_kind=parts,
        tensor_bytes=held,
        memory_bytes=device.memory_bytes,
        fits=held <= device.memory_bytes,
        peak_moment=found.memory.peak_moment,
        step_seconds=None,
        reason=f"no trainer was measured on {device.name}",
        sources=device.sources,
        notes=(*_notes(request, asked.setting.plan.ranks, ranks), NOT_KNOWN),
    )


def _notes(request: Request, busy: int, ranks: int) -> Iterator[str]:
    """What is to be said of the model and the batch; nodes and kernels of the stand-in are nobody's."""
    yield from resolve(request.changed(cluster=None)).notes
    if busy < ranks:
        yield f"the plan uses {busy} of the {ranks} devices"


def _standing_in(ranks: int, device: CapacityDevice) -> Cluster:
    """As many ranks with room without end, each by itself: what lies between them has no bearing on tensors."""
    cluster = catalog.cluster(f"{ranks}x1x{STAND_IN}" if ranks > 1 else STAND_IN)
    room = msgspec.structs.replace(cluster.device, memory_bytes=1 << 50)
    return msgspec.structs.replace(cluster, groups=(DeviceGroup(room, ranks),), text=f"{ranks}x{device.name}")
