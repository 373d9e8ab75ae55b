# pyright: basic
"""Checkpoints: a run that lost a rank goes on from the last one, as if nothing had happened.

Each rank writes its own part beside the last whole checkpoint. When all parts are on the disk and were read back, a
manifest with their checksums makes them a checkpoint: whenever a rank dies, there is a whole one. The one before it is
kept, too, for the day on which the disk has forgotten a part of the newest. What is in a part decides all that follows:
weights, buffers, the optimizer's states, the state of the random numbers, how many batches were read, and what was
measured so far.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from foretell.errors import BadInput
from foretell.files import write_whole
from foretell.learning.gradient_noise import GradientLook
from foretell.plan.refusal import Refusal
from foretell.plan.setting import Setting
from foretell.runtime import restart_log
from foretell.runtime.assignment import Assignment, Collective, HeldOutCheck
from foretell.runtime.subject import Subject

MANIFEST = "checkpoint.json"
LOCK = "held-by.json"
OTHER = "it is of another run"
LATEST = "latest.json"  # what earlier versions kept instead of manifests

KEPT = 2
"""Checkpoints that a folder has: the newest, and the one to fall back to."""


class RankProgress(msgspec.Struct, kw_only=True):
    """What a rank has seen so far."""

    losses: list[float | None] = []
    collectives: list[Collective] = []
    checks: list[HeldOutCheck] = []
    looks: list[GradientLook] = []
    before: float = 0.0  # seconds of the steps that are dropped
    phases: dict[str, list[float]] = {}
    busy: dict[str, list[float]] = {}
    steps: list[float] = []
    peak: int = 0
    resting: int = 0
    reserved: int = 0


class Manifest(msgspec.Struct, frozen=True):
    """What makes parts a checkpoint: the run that it is of, and the checksum (SHA-256) of each rank's part."""

    step: int
    of: str
    parts: list[str]


class Holder(msgspec.Struct, frozen=True):
    """Who writes in a folder, for those who may not."""

    process: int
    host: str
    model: str
    plan: str


def refusals(setting: Setting, method: str) -> list[Refusal]:
    """Plans whose ranks hold more between two steps than a checkpoint has."""
    text = str(setting.plan)
    found: list[Refusal] = []
    if method or any(setting.plan.axis(word) for word in ("ps", "local", "ring", "gossip")):
        why = "ranks that go at their own pace have letters under way that no checkpoint has"
        found.append(Refusal("checkpoint", why, "dp2"))
    if ":stash" in text:
        found.append(Refusal("checkpoint", "pp:stash never runs empty: versions of weights are under way", "pp2:1f1b"))
    if "+compress" in text:
        found.append(Refusal("checkpoint", "+compress keeps what it left out, and no checkpoint has it", "dp2"))
    if "+fp16" in text:
        found.append(Refusal("checkpoint", "+fp16 keeps a scale of gradients that no checkpoint has", "+bf16"))
    return found


