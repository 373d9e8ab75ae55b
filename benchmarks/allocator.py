"""How much of a device a run needs at least beside its tensors, by PyTorch's own rules for giving memory out.

    python benchmarks/allocator.py [--micro-batches 2] [--steps 2]

The allocations and frees of a plan's program are replayed through the rules of torch's caching allocator (PyTorch
2.11, c10/cuda/CUDACachingAllocator.cpp): sizes in 512 bytes; up to 1 MiB from segments of 2 MiB, up to 10 MiB from
segments of 20 MiB, larger ones from segments of their own in 2 MiB; the best fitting free block, split where more than
512 bytes (small) or 1 MiB (large) are left; when the device is full, segments that are wholly free are given back and
it is tried again.

Printed for each plan: bytes in tensors at most, what a device without a limit would have reserved over that, and the
smallest device on which the same calls still succeed over that: what lies between is given back under pressure, slower.
"""

from __future__ import annotations

import argparse
import bisect
from collections.abc import Iterator
from typing import NamedTuple

from foretell.model.layers import EqualLayers
from foretell.model.source import load
from foretell.plan.job import make_job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.lower import lower

MIB = 2**20
SMALL, SMALL_SEGMENT = MIB, 2 * MIB
MEDIUM, MEDIUM_SEGMENT = 10 * MIB, 20 * MIB
LARGE_PAGES = 2 * MIB
ROUNDING = 512

CASES = (
    ("llama3.2-1b:layers=8", "dp1 +bf16", 8, 2048),
    ("llama3.2-1b:layers=8", "dp1 +recompute:block +bf16", 16, 2048),
    ("llama3.2-1b:layers=8", "dp1 +recompute:operators +bf16", 8, 2048),
    ("llama3-8b:layers=6", "dp1 +bf16", 2, 8192),
    ("llama3-8b:layers=6", "dp1 +recompute:block +bf16", 2, 8192),
    ("gpt2:attention=math", "dp1 +bf16", 8, 1024),
    ("gpt2", "dp1 +amp_bf16", 16, 1024),
    ("mixtral-8x7b:layers=2", "dp1 +bf16", 2, 4096),
    ("resnet50", "dp1 +amp_bf16", 128, 0),
    ("vgg16", "dp1 +fp32", 64, 0),
    ("bert-large", "dp1 +bf16", 16, 512),
    ("vit_l_16", "dp1 +bf16", 64, 0),
)


class Full(Exception):
    """The device has no room, whatever is given back."""


class Block:
    """A piece of a segment; its neighbours are found by place."""

    __slots__ = ("free", "segment", "size", "start")

    def __init__(self, segment: Segment, start: int, size: int) -> None:
        self.segment, self.start, self.size, self.free = segment, start, size, True


class Segment:
    """What was asked of the device in one piece."""

    __slots__ = ("blocks", "pool", "size")

    def __init__(self, size: int, pool: str) -> None:
        self.size, self.pool = size, pool
        self.blocks: list[Block] = [Block(self, 0, size)]


