"""Measurements that a person has, as evidence: one file a form. `read` tells which form a file has."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol, cast

import msgspec

from foretell.cost.samples import CollectiveSample
from foretell.errors import BadInput
from foretell.files import read_bytes
from foretell.registry import OpenSet

FORMS: Final = OpenSet(__name__, "form of a measurement")

COMPUTE, EXPOSED, IDLE = "compute", "exposed", "idle"
"""Groups of a breakdown's parts, for measurements that see no finer: kernels, messages not hidden, neither."""


WHOLE: Final = r"[0-9]{1,15}(?![0-9])"
DECIMAL: Final = r"[0-9]{1,15}(?:\.[0-9]{0,15})?(?![0-9.])"
"""Numbers in a text, as patterns: what has more digits is a slip or an attack, and no number."""


class Swept(msgspec.Struct, frozen=True):
    """A collective that was timed over some ranks of some nodes."""

    about: CollectiveSample
    nodes: int
    seconds: float


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement says."""

    form: str
    asked: dict[str, str | int] = {}  # what was run, where it says: model plan cluster batch seq trainer optimizer
    step_seconds: float = 0.0  # 0: no step was timed
    parts: dict[str, float] = {}  # seconds by part of a breakdown, or by group of parts
    memory_bytes: float = 0.0  # 0: not measured
    sweeps: tuple[Swept, ...] = ()


class AnchorFile(Protocol):
    """A file in this folder."""

    SUMMARY: str

    def read(self, text: str, path: Path) -> Anchor | None:
        """The measurement, None where the text has another form."""
        ...


def read(path: Path) -> Anchor:
    """The measurement in a file, whatever its form."""
    text = read_bytes(path, "measurement", fix="--anchor FILE").decode("utf-8", "replace")  # logs hold anything
    for name in FORMS:
        found = cast("AnchorFile", FORMS[name]).read(text, path)
        if found is not None:
            return found
    known = "; ".join(cast("AnchorFile", FORMS[name]).SUMMARY for name in FORMS)
    raise BadInput("no measurement is found in it", where=str(path), fix=known)
