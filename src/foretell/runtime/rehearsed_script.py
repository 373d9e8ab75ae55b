# pyright: basic
"""Somebody's training script as one rank of a world in which the others are not: it starts as it is, and torch's
process groups are ours under the names that it asks for.

    python -m foretell.runtime.rehearsed_script

reads one line of JSON (`RehearsedScript`) and answers with one (`ScriptReport`). A step is what lies between two steps
of an optimizer. After as many as are wanted the script is ended from within, so that it cleans up.
"""

from __future__ import annotations

import itertools
import os
import platform
import runpy
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from foretell.hardware import catalog
from foretell.processes import answer_lines, end_with_parent
from foretell.runtime import message_prices
from foretell.runtime.assignment import Failure
from foretell.runtime.memory import Watched
from foretell.runtime.rehearsed_world import Asked, RehearsedWorld, at_once
from foretell.runtime.script_report import GroupTraffic, RehearsedScript, ScriptReport

UNUSED = ("device_id", "backend_options", "pg_options")
"""What is said of a library that is not there."""


class EnoughSteps(BaseException):
    """Ends a script that has done its steps; no `except Exception` of its own hears of it."""


class StepWatch:
    """Marks where an optimizer steps; the first one that does, of several."""

    def __init__(self, asked: RehearsedScript, world: RehearsedWorld) -> None:
        self._asked, self._world = asked, world
        self._optimizer: Any = None
        self._marks: list[Any] = []
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._memory = Watched(self._device)
        self._before: Counter[Asked] = Counter()
        self.collectives: list[GroupTraffic] = []
        self.gradients = 0

    def stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizer = self._optimizer or optimizer
        if optimizer is not self._optimizer:
            return
        done = len(self._marks) + 1
        if done == self._asked.dropped:  # the step that is watched is over
            self._memory.__exit__(None, None, None)
            self.collectives = _grouped(self._world.seen - self._before)
            self.gradients = sum(map(_bytes, (one for group in optimizer.param_groups for one in group["params"])))
        self._marks.append(self._mark())
        if done == self._asked.dropped - 1:
            self._before = self._world.seen.copy()
            self._memory.step().__enter__()
        if done == self._asked.dropped + self._asked.steps:
            raise EnoughSteps

    def _mark(self) -> Any:
        if self._device.type == "cpu":
            return time.perf_counter()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def report(self, failure: Failure | None) -> ScriptReport:
        marks = self._marks[self._asked.dropped - 1 :]
        if self._device.type == "cuda":
            torch.cuda.synchronize()
            steps = [start.elapsed_time(end) / 1e3 for start, end in itertools.pairwise(marks)]
        else:
            steps = [end - start for start, end in itertools.pairwise(marks)]
        return ScriptReport(
            steps=steps,
            collectives=self.collectives,
            gradients=self.gradients,
            allocated=self._memory.peak,
            resting=self._memory.resting,
            reserved=self._memory.reserved,
            alive=self._memory.alive,
            device=self._device.type,
            versions={"torch": str(torch.__version__), "python": platform.python_version()},
            failure=failure,
        )


def _bytes(weight: torch.Tensor) -> int:
    own = weight.to_local() if isinstance(weight, DTensor) else weight
    return own.numel() * own.element_size() if weight.requires_grad or weight.grad is not None else 0


def _grouped(seen: Counter[Asked]) -> list[GroupTraffic]:
    rows: Counter[tuple[str, int, int, int]] = Counter()
    for one, count in seen.items():
        stride = min((after - before for before, after in itertools.pairwise(one.ranks)), default=1)
        rows[one.kind, len(one.ranks), stride, one.payload] += count
    return sorted(GroupTraffic(*key, count) for key, count in rows.items())


def install(asked: RehearsedScript) -> None:
    """Have torch's process groups be ours, whatever they are called."""
    c10d: Any = dist.distributed_c10d
    begin, helper = c10d.init_process_group, c10d._new_process_group_helper

    def begun(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        begin(backend or "gloo", store=HashStore(), rank=asked.rank, world_size=asked.ranks)

    def made(size: int, rank: int, ranks: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
        for name in UNUSED:
            kwargs.pop(name, None)
        group, store = helper(size, rank, ranks, "fake", *args, **kwargs)
        if group in c10d._world.pg_map:
            c10d._world.pg_map[group] = (backend, c10d._world.pg_map[group][1])
        return group, store

    c10d._new_process_group_helper = made
    for module in (dist, c10d):
        module.init_process_group = begun  # pyright: ignore[reportAttributeAccessIssue]


def answer(line: bytes) -> bytes:
    """Run the script; what was seen of it, whatever came of it."""
    asked = msgspec.json.decode(line, type=RehearsedScript)
    links = message_prices.on_links(catalog.cluster(asked.cluster)) if asked.priced else None
    price = (lambda one: links.seconds(one.kind, one.ranks, one.payload)) if links else at_once
    world = RehearsedWorld(price).enter()
    install(asked)
    watch = StepWatch(asked, world)
    register_optimizer_step_post_hook(watch.stepped)
    os.environ.update(
        RANK=str(asked.rank),
        WORLD_SIZE=str(asked.ranks),
        LOCAL_RANK="0",  # the one device that is here
        LOCAL_WORLD_SIZE=str(asked.here),
        GROUP_RANK=str(asked.rank // asked.here),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    )
    sys.argv = [asked.script, *asked.arguments]
    sys.path.insert(0, str(Path(asked.script).resolve().parent))
    failure = None
    try:
        runpy.run_path(asked.script, run_name="__main__")
    except EnoughSteps:
        pass
    except SystemExit as end:
        failure = Failure("BadInput", f"the script ended with exit code {end.code}") if end.code else None
    except BaseException:
        failure = Failure("BadInput", f"the script ended with an error:\n{traceback.format_exc(limit=-4)}")
    return msgspec.json.encode(watch.report(failure))


if __name__ == "__main__":
    end_with_parent()
    answer_lines(answer)
