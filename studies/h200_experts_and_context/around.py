"""Kernels around messages: parts of attention put together, gradients made smaller, rows cast to few bits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from timing import Device, Lines, set_aside

Made = Callable[[], Any]
Row = dict[str, Any]
E4M3 = 448.0


def _compiled(call: Callable[..., Any], device: Device) -> Callable[..., Any]:
    return call if device.tiny else torch.compile(call, dynamic=True)


def _each(lines: Lines, device: Device, end: float, group: str, rows: Iterator[tuple[str, Row, Made]]) -> None:
    """Times every call by its name, until the group's time is over."""
    for name, told, call in rows:
        if lines.spent() > end:
            return
        identity = f"{group} {name} " + " ".join(map(str, told.values()))
        lines.case(
            {"group": group, "id": identity, "set_aside": set_aside(identity), "op": name, **told},
            device,
            lambda call=call: call,
        )
    device.free()


# parts of attention, as PyTorch's context parallelism puts them together


def _merge(
    out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, parts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    wide, logs = part.float(), parts.float()
    return out - F.sigmoid(logs - lse) * (out - wide), lse - F.logsigmoid(lse - logs)


def _half(whole: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """The second half of the positions replaced."""
    return torch.cat([whole.chunk(2, 2)[0], new], 2)


def _laid(key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.cat([key.flatten(), value.flatten()])


def _merges(device: Device) -> Iterator[tuple[str, Row, Made]]:
    fused = _compiled(_merge, device)
    for tokens, heads in ((4096, 8), (8192, 16), (8192, 32), (16384, 16), (32768, 8), (32768, 16), (65536, 8)):
        size = 64 if device.tiny else tokens
        told: Row = {"tokens": size, "heads": heads, "numbers": size * heads * 128}
        out, lse = (
            device.rand(1, heads, size, 128, dtype=torch.float32),
            device.rand(1, heads, size, 1, dtype=torch.float32),
        )
        part, parts = device.rand(1, heads, size, 128), device.rand(1, heads, size, 1, dtype=torch.float32)
        half = part.chunk(2, 2)[1].contiguous()
        yield "merge", told, lambda a=out, b=lse, c=part, d=parts: _merge(a, b, c, d)
        yield (
            "merge half",
            told,
            lambda a=out, b=lse, c=half, d=parts: _half(
                a, _merge(a.chunk(2, 2)[1], b.chunk(2, 2)[1], c, d.chunk(2, 2)[1])[0]
            ),
        )
        yield "merge compiled", told, lambda a=out, b=lse, c=part, d=parts: fused(a, b, c, d)
        yield "lay keys", told, lambda c=part: _laid(c, c)
        yield "add gradient", told, lambda a=out, c=part: a.add_(c)
        yield "add half", told, lambda a=out, c=half: _half(a, a.chunk(2, 2)[1] + c)


# gradients on their way


def _int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax() / 127
    return (x / scale).round().to(torch.int8), scale


def _signs(x: torch.Tensor) -> torch.Tensor:
    bits = (x >= 0).view(-1, 8).to(torch.uint8)
    return (bits << torch.arange(8, device=x.device, dtype=torch.uint8)).sum(1, dtype=torch.uint8)


def _levels(x: torch.Tensor, levels: int) -> torch.Tensor:
    scaled = x.abs() * (levels / x.norm())
    low = scaled.floor()
    return ((low + (torch.rand_like(x) < scaled - low)) * x.sign()).to(torch.int8)


def _sparse(x: torch.Tensor, kept: float) -> tuple[torch.Tensor, torch.Tensor]:
    found = x.abs().topk(math.ceil(kept * x.numel()), sorted=False).indices
    return x[found], found.to(torch.int32)


def _thin(matrix: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    left = torch.linalg.qr(matrix @ right).Q
    return left, matrix.T @ left


def _compressions(device: Device) -> Iterator[tuple[str, Row, Made]]:
    sides = [(1024, 1024), (4096, 1024), (4096, 4096), (8192, 4096), (11008, 4096), (16384, 8192), (5120, 25600)]
    random.Random(33).shuffle(sides)
    for rows, columns in sides:
        if device.tiny:
            rows, columns = 64, 32
        x = device.rand(rows, columns, dtype=torch.float32)
        flat, told = x.flatten(), {"rows": rows, "columns": columns}
        owed = torch.zeros_like(flat)
        yield "fp16", told, lambda x=flat: x.half()
        short = flat.half()
        yield "fp16 read", told, lambda x=short: x.float()
        yield "int8", told, lambda x=flat: _int8(x)
        small, scale = _int8(flat)
        yield "int8 read", told, lambda x=small, scale=scale: x.float() * scale
        yield "1bit", told, lambda x=flat, owed=owed: (_signs(x + owed), (x + owed).abs().mean())
        yield "qsgd", told, lambda x=flat: _levels(x, 127)
        yield "owe", told, lambda x=flat, owed=owed: torch.sub(x, owed)
        for kept in (0.001, 0.01):
            sparse = _sparse(flat, kept)
            yield "topk", {**told, "kept": kept}, lambda x=flat, kept=kept: _sparse(x, kept)
            yield (
                "topk read",
                {**told, "kept": kept},
                lambda x=flat, s=sparse: torch.zeros_like(x).index_add_(0, s[1].long(), s[0]),
            )
        for rank in (2, 4, 16):
            right = device.rand(columns, rank, dtype=torch.float32)
            left = device.rand(rows, rank, dtype=torch.float32)
            yield "powersgd", {**told, "rank": rank}, lambda x=x, right=right: _thin(x, right)
            yield "powersgd qr", {**told, "rank": rank}, lambda left=left: torch.linalg.qr(left).Q
            yield "powersgd read", {**told, "rank": rank}, lambda left=left, right=right: left @ right.T


# rows cast to few bits


def _by_tensor(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = E4M3 / x.abs().amax().float()
    return (x.float() * scale).to(torch.float8_e4m3fn), scale


def _by_block(x: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    blocks = x.float().unflatten(-1, (-1, size))
    scale = E4M3 / blocks.abs().amax(-1, keepdim=True).clamp(min=1e-12)
    return (blocks * scale).to(torch.float8_e4m3fn).flatten(-2), scale


def _by_squares(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    squares = x.float().unflatten(1, (-1, 128)).unflatten(0, (-1, 128))
    scale = E4M3 / squares.abs().amax((1, 3), keepdim=True).clamp(min=1e-12)
    return (squares * scale).to(torch.float8_e4m3fn).flatten(0, 1).flatten(1), scale


def _mx(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    blocks = x.float().unflatten(-1, (-1, 32))
    power = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30).log2().floor() - 8
    return (blocks * torch.exp2(-power)).clamp(-E4M3, E4M3).to(torch.float8_e4m3fn).flatten(-2), (power + 127).to(
        torch.uint8
    )


def _casts(device: Device) -> Iterator[tuple[str, Row, Made]]:
    kinds: dict[str, Callable[[torch.Tensor], Any]] = {
        "tensor": _by_tensor, "rows of 128": lambda x: _by_block(x, 128), "squares of 128": _by_squares, "mx": _mx,
        "tensor and turned": lambda x: (_by_tensor(x)[0], _by_tensor(x.t().contiguous())[0]),
        "mx and turned": lambda x: (_mx(x), _mx(x.t().contiguous())),
    }  # fmt: skip
    for name, kind in kinds.items():
        call = _compiled(kind, device)
        for rows, columns in ((2048, 4096), (8192, 4096), (8192, 16384), (32768, 7168)):
            if device.tiny:
                rows, columns = 256, 256
            x = device.rand(rows, columns)
            yield name, {"rows": rows, "columns": columns}, lambda x=x, call=call: call(x)


def merges(lines: Lines, device: Device, end: float) -> None:
    _each(lines, device, end, "merges", _merges(device))


def compression(lines: Lines, device: Device, end: float) -> None:
    _each(lines, device, end, "compression", _compressions(device))


def casts(lines: Lines, device: Device, end: float) -> None:
    _each(lines, device, end, "compiled casts", _casts(device))
