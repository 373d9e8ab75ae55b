"""Weights in four bits: packed once, made bf16 again by a Triton kernel of this study in each pass that needs them.

The codes are those of Dettmers et al. 2023 (QLoRA, arXiv 2305.14314, appendix E): 64 weights share a largest value,
which is kept in eight bits with a scale for 256 of them (their double quantisation, with evenly spaced values here). It
is **not** bitsandbytes: the bytes it moves are the same, the kernel is our own.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F

CODES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
GROUP, OUTER = 64, 256

try:
    import triton
    import triton.language as tl

    @triton.jit
    def _unpacked(packed, largest, scales, codes, offset, out, count, BLOCK: tl.constexpr):  # noqa: N803
        """Two weights of each byte, the upper four bits first."""
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        byte = tl.load(packed + at, mask=inside, other=0).to(tl.int32)
        group = at // 32
        scale = tl.load(scales + group // 256, mask=inside, other=0.0)
        most = tl.load(largest + group, mask=inside, other=0).to(tl.float32) * scale + offset
        first = tl.load(codes + (byte >> 4)) * most
        second = tl.load(codes + (byte & 15)) * most
        both = tl.interleave(first, second).to(tl.bfloat16)
        where = tl.program_id(0) * (2 * BLOCK) + tl.arange(0, 2 * BLOCK)
        tl.store(out + where, both, mask=where < 2 * count)

except ImportError:
    _unpacked = None


class Packed:
    """A matrix in four bits, and what it takes to unpack it."""

    tables: ClassVar[dict[torch.device, torch.Tensor]] = {}

    def __init__(self, weight: torch.Tensor) -> None:
        self.shape = weight.shape
        self.codes = self.tables.setdefault(weight.device, torch.tensor(CODES, device=weight.device))
        groups = weight.detach().reshape(-1, GROUP).float()
        largest = groups.abs().amax(1)
        self.offset = float(largest.min())
        padded = F.pad(largest - self.offset, (0, -len(largest) % OUTER)).view(-1, OUTER)
        self.scales = (padded.amax(1) / 255).clamp(min=1e-12)
        self.largest = (padded / self.scales[:, None]).round().to(torch.uint8).flatten()[: len(largest)].contiguous()
        middles = (self.codes[1:] + self.codes[:-1]) / 2
        nearest = torch.bucketize(groups / largest.clamp(min=1e-12)[:, None], middles, out_int32=True).to(torch.uint8)
        nearest = nearest.view(-1, 2)
        self.bytes = (nearest[:, 0] << 4 | nearest[:, 1]).contiguous()

    def plain(self) -> torch.Tensor:
        """Unpacked by PyTorch alone: what the kernel is compared with."""
        nearest = torch.stack((self.bytes >> 4, self.bytes & 15), 1).long().view(-1, GROUP)
        most = self.largest.float() * self.scales.repeat_interleave(OUTER)[: len(self.largest)] + self.offset
        return (self.codes[nearest] * most[:, None]).bfloat16().view(self.shape)

    def unpacked(self) -> torch.Tensor:
        if self.bytes.device.type != "cuda":
            return self.plain()
        out = torch.empty(self.shape, dtype=torch.bfloat16, device=self.bytes.device)
        count = self.bytes.numel()
        block = 1024
        _unpacked[(-(-count // block),)](
            self.bytes, self.largest, self.scales, self.codes, self.offset, out, count, BLOCK=block, num_warps=4
        )
        return out


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.packed, ctx.kind = packed, x.dtype
        added = None if bias is None else bias.bfloat16()
        return F.linear(x.bfloat16(), packed.unpacked(), added).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return (dy.bfloat16() @ ctx.packed.unpacked()).to(ctx.kind), None, None


class Nf4Linear(torch.nn.Linear):
    """A frozen dense layer in four bits; its `weight` is an empty stand-in that PEFT reads the device and type of."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.packed = Packed(layer.weight)
        self.weight = torch.nn.Parameter(layer.weight.detach()[:0].clone(), requires_grad=False)
        self.bias = layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Product.apply(x, self.packed, self.bias)


def pack(module: torch.nn.Module, kept: tuple[str, ...] = ("lm_head", "score", "classifier")) -> int:
    """Replaces the dense layers of a module, but for its head as bitsandbytes does; how many bytes they take now."""
    held = 0
    for name, child in list(module.named_children()):
        if isinstance(child, torch.nn.Linear) and name not in kept:
            layer = Nf4Linear(child)
            setattr(module, name, layer)
            held += sum(
                t.numel() * t.element_size() for t in (layer.packed.bytes, layer.packed.largest, layer.packed.scales)
            )
        else:
            held += pack(child, kept)
    return held
