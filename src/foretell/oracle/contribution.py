"""A measured step of somebody's own as a row that `foretell validate` scores, with nothing in it of who measured it.

A row has what a prediction needs (model, plan, cluster, trainer, optimizer, batch, length), what was measured, and
versions of software. It has no names of hosts, people or files, and no time: models and clusters are said in words that
everybody has, so one from a file of one's own is refused.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from foretell.errors import BadInput
from foretell.files import read_bytes
from foretell.hardware import catalog
from foretell.model import source, zoo
from foretell.oracle import anchors
from foretell.oracle.anchors import Anchor
from foretell.oracle.anchors.measurement import REHEARSED
from foretell.oracle.calibrations import NONE
from foretell.oracle.possible import check_measured
from foretell.oracle.request import Request, read
from foretell.plan.job import make_job
from foretell.plan.text import parse
from foretell.plan.trainer import trainer

SCHEMA: Final = 1

SOFTWARE: Final = (
    *("python", "torch", "cuda", "cudnn", "nccl", "transformers", "peft", "trl", "accelerate", "deepspeed"),
    *("flash_attn", "flash-attn", "bitsandbytes", "liger_kernel", "triton", "megatron", "foretell"),
)
"""Whose versions a row may have."""

LOG: Final = "log line"
"""The form of a measurement whose memory is what the allocator reserved; others are what the device reports."""


HERE: Final = "this-machine"
"""The cluster of a run of which nobody said where it was."""

OPTIONS: Final = {"model": "--model", "plan": "--plan", "cluster": "--on", "batch": "--batch"}


class ContributedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a line of JSON."""

    contributed: int = SCHEMA
    id: str = ""  # of what is in it
    model: str
    plan: str
    cluster: str
    trainer: str
    optimizer: str
    batch: int
    seq: int  # 0: the model's own
    step_seconds: float
    memory_bytes: float = 0.0  # 0: not measured
    memory: str = ""  # reserved, or device
    versions: dict[str, str] = {}


def rows(file: Path, given: Mapping[str, Any]) -> list[ContributedRow]:
    """The rows of a file, which may be a table; `given` completes what it does not say, and may not say otherwise."""
    if file.is_dir():
        return [_row(file, anchors.read(file), given)]
    return [_row(file, one, given) for one in anchors.measurements(file)]


def _row(file: Path, found: Anchor, given: Mapping[str, Any]) -> ContributedRow:
    if not found.step_seconds:
        raise BadInput("no step was timed in it", where=str(file), fix="a record of `foretell run`, or a trainer's log")
    said: dict[str, Any] = {key: value for key, value in found.asked.items() if key not in ("graph", "fingerprint")}
    said = _completed(file, said, given)
    if any(REHEARSED in note for note in found.notes):
        raise BadInput("a rehearsal, whose messages were priced", where=str(file), fix="a run of all ranks")
    named = str(said.get("trainer", "pytorch"))
    if named.lower().endswith(".toml"):
        raise BadInput("a trainer of a file of your own", where=str(file), fix="one of `foretell list trainers`")
    software = trainer(named)
    seq = int(said.get("seq", 0))
    job = make_job(int(said["batch"]), trainer=software.name, optimizer=said.get("optimizer", ""), sequence=seq)
    plain = ContributedRow(
        model=_model(str(said["model"]), seq),
        plan=str(parse(said["plan"])),
        cluster=_cluster(str(said["cluster"])),
        trainer=software.name,
        optimizer=job.optimizer,
        batch=job.batch,
        seq=seq,
        step_seconds=found.step_seconds,
        memory_bytes=found.memory_bytes,
        memory=("reserved" if found.form == LOG else "device") if found.memory_bytes else "",
        versions=_versions(file),
    )
    check_measured(functools.partial(_question, plain), plain.step_seconds, str(file))
    digest = hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:12]
    return msgspec.structs.replace(plain, id=digest)


def _question(found: ContributedRow) -> Request:
    return read(
        model=found.model,
        on=found.cluster,
        plan=found.plan,
        batch=found.batch,
        seq=found.seq or None,
        trainer=found.trainer,
        optimizer=found.optimizer,
        calibration=NONE,
    )


def _completed(file: Path, said: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says, with what is given where it says nothing that everybody has a word for."""
    found = dict(said)
    for key, value in given.items():
        if not value:
            continue
        before, option = found.get(key, value), OPTIONS.get(key, f"--{key}")
        seq = int(given.get("seq") or found.get("seq", 0))
        if before != value and not _may_stand_for(key, before, value, seq):
            what = f"{key} is {before} in the file, and {value} is given"
            raise BadInput(what, where=str(file), fix=f"leave out {option}")
        found[key] = value
    for key in ("model", "plan", "cluster", "batch"):
        if not found.get(key):
            raise BadInput(f"the file does not say the {key}", where=str(file), fix=f"{OPTIONS[key]} as it was")
    return found


def _may_stand_for(key: str, before: Any, value: Any, seq: int) -> bool:
    """Whether what is given says the same as a file in other words, or names what the file has no common word for."""
    if key == "cluster":
        return HERE in str(before).lower()
    if key != "model":
        return False
    try:
        known = _model(str(before), seq)
    except BadInput:  # a file or code of one's own
        return True
    return known == _model(str(value), seq)


def _model(text: str, seq: int) -> str:
    """A model in the words of the zoo; a configuration of one's own becomes those."""
    words = source.in_words(text, seq or None)
    try:
        zoo.parse(words)
    except BadInput:
        what = f"{text} is no model in words that everybody has"
        raise BadInput(
            what, where="MODEL", fix="one of `foretell list models`, or a config.json of its families"
        ) from None
    return zoo.canonical(words)


def _cluster(text: str) -> str:
    if ".toml" in text.lower():
        raise BadInput("a cluster of a file of your own", where="--on", fix=catalog.NAMED)
    if HERE in text.lower():
        what = f"{HERE} is another machine wherever the row is read"
        raise BadInput(what, where="--on", fix="its devices by name, such as 1xrtx4090: `foretell list clusters`")
    return catalog.cluster(text).text


def _versions(file: Path) -> dict[str, str]:
    """Of software alone, where a record has them."""
    try:
        content: Any = msgspec.json.decode(read_bytes(file, "measurement"))
    except (msgspec.DecodeError, RecursionError):
        return {}
    found: Any = cast("dict[str, Any]", content).get("versions") if isinstance(content, dict) else None
    if not isinstance(found, dict):
        return {}
    said = cast("dict[str, Any]", found)
    return {name: str(said[name])[:40] for name in SOFTWARE if said.get(name)}