class Allocator:
    """torch's rules, with a device of so many bytes."""

    def __init__(self, capacity: float) -> None:
        self.capacity, self.reserved, self.most, self.retries = capacity, 0, 0, 0
        self.segments: list[Segment] = []
        self.free: dict[str, list[tuple[int, int, Block]]] = {"small": [], "large": []}
        self.made = 0

    def allocate(self, size: float) -> Block:
        size = max(ROUNDING, -(-int(size) // ROUNDING) * ROUNDING)
        pool = "small" if size <= SMALL else "large"
        free = self.free[pool]
        at = bisect.bisect_left(free, (size, -1))
        if at < len(free):
            _, _, block = free.pop(at)
        else:
            block = self._new(size, pool)
        left = block.size - size
        if left >= ROUNDING if pool == "small" else left > SMALL:
            rest = Block(block.segment, block.start + size, left)
            block.size = size
            block.segment.blocks.insert(block.segment.blocks.index(block) + 1, rest)
            self._keep(rest)
        block.free = False
        return block

    def release(self, block: Block) -> None:
        own = block.segment.blocks
        at = own.index(block)
        for other in (at + 1, at - 1):
            if 0 <= other < len(own) and own[other].free:
                near = own[other]
                self._forget(near)
                block.start, block.size = min(block.start, near.start), block.size + near.size
                own.remove(near)
        self._keep(block)

    def _new(self, size: int, pool: str) -> Block:
        if size <= SMALL:
            wanted = SMALL_SEGMENT
        else:
            wanted = MEDIUM_SEGMENT if size < MEDIUM else -(-size // LARGE_PAGES) * LARGE_PAGES
        if self.reserved + wanted > self.capacity:
            self.retries += 1
            for segment in [one for one in self.segments if len(one.blocks) == 1 and one.blocks[0].free]:
                self._forget(segment.blocks[0])
                self.segments.remove(segment)
                self.reserved -= segment.size
            if self.reserved + wanted > self.capacity:
                raise Full
        segment = Segment(wanted, pool)
        self.segments.append(segment)
        self.reserved += wanted
        self.most = max(self.most, self.reserved)
        return segment.blocks[0]

    def _keep(self, block: Block) -> None:
        block.free = True
        self.made += 1
        bisect.insort(self.free[block.segment.pool], (block.size, id(block), block))

    def _forget(self, block: Block) -> None:
        block.free = False
        free = self.free[block.segment.pool]
        free.pop(bisect.bisect_left(free, (block.size, id(block))))


class Call(NamedTuple):
    """An allocation of so many bytes under a name, or a free of it (0 bytes)."""

    name: object
    size: float


def calls(setting: Setting, steps: int) -> tuple[list[Call], float]:
    """What a step calls for on one rank, and bytes that rest: weights, gradients and states."""
    program = lower(setting)
    local, partition = program.rank_program, program.partition
    runs: tuple[EqualLayers, ...] = partition.runs(0)
    trace = local.trace(runs, pipelined=False)
    weights = program.own(0)
    resting: list[float] = []
    for weight in weights:
        state = program.weight_state.resting([weight], versions=1)
        resting += [state.weights, state.gradients, *([state.states / 3] * 3)]
    made: list[Call] = [Call(("state", at), size) for at, size in enumerate(resting) if size]
    parts = (trace.trace.forward.changes, trace.trace.sent, trace.trace.backward.changes)
    for step in range(steps * program.plan.microbatches):
        for changes in parts:
            for change, storage in zip(changes.sizes, changes.storages, strict=True):
                size = trace.sizes[abs(change) - 1]
                made.append(Call((step, storage), size if change > 0 else 0.0))
    return made, sum(resting)


def replayed(made: list[Call], capacity: float) -> Iterator[Allocator]:
    own, blocks = Allocator(capacity), dict[object, Block]()
    for call in made:
        if call.size > 0:
            if call.name not in blocks:
                blocks[call.name] = own.allocate(call.size)
        elif call.name in blocks:
            own.release(blocks.pop(call.name))
    yield own


def runs(made: list[Call], capacity: float) -> bool:
    try:
        next(replayed(made, capacity))
    except Full:
        return False
    return True


def most(made: list[Call]) -> float:
    """Bytes in tensors at most."""
    alive, now, found = dict[object, float](), 0.0, 0.0
    for call in made:
        if call.size > 0:
            if call.name not in alive:
                alive[call.name] = call.size
                now += call.size
                found = max(found, now)
        else:
            now -= alive.pop(call.name, 0.0)
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--micro-batches", type=int, default=2)
    asked.add_argument("--steps", type=int, default=2)
    given = asked.parse_args()
    print(f"{'model and plan':<62} tensors, GiB  reserved  needed")
    for spec, text, batch, sequence in CASES:
        plan = parse(f"{text} +m{given.micro_batches}")
        graph = load(spec, batch, sequence or None)
        job = make_job(batch * given.micro_batches, trainer="pytorch", sequence=sequence)
        made, _ = calls(Setting(graph, job, plan, trainer("pytorch")), given.steps)
        peak = most(made)
        whole = next(replayed(made, float("inf"))).most
        low, high = peak, float(whole)
        while high - low > 2e-3 * peak:
            middle = (low + high) / 2
            low, high = (low, middle) if runs(made, middle) else (middle, high)
        print(f"{spec + ' ' + text:<62} {peak / 2**30:12.2f} {whole / peak:9.3f} {high / peak:7.3f}", flush=True)


if __name__ == "__main__":
    main()
