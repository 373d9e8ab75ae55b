"""Stacks that a person keeps, by name: `--stack my-cluster`. Each is a record in the folder `stacks` of the records."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from foretell.errors import BadInput, unknown
from foretell.files import shown
from foretell.hardware.cluster import Cluster
from foretell.oracle.calibrations import CalibratedPlace, CalibratedPrediction, with_calibration
from foretell.oracle.request import MeasurementFiles
from foretell.oracle.stacks import Stack, calibrations_of, clusters_of, on_stack, read_again, told_of
from foretell.plan.setting import Setting
from foretell.plan.trainer import Trainer
from foretell.records import store
from foretell.records.home import home
from foretell.records.record import record
from foretell.version import __version__

FOLDER: Final = "stacks"
KIND: Final = "stack"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def path_of(name: str) -> Path:
    """Where a stack of this name is kept."""
    if not NAME.fullmatch(name):
        what = f"{name!r} is no name of a stack"
        raise BadInput(what, where="--stack", fix="letters, digits, - and _, as in my-cluster")
    return home() / FOLDER / f"{name}{store.SUFFIX}"


def names() -> tuple[str, ...]:
    """All that are kept here."""
    return tuple(path.stem for path in store.files(home() / FOLDER))


def keep(stack: Stack) -> Path:
    """Write a stack; one of the same name is replaced."""
    path = path_of(stack.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    store.save(path, record(KIND, msgspec.to_builtins(stack)))
    return path


def forget(name: str) -> Path:
    """Remove a stack that is kept."""
    path = _there(name)
    path.unlink()
    return path


def kept_stack(name: str, calibration: str = "") -> Stack:
    """A stack by its name, as predictions with a calibration read it."""
    return _known(name, calibration).stack


def as_kept(name: str) -> Stack:
    """A stack by its name, as it lies there."""
    path = _there(name)
    return _read(path, path.stat().st_mtime_ns)


class _Known(NamedTuple):
    """A stack that is kept, and what tells it from others of its name."""

    stack: Stack
    key: tuple[Path, int, str, str]


def _known(name: str, calibration: str) -> _Known:
    path = _there(name)
    changed = path.stat().st_mtime_ns
    key = (path, changed, calibration, calibrations_of(_clusters(path, changed), calibration))
    return _Known(_current(*key), key)


def each() -> Iterator[Stack]:
    """Every stack that can be read."""
    for name in names():
        yield kept_stack(name)


def _there(name: str) -> Path:
    path = path_of(name)
    if not path.is_file():
        known = names()
        problem = unknown("kept stack", name, known) if known else BadInput(f"no stack {name} is kept here")
        fix = problem.fix or f"foretell stack {name} llama3-8b --on 64xh100 --anchor train.log"
        raise BadInput(problem.what, where="--stack", fix=fix)
    return path


@functools.lru_cache(maxsize=16)
def _read(path: Path, changed: int) -> Stack:
    found = store.examined(path)
    content: dict[str, Any] = found.record.content
    if found.record.kind != KIND:
        raise BadInput(f"a record of a {found.record.kind}, not of a stack", where=shown(path), fix="foretell stack")
    try:
        stack = msgspec.convert(content, Stack)
    except msgspec.ValidationError as problem:
        raise BadInput(f"not a stack: {problem}", where=shown(path), fix="keep it anew: foretell stack") from None
    return msgspec.structs.replace(stack, notes=tuple(dict.fromkeys((*stack.notes, *found.doubts))))


@functools.lru_cache(maxsize=16)
def _clusters(path: Path, changed: int) -> tuple[str, ...]:
    return clusters_of(_read(path, changed))


@functools.lru_cache(maxsize=16)
def _current(path: Path, changed: int, calibration: str, calibrations: str) -> Stack:
    """Its steps say what they were measured to be over predicted: another version, or calibration, predicts others."""
    stack = _read(path, changed)
    same = (stack.foretell, stack.calibrations) == (__version__, calibrations)
    return stack if same else read_again(stack, calibration)


def place_on(found: CalibratedPlace, measured: MeasurementFiles, model: str, ranks: int) -> CalibratedPlace:
    """Where plans run, as a kept stack has it; the same where none is named."""
    if not measured.stack:
        return found
    stack, key = _known(measured.stack, measured.calibration)
    cluster, trainer = _on(key, found.cluster, found.trainer, model, ranks)
    return CalibratedPlace(cluster, trainer, (*found.notes, *stack.notes, *stack.doubts, *_told(cluster, stack)))


@functools.lru_cache(maxsize=64)
def _on(
    key: tuple[Path, int, str, str], cluster: Cluster, trainer: Trainer, model: str, ranks: int
) -> tuple[Cluster, Trainer]:
    """Made once for many predictions: what is remembered of a cluster is found again where it is the same object."""
    return on_stack(_current(*key), cluster, trainer, model, ranks)


def measured_on(setting: Setting, cluster: Cluster, measured: MeasurementFiles, model: str) -> CalibratedPrediction:
    """A setting and a cluster as a calibration has them, and then a stack, where there are such."""
    known = with_calibration(setting, cluster, measured.calibration)
    if not measured.stack:
        return known
    before = CalibratedPlace(known.cluster, known.setting.trainer, known.notes)
    found = place_on(before, measured, model, setting.plan.ranks)
    setting = msgspec.structs.replace(known.setting, trainer=found.trainer)
    return CalibratedPrediction(setting, found.cluster, found.notes)


def _told(cluster: Cluster, stack: Stack) -> Iterator[str]:
    if cluster.stack is not None:
        yield told_of(cluster.stack)
    elif stack.sweeps:
        yield f"stack {stack.name}, timed collectives: {len(stack.sweeps)}"