def made(folder: str) -> None:
    """Make the folder before anybody trains, and say so where that cannot be, or where it has what would be lost."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as problem:
        what = f"no checkpoint can be written in {folder}: {problem.strerror}"
        raise BadInput(what, where="--checkpoint", fix="a folder that you may write in") from None
    if (Path(folder) / LATEST).exists() and not _newest_first(Path(folder)):
        what = f"{folder} has checkpoints of an earlier version of foretell ({LATEST}), which this one cannot read"
        raise BadInput(what, where="--checkpoint", fix="another folder")


class Checkpoints:
    """Those of one rank, in a folder that all ranks see."""

    def __init__(self, assignment: Assignment, rank: int) -> None:
        self._folder, self._every, self._rank = Path(assignment.checkpoints), assignment.checkpoint_every, rank
        self._of = _question(assignment)
        self._fate = restart_log.Fate(steps=assignment.fail_at, mtbf=assignment.fail_every, seed=assignment.seed)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = _held(self._folder, assignment) if rank == 0 else -1  # until this process ends, however it does
        dead = sum(one.what == restart_log.DIED for one in restart_log.events(self._folder))
        self._doom = self._fate.of_life(dead, dist.get_world_size())
        self._begun = 0.0

    def began(self, step: int) -> None:
        """Measured steps begin, or go on."""
        self._begun = time.monotonic()
        if self._rank == 0:
            restart_log.note(self._folder, restart_log.BEGAN, step)

    def ended(self, step: int) -> None:
        dist.barrier()
        if self._rank == 0:
            restart_log.note(self._folder, restart_log.ENDED, step)

    def step(self, step: int) -> None:
        """A step is about to begin: a rank whose end was rehearsed dies here."""
        if self._fate and self._rank == self._doom.rank and self._doom.due(step, time.monotonic() - self._begun):
            restart_log.note(self._folder, restart_log.DIED, step, rank=self._rank)
            os.kill(os.getpid(), signal.SIGKILL)

    # there

    def due(self, step: int) -> bool:
        return step % self._every == 0

    def write(self, step: int, subject: Subject, optimizer: Any, progress: RankProgress) -> None:
        """All ranks take part, and none goes on before the checkpoint counts."""
        try:
            self._write(step, subject, optimizer, progress)
        except OSError as problem:
            what = f"no checkpoint can be written in {self._folder}: {problem.strerror}; the one before is as it was"
            raise BadInput(
                what, where="--checkpoint", fix="more room there, or another folder with a copy of it"
            ) from None

    def _write(self, step: int, subject: Subject, optimizer: Any, progress: RankProgress) -> None:
        start = time.monotonic()
        folder = self._folder / f"step-{step}"
        folder.mkdir(exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)  # of one that was passed over: its parts are made anew
        content = {
            "weights": [_weights(part) for part in subject.parts],
            "states": [_states(one) for one in _optimizers(optimizer)],
            "masters": [_local(one).clone() for one in _masters(optimizer)],
            "random": torch.get_rng_state(),
            "progress": msgspec.json.encode(progress),
        }
        sums: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(sums, _save(content, _part(folder, self._rank)))
        if self._rank == 0:
            write_whole(folder / MANIFEST, msgspec.json.encode(Manifest(step, self._of, sums)))
            last = [one for one in _newest_first(self._folder) if _step(one) <= step][:KEPT]
            for old in self._folder.glob("step-*"):
                if old not in last:
                    shutil.rmtree(old, ignore_errors=True)
            restart_log.note(self._folder, restart_log.WROTE, step, time.monotonic() - start)
        dist.barrier()

    # and back

    def read(self, subject: Subject, optimizer: Any) -> RankProgress | None:
        """Put everything as it was; none where there is no checkpoint yet."""
        folder = self._whole()
        if folder is None:
            return None
        content = torch.load(_part(folder, self._rank), weights_only=True)
        with torch.no_grad():
            for part, weights in zip(subject.parts, content["weights"], strict=True):
                for name, tensor in _named(part):
                    _local(tensor).copy_(weights[name])
            for master, saved in zip(_masters(optimizer), content["masters"], strict=True):
                _local(master).copy_(saved)
        for one, states in zip(_optimizers(optimizer), content["states"], strict=True):
            _put_back(one, states)
        torch.set_rng_state(content["random"])
        return msgspec.json.decode(content["progress"], type=RankProgress)

    def _whole(self) -> Path | None:
        """The newest checkpoint that every rank finds as it was written."""
        wrong: dict[str, str] = {}
        folders = _newest_first(self._folder)
        dist.barrier()  # all have looked before anybody writes
        for folder in folders:
            said: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(said, self._wrong(folder))
            why = next(filter(None, said), "")
            if not why:
                return folder
            wrong[folder.name] = why
            if self._rank == 0:
                restart_log.note(self._folder, restart_log.PASSED, _step(folder), why=why)
        if set(wrong.values()) == {OTHER}:
            what = f"{self._folder} has checkpoints of another run"
            raise BadInput(what, where="--checkpoint", fix="an empty folder, or the same model, plan, batch and seed")
        if wrong:
            told = "; ".join(f"{name}: {why}" for name, why in wrong.items())
            what = f"no checkpoint in {self._folder} is as it was written; {told}"
            raise BadInput(what, where="--checkpoint", fix="a copy of the folder, or an empty one to begin anew")
        return None

    def _wrong(self, folder: Path) -> str:
        """Why this rank cannot go on from a checkpoint; nothing where it can."""
        try:
            found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
        except (OSError, msgspec.DecodeError, RecursionError):
            return f"{MANIFEST} cannot be read"
        if found.of != self._of:
            return OTHER
        part = _part(folder, self._rank)
        try:
            right = _checksum(part) == found.parts[self._rank]
        except (OSError, IndexError):
            return f"{part.name} cannot be read"
        return "" if right else f"{part.name} has another checksum than when it was written"


def _held(folder: Path, assignment: Assignment) -> int:
    """Keep others out of a folder while this process lives: two runs in one would take each other's checkpoints."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadInput(f"{folder} is in use: {_holder(handle)}", where="--checkpoint", fix="another folder") from None
    except OSError:
        return handle  # a file system that has no locks
    holder = Holder(os.getpid(), platform.node(), assignment.model, assignment.plan)
    os.ftruncate(handle, 0)
    os.pwrite(handle, msgspec.json.encode(holder), 0)
    return handle


