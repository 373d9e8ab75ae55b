"""A measured step as JSON: an observation with what was run, or the record of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, cast

import msgspec

from foretell.errors import BadInput, unknown
from foretell.files import shown
from foretell.hardware import catalog
from foretell.oracle.anchors import Anchor
from foretell.records.doubts import doubts
from foretell.timeline.observation import PHASES

SUMMARY = 'JSON such as {"model": "gpt2", "plan": "dp8", "cluster": "8xh100", "batch": 64, "step_seconds": 0.31}'

REHEARSED: Final = "a rehearsal: kernels, host and overlap were measured, messages took as long as they are priced"
UNCHECKED: Final = "a script does not say its {}: taken to be what is asked about, and not checked"

NUMBERS: Final = ("batch", "seq")
LONGEST: Final = 1e9
"""Seconds of a step, some thirty years: what is longer was not measured."""
ASKED: Final = ("model", "graph", "fingerprint", "plan", "cluster", "batch", "seq", "trainer", "optimizer")


def read(text: str, path: Path) -> Anchor | None:
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(content, dict) or "traceEvents" in content:
        return None
    written = cast("dict[str, Any]", content)
    found = _flat(written, path)
    seconds = found.get("step_seconds")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= LONGEST:
        what = "no step_seconds" if seconds is None else f"step_seconds is {seconds!r}"
        raise BadInput(what, where=str(path), fix=SUMMARY)
    asked = {key: _asked(key, found[key], path) for key in ASKED if found.get(key) not in (None, "")}
    parts: Any = found.get("breakdown") or {}
    memory = found.get("memory_bytes") or 0.0
    if isinstance(memory, int | float) and memory < 0:
        raise BadInput(f"memory_bytes is {memory}", where=str(path), fix=SUMMARY)
    if isinstance(parts, dict):
        _checked(cast("dict[str, Any]", parts), seconds, path)
    try:
        return msgspec.convert(
            {"form": "measurement", "asked": asked, "step_seconds": seconds, "parts": parts, "memory_bytes": memory}
            | {"notes": [f"{shown(path)}: {doubt}" for doubt in (*doubts(path, written), *found.get("notes", ()))]},
            Anchor,
        )
    except msgspec.ValidationError as problem:
        raise BadInput(f"not a measurement: {problem}", where=str(path), fix=SUMMARY) from None


def _asked(key: str, value: Any, path: Path) -> str | int:
    """What was run, with numbers where numbers are and words where words are."""
    kind = int if key in NUMBERS else str
    if not isinstance(value, kind) or isinstance(value, bool):
        what = "a whole number" if kind is int else "a text"
        raise BadInput(f"{key} is {value!r}, not {what}", where=str(path), fix=SUMMARY)
    if isinstance(value, int) and value < 1:
        raise BadInput(f"{key} is {value}, not 1 or more", where=str(path), fix=SUMMARY)
    return value


def _checked(parts: dict[str, Any], seconds: float, path: Path) -> None:
    """Refuse seconds by phase that no step has."""
    for name, part in parts.items():
        if name not in PHASES and not name.startswith("exposed."):
            raise unknown("part of a step", name, PHASES).within(str(path))
        if not isinstance(part, int | float) or not 0 <= part <= seconds:
            what = f"breakdown {name} is {part!r} of a step of {seconds} s"
            raise BadInput(what, where=str(path), fix="seconds of each phase, which add up to step_seconds")


def _flat(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """A record keeps what was run beside what came out."""
    inner = content.get("content")
    if "kind" not in content or not isinstance(inner, dict):
        return content
    about = {key: content[key] for key in ("model", "fingerprint", "plan", "cluster") if content.get(key)}
    _whole_rehearsal(cast("dict[str, Any]", inner), path)
    return {**about, **_of_run(cast("dict[str, Any]", inner))}


def _whole_rehearsal(content: dict[str, Any], path: Path) -> None:
    """Refuse the rehearsal of a rank on another device than the cluster has that it is of, or without its messages."""
    run = content.get("assignment")
    found: Any = (cast("dict[str, Any]", run) if isinstance(run, dict) else content).get("rehearsal")
    if not isinstance(found, dict):
        return
    asked, machine = cast("dict[str, Any]", found), content.get("machine")
    text = str(asked.get("cluster"))
    own = cast("dict[str, Any]", machine).get("device") if isinstance(machine, dict) else "no known device"
    if catalog.cluster(text).device.name != own:
        what = f"a rehearsal on {own} says nothing of the kernels of {text}"
        raise BadInput(what, where=str(path), fix=f"a rehearsal on a device that {text} has")
    if asked.get("priced") is not True:
        what = f"messages of this rehearsal are not known to have taken any time: its step is none of {text}"
        raise BadInput(what, where=str(path), fix="the same rehearsal again, without --messages none")


def _of_run(content: dict[str, Any]) -> dict[str, Any]:
    """What `foretell run` keeps: the assignment and what was measured, but for the memory: tensors alone are counted
    there, and a device reports more."""
    asked, found = content.get("assignment"), content.get("measurement")
    if not isinstance(asked, dict) or not isinstance(found, dict):
        unsaid = "model and batch" if content.get("recognised") else "model, batch and plan"
        return {**content, "notes": [REHEARSED, UNCHECKED.format(unsaid)]} if content.get("rehearsal") else content
    given = cast("dict[str, Any]", asked)
    if given.get("forward"):
        what = "a forward pass alone was measured: it says nothing of a training step"
        raise BadInput(what, where="--anchor", fix="a run without --forward")
    about = {key: given.get(key) for key in ("graph", "seq", "trainer", "optimizer") if given.get(key)}
    measured = cast("dict[str, Any]", found)
    about |= {"notes": [REHEARSED]} if given.get("rehearsal") else {}
    return {**about, **{key: measured.get(key) for key in ("batch", "step_seconds", "breakdown")}}
