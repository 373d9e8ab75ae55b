"""Attention over long contexts: squares, pieces of a ring, and packed documents."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from timing import Call, Device, Lines, set_aside
from torch.nn.attention import SDPBackend, sdpa_kernel

LENGTHS = tuple(4096 * 2**power for power in range(8))
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}
AIM, MOST = 6e12, 8e13
"""Flops of a call forward that heads are chosen for, and above which a case is left out."""
Row = dict[str, Any]


def flops(row: Row) -> float:
    return 4.0 * row["batch"] * row["heads"] * row["query"] * row["key"] * row["size"] * (0.5 if row["causal"] else 1.0)


def heads_for(query: int, key: int, size: int, causal: bool, group: int) -> int:
    """As many heads as keep a call near the aim, in whole groups; 32 at most."""
    one = 4.0 * query * key * size * (0.5 if causal else 1.0)
    return max(group, min(32, 2 ** max(0, int(AIM / one).bit_length() - 1) // group * group))


def squares() -> Iterator[Row]:
    for length in LENGTHS:
        for size in (64, 128, 256):
            for causal in (True, False):
                for group in (1, 4, 8):
                    if group != 1 and size == 64 and not causal:
                        continue
                    heads = heads_for(length, length, size, causal, group)
                    yield {"form": "square", "query": length, "key": length, "size": size, "causal": causal} | {
                        "heads": heads, "kv_heads": heads // group, "batch": 1}  # fmt: skip
    for batch, length, heads in (
        (1, 4096, 8),
        (1, 4096, 64),
        (4, 4096, 32),
        (2, 8192, 16),
        (1, 8192, 64),
        (1, 8192, 4),
    ):
        yield {"form": "square", "query": length, "key": length, "size": 128, "causal": True} | {
            "heads": heads, "kv_heads": heads, "batch": batch}  # fmt: skip


def pieces() -> Iterator[Row]:
    """What a rank of a ring multiplies: its queries with another's keys, halves of them where the ring is balanced."""
    for query, key in (
        (2048, 4096), (4096, 2048), (4096, 8192), (8192, 4096), (8192, 16384), (16384, 8192), (32768, 16384),
        (16384, 32768), (2048, 16384), (2048, 65536), (8192, 65536), (8192, 131072), (16384, 131072), (65536, 8192),
    ):  # fmt: skip
        for size, group in ((128, 1), (128, 4), (64, 1)):
            heads = max(group, min(32, heads_for(query, key, size, False, group)))
            yield {"form": "piece", "query": query, "key": key, "size": size, "causal": False} | {
                "heads": heads, "kv_heads": heads // group, "batch": 1}  # fmt: skip


def packed() -> Iterator[Row]:
    """Documents of one mean length side by side, drawn, told to the kernel by where they begin."""
    for length in (8192, 32768, 131072):
        for mean in (512, 2048, 8192):
            for size in (64, 128):
                yield {"form": "documents", "query": length, "key": length, "mean": mean, "size": size} | {
                    "heads": 16, "kv_heads": 16, "batch": 1, "causal": True}  # fmt: skip


def documents(length: int, mean: int, chance: random.Random) -> list[int]:
    lengths: list[int] = []
    while sum(lengths) < length:
        lengths.append(min(length - sum(lengths), max(16, round(chance.expovariate(1 / mean)))))
    return lengths


def smaller(row: Row, device: Device) -> Row:
    """A row to try the script with on a processor."""
    if not device.tiny:
        return row
    key = 128 if row["form"] == "piece" else 64
    return {**row, "query": 64, "key": key, "mean": 16, "heads": 2 * row["heads"] // row["kv_heads"], "kv_heads": 2}


def dense(row: Row, backend: str, device: Device) -> Callable[[], tuple[Call, Call]]:
    """Calls of both passes; the backward pass through autograd."""

    def make() -> tuple[Call, Call]:
        shape = row["batch"], row["heads"], row["query"], row["size"]
        of_keys = row["batch"], row["kv_heads"], row["key"], row["size"]
        q, k, v = (device.rand(*size).requires_grad_() for size in (shape, of_keys, of_keys))
        grouped = row["heads"] != row["kv_heads"]

        def forward() -> torch.Tensor:
            with sdpa_kernel(BACKENDS[backend]):
                return F.scaled_dot_product_attention(q, k, v, is_causal=row["causal"], enable_gqa=grouped)

        y = forward()
        dy = torch.randn_like(y)
        return forward, lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)

    return make


def ragged(row: Row, device: Device) -> Callable[[], tuple[Call, Call]]:
    def make() -> tuple[Call, Call]:
        shape = row["query"], row["heads"], row["size"]
        q, k, v = (device.rand(*shape).requires_grad_() for _ in range(3))
        ends = torch.tensor([0, *row["documents"]], device=device.kind).cumsum(0).to(torch.int32)
        most = max(row["documents"])

        def forward() -> torch.Tensor:
            return torch.ops.aten._flash_attention_forward(q, k, v, ends, ends, most, most, 0.0, True, False)[0]

        y = forward()
        dy = torch.randn_like(y)
        return forward, lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)

    return make