def _holder(handle: int) -> str:
    try:
        one = msgspec.json.decode(os.pread(handle, 1 << 16, 0), type=Holder)
    except msgspec.DecodeError:  # it has just begun
        return "another run writes checkpoints there"
    return f"process {one.process} on {one.host} writes checkpoints of {one.model} under {one.plan} there"


def _newest_first(folder: Path) -> list[Path]:
    """Folders of checkpoints that have a manifest: what was not finished does not count."""
    return sorted((one.parent for one in folder.glob(f"step-*/{MANIFEST}")), key=_step, reverse=True)


def _step(folder: Path) -> int:
    number = folder.name.removeprefix("step-")
    return int(number) if number.isdigit() else 0


def _part(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.pt"


def _question(assignment: Assignment) -> str:
    """What has to be the same for a run to go on."""
    data = ("model", "batch", "seq", "task", "loss", "seed", "dropped")
    rule = ("optimizer", "rate", "rate_batch", "warmup")
    names = (*data, *rule, "plan", "trainer", "device")
    return msgspec.json.encode([getattr(assignment, name) for name in names]).decode()


def _named(part: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*part.named_parameters(), *part.named_buffers()]


def _weights(part: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: _local(tensor).detach().clone() for name, tensor in _named(part)}


def _inside(optimizer: Any) -> Iterator[Any]:
    """Those that an optimizer is made of: several, the one in shares, the one over master weights."""
    yield from getattr(optimizer, "each", ())
    yield from (getattr(optimizer, name) for name in ("optim", "inner") if hasattr(optimizer, name))


def _optimizers(optimizer: Any) -> list[torch.optim.Optimizer]:
    """Those that hold states: the innermost ones."""
    return [found for one in _inside(optimizer) for found in _optimizers(one)] or [optimizer]


def _masters(optimizer: Any) -> list[torch.Tensor]:
    """Master weights, however deep they lie."""
    own = list(getattr(optimizer, "masters", ()))
    return own + [found for one in _inside(optimizer) for found in _masters(one)]


def _weights_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _states(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Of each weight in its order, this rank's part of them."""
    return [
        {name: _local(value).clone() if isinstance(value, torch.Tensor) else value for name, value in state.items()}
        for state in (optimizer.state.get(weight, {}) for weight in _weights_of(optimizer))
    ]


def _put_back(optimizer: torch.optim.Optimizer, states: list[dict[str, Any]]) -> None:
    for weight, state in zip(_weights_of(optimizer), states, strict=True):
        if state:
            optimizer.state[weight] = {name: _like(value, weight) for name, value in state.items()}


def _like(value: Any, weight: torch.Tensor) -> Any:
    """A state as it lies with its weight: in shares, where the weight does."""
    if isinstance(weight, DTensor) and isinstance(value, torch.Tensor) and value.shape == weight.to_local().shape:
        mesh, placements = weight.device_mesh, weight.placements
        return DTensor.from_local(value, mesh, placements, shape=weight.shape, stride=weight.stride())
    return value


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _save(content: Any, file: Path) -> str:
    """All of it, on the disk, or nothing; the checksum of what was written, which is what is read back."""
    made = io.BytesIO()
    torch.save(content, made)
    checksum = hashlib.sha256(made.getbuffer()).hexdigest()
    write_whole(file, made.getbuffer())
    if _checksum(file) != checksum:
        raise BadInput(f"{file} is not what was written to it", where="--checkpoint", fix="another disk")
    return checksum


def _checksum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
