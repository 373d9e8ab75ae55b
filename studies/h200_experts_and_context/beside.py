"""Kernels beside other kernels: how much a product, an attention or a copy slows while a second stream works."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from timing import Device, Lines, set_aside, spread

Work = Callable[[], Any]
try:
    import triton
    import triton.language as tl

    @triton.jit
    def _copying(source, target, blocks, rounds, BLOCK: tl.constexpr):  # noqa: N803
        """A few programs copy a buffer again and again, as the channels of a collective do."""
        lanes = tl.arange(0, BLOCK)
        for _ in range(rounds):
            for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
                at = block * BLOCK + lanes
                tl.store(target + at, tl.load(source + at))

    @triton.jit
    def _spinning(target, rounds, BLOCK: tl.constexpr):  # noqa: N803
        """A few programs multiply and add in registers: they take multiprocessors and no bandwidth."""
        x = tl.arange(0, BLOCK).to(tl.float32)
        for _ in range(rounds):
            x = x * 1.0000001 + 0.5
        tl.store(target + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), x)

except ImportError:
    _copying = _spinning = None  # the device's own copies are measured all the same


def victims(device: Device) -> dict[str, Work]:
    side = 64 if device.tiny else 8192
    a, b, out = (device.rand(side, side) for _ in range(3))
    c, d = device.rand(side // 2, side // 2), device.rand(side // 2, side // 2)
    q = device.rand(1, 16, side, 128)
    x = device.rand(side * side * 4)
    y = torch.empty_like(x)
    rows = device.rand(side * 4, side)
    return {
        "matmul_8192": lambda: torch.mm(a, b, out=out),
        "matmul_4096": lambda: torch.mm(c, d),
        "attention": lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True),
        "add": lambda: torch.add(x, x, out=y),
        "layer_norm": lambda: torch.nn.functional.layer_norm(rows, (side,)),
    }


def others(device: Device) -> dict[str, tuple[Work, dict[str, Any]]]:
    size = 2**16 if device.tiny else 2**28
    here, there = (torch.empty(size, dtype=torch.uint8, device=device.kind) for _ in range(2))
    host = torch.empty(size // 4, dtype=torch.uint8, pin_memory=not device.tiny)
    wide, far = here.view(torch.int32), there.view(torch.int32)
    some = torch.empty(2**20, device=device.kind)
    made: dict[str, tuple[Work, dict[str, Any]]] = {
        "device_copy": (lambda: there.copy_(here), {"bytes": 2 * size}),
        "to_device": (lambda: here[: size // 4].copy_(host, non_blocking=True), {"bytes": size // 4}),
        "to_host": (lambda: host.copy_(here[: size // 4], non_blocking=True), {"bytes": size // 4}),
        "add": (lambda: torch.add(wide, wide, out=far), {"bytes": 2 * size}),
    }
    if _copying is None or device.tiny:
        return made
    block = 8192
    for programs in (1, 4, 8, 16, 24, 32, 64):
        share = size // 4 // block * min(1.0, programs / 32)
        blocks = max(programs, int(share) // programs * programs)
        told = {"programs": programs, "bytes": 8 * blocks * block}
        made[f"copy_{programs}"] = (
            lambda programs=programs, blocks=blocks: _copying[(programs,)](
                wide, far, blocks, 1, BLOCK=block, num_warps=16
            ),
            told,
        )
    for programs in (4, 8, 16, 32, 64):
        made[f"spin_{programs}"] = (
            lambda programs=programs: _spinning[(programs,)](some, 400_000, BLOCK=1024, num_warps=8),
            {"programs": programs, "bytes": 0},
        )
    return made


def alone(work: Work, repeats: int) -> list[float]:
    """Milliseconds of each of some calls in a row."""
    work()
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    torch.cuda._sleep(1_000_000)
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize()
    return [first.elapsed_time(second) for first, second in pairwise(events)]


def together(
    streams: tuple[torch.cuda.Stream, torch.cuda.Stream], works: tuple[Work, Work], alone_ms: tuple[float, float]
) -> tuple[list[float], list[float]]:
    """Milliseconds of the calls of both, of those alone that ran wholly while the other stream was busy."""
    length = max(12.0, *(6 * ms for ms in alone_ms))
    start = torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(20_000_000)  # both are enqueued before either begins
    start.record()
    begun: list[list[torch.cuda.Event]] = []
    for stream, work, ms in zip(streams, works, alone_ms, strict=True):
        stream.wait_event(start)
        events = [torch.cuda.Event(enable_timing=True)]
        with torch.cuda.stream(stream):
            events[0].record()
            for _ in range(min(400, max(4, int(length / ms)))):
                work()
                events.append(torch.cuda.Event(enable_timing=True))
                events[-1].record()
        begun.append(events)
    torch.cuda.synchronize()
    times = [[start.elapsed_time(event) for event in events] for events in begun]
    end = min(marks[-1] for marks in times)
    kept = [[b - a for a, b in pairwise(marks[1:]) if b <= end] for marks in times]
    return kept[0], kept[1]


def beside(lines: Lines, device: Device, end: float) -> None:
    if device.tiny:
        assert len(victims(device)) == 5 and len(others(device)) == 4
        return
    first_ones, second_ones = victims(device), others(device)
    lengths: dict[str, float] = {}
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for kind, works in (("first", first_ones), ("second", {name: work for name, (work, _) in second_ones.items()})):
        for name, work in works.items():
            told: dict[str, Any] = {"group": "beside", "id": f"alone {kind} {name}", "set_aside": False, "alone": name}
            told |= second_ones[name][1] if kind == "second" else {}
            try:
                samples = alone(work, 10)
                for stream in streams:  # each has its own workspace of the libraries, made now
                    with torch.cuda.stream(stream):
                        work()
                torch.cuda.synchronize()
                lengths[f"{kind} {name}"] = sorted(samples)[5]
                lines.write({**told, **spread(samples)})
            except Exception as problem:
                lines.write({**told, "failed": repr(problem)[:300]})
    for first_name, first in first_ones.items():
        for second_name, (second, of_it) in second_ones.items():
            if lines.spent() > end:
                return
            keys = f"first {first_name}", f"second {second_name}"
            if not all(key in lengths for key in keys):
                continue
            identity = f"beside {first_name} {second_name}"
            told = {"group": "beside", "id": identity, "set_aside": set_aside(identity), "first": first_name}
            told |= {"second": second_name, **of_it}
            try:
                ours, theirs = together(streams, (first, second), (lengths[keys[0]], lengths[keys[1]]))
                told |= {"first_alone_ms": lengths[keys[0]], "second_alone_ms": lengths[keys[1]]}
                told |= {"first_beside": spread(ours[:40])} if ours else {}
                told |= {"second_beside": spread(theirs[:40])} if theirs else {}
            except Exception as problem:
                told["failed"] = repr(problem)[:300]
            lines.write(told)