def both(lines: Lines, told: Row, device: Device, make: Callable[[], tuple[Call, Call]]) -> None:
    _both(lines, told, device, make)
    device.free()


def _both(lines: Lines, told: Row, device: Device, make: Callable[[], tuple[Call, Call]]) -> None:
    try:
        forward, backward = make()
    except Exception as problem:
        lines.write({**told, "part": "forward", "failed": f"{type(problem).__name__}: {problem}"[:300]})
        return

    def without_graph() -> Any:
        with torch.no_grad():
            return forward()

    if lines.case({**told, "part": "forward"}, device, lambda: without_graph):
        lines.case({**told, "part": "backward"}, device, lambda: backward)


def attention(lines: Lines, device: Device, end: float) -> None:
    chance = random.Random(31)
    longest = [row for row in squares() if row["query"] >= 262144 and (row["size"] != 128 or row["kv_heads"] > 1)]
    rows = [row for row in [*squares(), *pieces(), *packed()] if flops(row) <= MOST and row not in longest]
    chance.shuffle(rows)
    longest = chance.sample([row for row in longest if flops(row) <= MOST], 3)
    rows[20:20] = [row for row in rows if row["query"] == 524288][:2] + longest  # a few of the longest whatever happens
    seen: list[Row] = []
    for row in rows:
        if row in seen:
            continue
        seen.append(row)
        keys = ("form", "query", "key", "size", "causal", "heads", "kv_heads", "batch")
        identity = "attention " + " ".join(str(row[key]) for key in keys) + f" {row.get('mean', '')}"
        told = {"group": "attention", "id": identity, "set_aside": set_aside(identity), **smaller(row, device)}
        if row["form"] == "documents":
            told["documents"] = documents(told["query"], told["mean"], chance)
            if lines.spent() < end:
                both(lines, {**told, "backend": "flash"}, device, ragged(told, device))
            continue
        for backend in ("math",) if device.tiny else ("flash", "cudnn"):
            if lines.spent() > end:
                return
            both(lines, {**told, "backend": backend}, device, dense(told, backend, device))


def flexible(lines: Lines, device: Device, end: float) -> None:
    """FlexAttention over documents: compiled once a shape, as long as that takes seconds."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = flex_attention if device.tiny else torch.compile(flex_attention, dynamic=False)
    chance = random.Random(32)
    for length, mean, size, heads, kv_heads in (
        (8192, 1024, 128, 32, 8), (32768, 4096, 128, 16, 4), (32768, 1024, 64, 16, 16), (8192, 8192, 128, 32, 8),
    ):  # fmt: skip
        if lines.spent() > end:
            return
        length = 128 if device.tiny else length
        told: Row = {
            "group": "attention",
            "form": "documents",
            "query": length,
            "key": length,
            "mean": mean,
            "batch": 1,
        }
        told |= {"size": size, "heads": heads, "kv_heads": kv_heads, "causal": True, "backend": "flex"}
        told["documents"] = documents(length, mean, chance)
        identity = f"flex {length} {mean} {size} {heads} {kv_heads}"
        told |= {"id": identity, "set_aside": set_aside(identity)}

        def make(told: Row = told) -> tuple[Call, Call]:
            lengths = torch.tensor(told["documents"])
            of = torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(device.kind)

            def allowed(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
                return (query >= key) & (of[query] == of[key])

            began = time.perf_counter()
            mask = create_block_mask(allowed, None, None, told["query"], told["key"], device=device.kind)
            shape = 1, told["heads"], told["query"], told["size"]
            of_keys = 1, told["kv_heads"], told["query"], told["size"]
            q, k, v = (device.rand(*size).requires_grad_(not device.tiny) for size in (shape, of_keys, of_keys))

            def forward() -> torch.Tensor:
                return compiled(q, k, v, block_mask=mask, enable_gqa=True)

            y = forward()
            dy = torch.randn_like(y)
            device.wait()
            told["compiling_seconds"] = round(time.perf_counter() - began, 2)
            return forward, lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)

        both(lines, told, device, make)
