"""What torch's allocator of GPU memory did: its history replayed, and what was alive when a step was fullest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch

ENTRIES = 2_000_000

KINDS = {"alloc": 0, "free_requested": 1, "free_completed": 2, "segment_alloc": 3, "segment_free": 4}
KINDS |= {"segment_map": 5, "segment_unmap": 6, "oom": 7, "snapshot": 8}

STATISTICS = ("allocated_bytes", "active_bytes", "reserved_bytes", "inactive_split_bytes", "requested_bytes")


def expandable() -> None:
    """Have segments grow, before anything is allocated."""
    import os

    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    try:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    except Exception:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")


def keep(stacks: bool) -> None:
    context: Any = "alloc" if stacks else None
    torch.cuda.memory._record_memory_history(enabled="all", context=context, stacks="python", max_entries=ENTRIES)


def forget() -> None:
    torch.cuda.memory._record_memory_history(enabled=None)


def _events(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return max(snapshot["device_traces"], key=len, default=[])


MOST = 200_000
"""Events of a history that is kept."""


def told() -> dict[str, Any]:
    """Segments as they are after the first steps, and all that led to them."""
    snapshot = torch.cuda.memory._snapshot()
    streams: dict[int, int] = {}
    segments: Counter[tuple[int, int, bool]] = Counter()
    for one in snapshot["segments"]:
        stream = streams.setdefault(one["stream"], len(streams))
        segments[stream, one["total_size"], bool(one.get("is_expandable"))] += 1
    return {
        "segments": [[*key, count] for key, count in sorted(segments.items())],
        "retries": torch.cuda.memory_stats().get("num_alloc_retries", 0),
        "history": {"events": _short(_events(snapshot)[:MOST], streams)},
    }


def _short(events: Iterable[dict[str, Any]], streams: dict[int, int]) -> list[list[int]]:
    """Kind, block, bytes, stream: blocks are numbered as they come."""
    blocks: dict[int, int] = {}
    found: list[list[int]] = []
    for one in events:
        kind, place = KINDS.get(one["action"], 9), one.get("addr", 0)
        if kind == 0 or place not in blocks:
            blocks[place] = len(found)
        found.append([kind, blocks[place], one.get("size", 0), streams.setdefault(one.get("stream", 0), len(streams))])
    return found


def of_a_step(step: Callable[[Any], None]) -> dict[str, int]:
    """Peaks of one step by the allocator's own count."""
    torch.cuda.synchronize()
    resting = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step(lambda name: None)
    torch.cuda.synchronize()
    seen = torch.cuda.memory_stats()
    found = {name: seen.get(f"{name}.all.peak", 0) for name in STATISTICS}
    free, whole = torch.cuda.mem_get_info()
    return {
        **found,
        "resting": resting,
        "retries": seen.get("num_alloc_retries", 0),
        "device": whole - free,
        "segments": seen.get("segment.all.peak", 0),
    }


def alive(step: Callable[[Any], None]) -> dict[str, Any]:
    """One more step with the place in Python that each block comes from: what the step itself has made and still holds
    when most is allocated, by where it comes from."""
    torch.cuda.synchronize()
    resting = torch.cuda.memory_allocated()
    keep(stacks=True)
    step(lambda name: None)
    torch.cuda.synchronize()
    events = _events(torch.cuda.memory._snapshot())
    forget()
    peak, at = fullest(events)
    rows: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for block in held_at(events, at):
        row = rows[source(block.get("frames", [])), block["stream"]]
        row[0] += 1
        row[1] += block["size"]
    most = sorted(rows.items(), key=lambda item: -item[1][1])[:40]
    streams = {name: number for number, name in enumerate(dict.fromkeys(key[1] for key in rows))}
    left = sum(row[1] for row in rows.values()) - sum(row[1] for _, row in most)
    return {
        "resting": resting,
        "made": peak,
        "blocks": [[place, streams[stream], count, size] for (place, stream), (count, size) in most],
        "other": left,
    }


def fullest(events: list[dict[str, Any]]) -> tuple[int, int]:
    """How far a history rises above its beginning, and after which event."""
    held = most = at = 0
    for number, one in enumerate(events):
        if one["action"] == "alloc":
            held += one["size"]
        elif one["action"] == "free_requested":
            held -= one["size"]
        if held > most:
            most, at = held, number
    return most, at


def held_at(events: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    """Blocks that were made in a history and are there still after an event."""
    there: dict[int, dict[str, Any]] = {}
    for one in events[: at + 1]:
        if one["action"] == "alloc":
            there[one["addr"]] = one
        elif one["action"] == "free_requested":
            there.pop(one["addr"], None)
    return list(there.values())


SKIPPED = ("/torch/nn/modules/module.py", "/torch/_ops.py", "/torch/utils/_contextlib.py", "/studies/h200_rehearsals/")
SKIPPED += ("/torch/_dynamo/", "/torch/utils/_device.py", "/torch/overrides.py", "/torch/utils/_python_dispatch.py")


def source(frames: list[dict[str, Any]]) -> str:
    """The three innermost places of Python that say something."""
    found: list[str] = []
    for one in frames:
        file = one.get("filename", "")
        if any(word in file for word in SKIPPED) or not file.endswith(".py"):
            continue
        short = "/".join(file.rsplit("/", 2)[-2:])
        found.append(f"{short}:{one.get('line', 0)} {one.get('name', '')}")
        if len(found) == 3:
            break
    return " < ".join(found) or "no Python"
