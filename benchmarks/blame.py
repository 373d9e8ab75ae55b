"""Does `foretell blame` name a fault that was planted into real ranks?

Ranks of a processor train a small network over gloo, and torch.profiler traces each of them. A fault is planted:

- slow rank: all operators of rank 1 take 4 times as long (it turns on the spot for the rest);
- kernel: one operator (GELU, and its gradient) takes 40 times as long, on all ranks;
- host: rank 0 sleeps 0.1 s before its forward pass;
- collective: each message of gradients carries 24 times its bytes.

Faults are large because the machine may be busy: what other programs take of a core looks like a slow rank.

Each is tried several times, beside a run that is well (its traces are the measure), in turn so that drifting cores meet
all alike. `python benchmarks/blame.py [repeats]` prints what was named; `--keep FOLDER` keeps the traces.
"""

import argparse
import os
import socket
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.oracle.blamed import blamed

RANKS, STEPS = 2, 12
FAULTS = ("slow rank", "kernel", "host", "collective")
ONE = ("aten.gelu.default", "aten.gelu_backward.default")


class Slowed(TorchDispatchMode):
    """Operators take so many times as long."""

    def __init__(self, times: float, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.times, self.names = times, names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.perf_counter()
        found = func(*args, **(kwargs or {}))
        if "c10d" not in str(func) and (not self.names or str(func) in self.names):
            until = start + self.times * (time.perf_counter() - start)
            while time.perf_counter() < until:
                pass
        return found


class Fat:
    """Gradients in messages that are so many times as large; memory for them is there before."""

    def __init__(self, times: int) -> None:
        self.times, self.held = times, dict[int, torch.Tensor]()

    def __call__(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        own = bucket.buffer()
        if own.numel() not in self.held:
            self.held[own.numel()] = torch.zeros(own.numel() * self.times)
        large = self.held[own.numel()]
        large[: own.numel()] = own
        future = dist.all_reduce(large, async_op=True).get_future()
        return future.then(lambda done: done.value()[0][: own.numel()].div(RANKS))


def thin(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0].div(RANKS))


def train(rank: int, port: int, folders: dict[str, str]) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    for fault, folder in folders.items():
        faulty(rank, fault, folder)
    dist.destroy_process_group()


def faulty(rank: int, fault: str, folder: str) -> None:
    """Some steps with a fault, traced."""
    nn, kinds = torch.nn, (384, 768)
    layers = [nn.Sequential(nn.Linear(*kinds), nn.GELU(), nn.LayerNorm(768), nn.Linear(768, 384)) for _ in range(4)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    hook = Fat(24 if fault == "collective" else 1)
    model.register_comm_hook(None, hook.__call__)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    slow = {"slow rank": Slowed(4.0 if rank == 1 else 1.0), "kernel": Slowed(40.0, ONE)}.get(fault, Slowed(1.0))
    plan = torch.profiler.schedule(wait=1, warmup=1, active=STEPS)
    kind = [torch.profiler.ProfilerActivity.CPU]
    with slow, torch.profiler.profile(activities=kind, schedule=plan) as profiler:
        for _ in range(STEPS + 2):
            if fault == "host" and rank == 0:
                time.sleep(0.1)
            model(torch.randn(192, 384)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")


def traces(folder: Path) -> dict[str, list[Path]]:
    """Of steps that are well, and of those with each fault, by the same ranks one after the other."""
    folders = {fault: folder / (fault or "well").replace(" ", "-") for fault in ("", *FAULTS)}
    for one in folders.values():
        one.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(train, (port, {fault: str(one) for fault, one in folders.items()}), RANKS)
    return {fault: [one / f"rank{rank}.json" for rank in range(RANKS)] for fault, one in folders.items()}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("repeats", type=int, nargs="?", default=3)
    words.add_argument("--keep")
    given = words.parse_args()
    named: dict[str, Counter[str]] = {fault: Counter() for fault in FAULTS}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(given.keep or made)
        for turn in range(given.repeats):
            made_of = traces(folder / str(turn))
            for fault in FAULTS:
                found = blamed(made_of[fault], None, made_of[""])
                first = found.first
                where = "" if first is None or first.rank is None else f", rank {first.rank}"
                told = f"{first.cause} {first.what}".strip() + where if first else "nothing"
                right = first is not None and first.cause == fault
                right = right and (fault != "slow rank" or first.rank == 1) and (fault != "host" or first.rank == 0)
                right = right and (fault != "kernel" or "gelu" in first.what)
                named[fault]["right" if right else told] += 1
                print(f"{turn} {fault:<12} {found.measured * 1e3:7.1f} ms ({found.expected * 1e3:.1f}): {told}")
    for fault, told in named.items():
        print(f"{fault:<12} named in {told['right']} of {told.total()}", dict(told))


if __name__ == "__main__":
    main()
