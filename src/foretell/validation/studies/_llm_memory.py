"""Which memory number a published run of a language model printed."""

from __future__ import annotations

import re
from typing import Final

from foretell.validation.studies._llm_stages import said_schedule
from foretell.validation.study import GIB, Line, MeasuredPeak, Number, Rank, Unmapped, real

PRINTED: Final[dict[str, tuple[Number, Rank]]] = {
    "simumax-b200": ("allocated", "worst"),
    "zero-bubble": ("reserved", "worst"),
    "bigscience": ("device", "worst"),
    "torchtitan": ("reserved", "worst"),
    "torchtitan-mxfp8": ("reserved", "worst"),
    "torchao": ("reserved", "worst"),  # torchtitan's log
    "torchtune": ("allocated", "worst"),  # peak_memory_active of its log
    "nanotron": ("reserved", "first stage"),
    "colossalai": ("device", "worst"),
}
"""What a source printed without a word of its own, and of which rank."""

KINDS: Final[tuple[tuple[str, Number], ...]] = (
    (r"reserved", "reserved"),
    (r"allocated|active|torch peak", "allocated"),
    (r"device|smi|^peak\b|^$", "device"),
)
"""`mem_kind` to number, the first that is found; a blank is what the device reports."""


def memory(line: Line) -> list[MeasuredPeak]:
    """The printed peak of the worst rank, or of the rank that the source printed."""
    size, source, kind = real(line, "mem_gib_per_gpu"), line.get("source", ""), line.get("mem_kind", "").lower()
    if not size or said_schedule(line).startswith("zb-2p"):  # what is predicted in its place keeps half as much
        return []
    if source in PRINTED:
        return [MeasuredPeak(size * GIB, *PRINTED[source])]
    return [MeasuredPeak(size * GIB, number_of(kind), "worst")]


def number_of(kind: str) -> Number:
    """Which number a column `mem_kind` means, in small letters."""
    known: list[Number] = [number for pattern, number in KINDS if re.search(pattern, kind)]
    if not known:
        raise Unmapped(f"mem_kind {kind} is not known: allocated, reserved or device")
    return known[0]
