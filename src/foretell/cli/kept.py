"""Predictions that a team keeps: the question, the answer, and whether the answer is still the same."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec

from foretell.errors import BadInput, ForetellError
from foretell.files import read_bytes
from foretell.model.source import kept, packed
from foretell.oracle.calibrations import NONE, file_of
from foretell.records import store
from foretell.records.record import Record, record

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster
    from foretell.oracle.predict import Prediction
    from foretell.oracle.resolve import Resolved


WORDS = ("model", "batch", "batch_per_rank", "seq", "trainer", "optimizer")
"""What a question is kept with, beside its plan, its cluster and the files that were measured."""

MEASURED = "measured"
"""Where a question has the hash of the calibration that it was answered with, or that there was none."""


class _KeptQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a kept question may hold; a file may hold anything."""

    cluster: str
    plan: str
    model: str = ""
    batch: int = 0
    batch_per_rank: int = 0
    seq: int = 0
    trainer: str = ""
    optimizer: str = ""
    calibration: str = ""
    profile: str = ""
    anchors: tuple[str, ...] = ()
    stack: str = ""
    measured: str = NONE


class _KeptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    step_seconds: Annotated[float, msgspec.Meta(gt=0)]
    memory_bytes: Annotated[float, msgspec.Meta(gt=0)]
    fits: bool


class _KeptContent(msgspec.Struct, frozen=True, kw_only=True):
    question: _KeptQuestion
    answer: _KeptAnswer


class KeptCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A kept prediction against that of now."""

    file: str
    hash: str  # of the question and the kept figures
    plan: str
    kept_seconds: float
    step_seconds: float  # 0: it is refused now
    kept_memory: float
    memory_bytes: float
    fits: bool
    regressed: tuple[str, ...]  # what became worse: step, memory, fits, refused
    why: str = ""

    @property
    def slower(self) -> float:
        return self.step_seconds / self.kept_seconds - 1 if self.kept_seconds else 0.0

    @property
    def larger(self) -> float:
        return self.memory_bytes / self.kept_memory - 1 if self.kept_memory else 0.0


def keep_answer(file: str, told: Resolved, found: Prediction) -> None:
    """Write what was asked and what the answer was. Files that were measured are named, not copied.

    A calibration may be used that nobody named, because it is kept on this machine: it is told by its hash.
    """
    request, graph = told.request, told.setting.graph
    asked: dict[str, Any] = {name: getattr(request, name) for name in WORDS}
    asked["graph"] = packed(request.model, graph)
    asked |= {"plan": str(request.plan), "cluster": request.place.text, **msgspec.to_builtins(request.measured)}
    question = {name: value for name, value in asked.items() if value}
    question[MEASURED] = _calibration(told.place, request.measured.calibration)
    answer = {"step_seconds": found.step_seconds, "memory_bytes": found.memory_bytes, "fits": found.fits}
    content = {"question": question, "answer": answer, "hash": digest(question, answer)}
    about = {"model": found.model, "fingerprint": graph.fingerprint, "plan": found.plan, "cluster": found.cluster}
    try:
        store.save(Path(file), record("prediction", content, **about))
    except OSError as problem:
        raise BadInput(f"{file} cannot be written: {problem.strerror}", where="--keep", fix="another file") from None


def checked(file: str, tolerance: float) -> KeptCheck:
    """Ask again what a file has, and compare."""
    from foretell.oracle.predicted import predicted
    from foretell.oracle.request import read

    question, answer, hashed, plan = _read(Path(file))
    seconds, memory = float(answer["step_seconds"]), float(answer["memory_bytes"])
    words = {name: question[name] for name in (*WORDS, "plan", "calibration", "profile", "stack") if name in question}
    words |= {"on": question["cluster"], "anchor": question.get("anchors", ())}
    if question.get(MEASURED) == NONE:
        words["calibration"] = NONE  # what is kept here was not there
    try:
        graph = kept(str(question.get("model", "")), str(question.get("graph", "")), file)
        asked, found = predicted(read(**words).changed(graph=graph))
        _same(question, _calibration(asked.place, asked.request.measured.calibration))
    except ForetellError as problem:
        return KeptCheck(file=file, hash=hashed, plan=plan, kept_seconds=seconds, step_seconds=0.0, kept_memory=memory,
                     memory_bytes=0.0, fits=False, regressed=("refused",), why=str(problem))  # fmt: skip
    worse = [
        ("step", found.step_seconds > seconds * (1 + tolerance)),
        ("memory", found.memory_bytes > memory * (1 + tolerance)),
        ("fits", bool(answer["fits"]) and not found.fits),
    ]
    return KeptCheck(
        file=file,
        hash=hashed,
        plan=found.plan,
        kept_seconds=seconds,
        step_seconds=found.step_seconds,
        kept_memory=memory,
        memory_bytes=found.memory_bytes,
        fits=found.fits,
        regressed=tuple(name for name, regressed in worse if regressed),
    )


def _calibration(cluster: Cluster, named: str) -> str:
    """The hash of the calibration that answers use, or that there is none."""
    path = file_of(cluster, named)
    return hashlib.sha256(read_bytes(path, "calibration")).hexdigest()[:16] if path is not None else NONE


def _same(question: dict[str, Any], now: str) -> None:
    then = question.get(MEASURED, now)  # records of before have none
    if then != now:
        here = "none is kept here" if now == NONE else f"here it is {now}"
        raise BadInput(
            f"it was answered with the calibration {then}, and {here}",
            where="--calibration",
            fix="keep it anew with --calibration none, or with a file beside it",
        )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any], str, str]:
    found: Record = store.read(path)
    question, answer = found.content.get("question"), found.content.get("answer")
    if found.kind != "prediction" or not isinstance(question, dict) or not isinstance(answer, dict):
        what = f"a record of a {found.kind}, not of a kept prediction"
        raise BadInput(what, where=str(path), fix="one that `foretell predict --keep FILE` wrote")
    asked, told = cast("dict[str, Any]", question), cast("dict[str, Any]", answer)
    try:
        msgspec.convert(found.content, _KeptContent)
    except msgspec.ValidationError as problem:
        raise BadInput(f"not a kept prediction: {problem}", where=str(path), fix="keep it anew") from None
    kept = str(found.content.get("hash", ""))
    if kept != digest(asked, told):
        what = "the record was changed after it was kept: its hash is another"
        raise BadInput(what, where=str(path), fix="keep it anew: foretell predict ... --keep FILE")
    return asked, told, kept, found.plan


def digest(question: dict[str, Any], answer: dict[str, Any]) -> str:
    """What tells whether a question or its answer was changed."""
    content = msgspec.json.encode([msgspec.to_builtins(question), answer], order="deterministic")
    return hashlib.sha256(content).hexdigest()[:16]
