"""Measurements that a person has, as evidence: one file a form. `read` tells which form a file has."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec

from foretell.cost.samples import CollectiveSample
from foretell.errors import BadInput
from foretell.files import read_bytes, shown
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
    asked: dict[str, str | int] = {}  # what was run, where it says: a member of `measurement.ASKED` each
    step_seconds: float = 0.0  # 0: no step was timed
    parts: dict[str, float] = {}  # seconds by part of a breakdown, or by group of parts
    memory_bytes: float = 0.0  # 0: not measured
    sweeps: tuple[Swept, ...] = ()
    notes: tuple[str, ...] = ()  # what speaks against the file
    file: str = ""  # and the line of it, where it has several


class AnchorFile(Protocol):
    """A file in this folder."""

    SUMMARY: str

    def read(self, text: str, path: Path) -> Anchor | tuple[Anchor, ...] | None:
        """The measurement, or all of a sweep; None where the text has another form."""
        ...


def read(path: Path) -> Anchor:
    """The one measurement in a file, whatever its form."""
    first, *others = _of_file(path)
    if others:
        raise BadInput(f"{len(others) + 1} measurements, where one is asked for", where=shown(path), fix="one of them")
    return first


def measurements(path: Path) -> tuple[Anchor, ...]:
    """All measurements of a file, or of the files in a folder: records of runs, logs, traces, tables."""
    if not path.is_dir():
        return _of_file(path)
    found: list[Anchor] = []
    problems: list[str] = []
    for file in sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith(".")):
        try:
            found += _of_file(file)
        except BadInput as problem:
            problems.append(f"left out: {shown(file.name)}, {problem.what}")
    if not found:
        fix = "a folder of records of runs, logs or traces"
        raise BadInput(f"none of its {len(problems)} files has a measurement", where=shown(path), fix=fix)
    first = found[0]
    return (msgspec.structs.replace(first, notes=(*first.notes, *problems)), *found[1:])


def _of_file(path: Path) -> tuple[Anchor, ...]:
    text = read_bytes(path, "measurement", fix="--anchor FILE").decode("utf-8", "replace")  # logs hold anything
    for name in FORMS:
        found = cast("AnchorFile", FORMS[name]).read(text, path)
        if found is not None:
            several = found if isinstance(found, tuple) else (msgspec.structs.replace(found, file=shown(path)),)
            return tuple(_possible(one, path) for one in several)
    known = "; ".join(cast("AnchorFile", FORMS[name]).SUMMARY for name in FORMS)
    raise BadInput("no measurement is found in it", where=str(path), fix=known)


def _possible(found: Anchor, path: Path) -> Anchor:
    """The measurement, if its seconds and bytes can be: a clock that jumped gives others."""
    figures = {"a step": found.step_seconds, "memory": found.memory_bytes, **found.parts}
    figures |= {f"{one.about.kind} of {one.about.payload:,} bytes": one.seconds for one in found.sweeps}
    for name, value in figures.items():
        if not 0 <= value < math.inf:
            raise BadInput(f"{name} of {value:g}, which cannot be", where=shown(path), fix="a measurement above 0")
    if not found.step_seconds and not found.sweeps:
        raise BadInput("a step of 0 s, which cannot be", where=shown(path), fix="a measurement above 0")
    return found
