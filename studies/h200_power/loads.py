"""What the card is kept busy with: each load with the flops and the bytes of one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F


class Load(NamedTuple):
    """One call of a load; `busy` is the share of the time that it may run."""

    kind: str
    make: Callable[[], tuple[Callable[[], Any], float, float]]
    """The call, its flops, and the bytes that it must read and write."""
    busy: float = 1.0
    precision: str = "bf16"
    data: str = "random"


KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}


def product(rows: int, ins: int, outs: int, precision: str = "bf16", data: str = "random", busy: float = 1.0) -> Load:
    def make() -> tuple[Callable[[], Any], float, float]:
        flops = 2.0 * rows * ins * outs
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        fill = torch.randn if data == "random" else torch.zeros
        if precision == "fp8":
            x = fill(rows, ins, device="cuda").to(torch.float8_e4m3fn)
            w = fill(outs, ins, device="cuda").to(torch.float8_e4m3fn).t()
            whole = torch.ones((), device="cuda")
            moved = rows * ins + ins * outs + 2.0 * rows * outs
            return lambda: torch._scaled_mm(x, w, whole, whole, out_dtype=torch.bfloat16), flops, moved
        x, w = (fill(shape, device="cuda", dtype=KINDS[precision]) for shape in ((rows, ins), (ins, outs)))
        out = torch.empty(rows, outs, device="cuda", dtype=KINDS[precision])
        moved = float(x.element_size() * (rows * ins + ins * outs + rows * outs))
        return lambda: torch.mm(x, w, out=out), flops, moved

    return Load("product", make, busy, precision, data)


def moving(name: str, precision: str = "bf16", busy: float = 1.0, data: str = "random") -> Load:
    """Kernels that memory binds, over 2**28 elements; host copies over 2**26 bytes."""

    def make() -> tuple[Callable[[], Any], float, float]:
        count = 2**28
        kind = KINDS[precision]
        fill = torch.randn if data == "random" else torch.zeros
        x = fill(count, device="cuda", dtype=kind)
        y = torch.empty_like(x)
        size = float(count * x.element_size())
        table = x.view(-1, 4096)
        w = torch.ones(4096, device="cuda", dtype=kind)
        host = torch.empty(2**26, dtype=torch.uint8).pin_memory()
        here = torch.empty(2**26, dtype=torch.uint8, device="cuda")
        calls: dict[str, tuple[Callable[[], Any], float, float]] = {
            "copy": (lambda: y.copy_(x), 0.0, 2 * size),
            "fill": (lambda: y.fill_(1.0), 0.0, size),
            "add": (lambda: torch.add(x, x, out=y), float(count), 2 * size),
            "sum": (lambda: x.sum(), float(count), size),
            "gelu": (lambda: F.gelu(x), 10.0 * count, 2 * size),
            "softmax": (lambda: table.softmax(1), 5.0 * count, 2 * size),
            "layer_norm": (lambda: F.layer_norm(table, (4096,), w, w), 8.0 * count, 2 * size),
            "to_device": (lambda: here.copy_(host, non_blocking=True), 0.0, 2.0**26),
            "tiny_add": (lambda: here[:4096].add_(1), 4096.0, 8192.0),
        }
        return calls[name]

    return Load(name, make, busy, precision, data)


def attention(part: str, length: int, size: int) -> Load:
    def make() -> tuple[Callable[[], Any], float, float]:
        heads = 32
        q, k, v = (
            torch.randn(1, heads, length, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        flops = 2.0 * heads * length * length * size
        moved = 2.0 * 4 * heads * length * size

        def forward() -> torch.Tensor:
            with torch.no_grad():
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        if part == "forward":
            return forward, flops, moved
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        dy = torch.randn_like(y)
        return lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True), 2.5 * flops, 2 * moved

    return Load(f"attention_{part}", make)


def adamw() -> Load:
    def make() -> tuple[Callable[[], Any], float, float]:
        weights = [torch.randn(2**26, device="cuda", requires_grad=True) for _ in range(4)]
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        steps = torch.optim.AdamW(weights, lr=1e-6, fused=True)
        return steps.step, 12.0 * 2**28, 28.0 * 2**28

    return Load("adamw", make, precision="fp32")


def convolution() -> Load:
    def make() -> tuple[Callable[[], Any], float, float]:
        last = torch.channels_last
        x = torch.randn(256, 256, 28, 28, device="cuda", dtype=torch.bfloat16).to(memory_format=last)
        w = torch.randn(256, 256, 3, 3, device="cuda", dtype=torch.bfloat16).to(memory_format=last)
        moved = 2.0 * (2 * x.numel() + w.numel())
        return lambda: F.conv2d(x, w, padding=1), 2.0 * x.numel() * 9 * 256, moved

    return Load("convolution", make)


def step(name: str) -> Load:
    """A whole training step in automatic bf16 with fused AdamW: what the sum of kinds is judged on."""

    def make() -> tuple[Callable[[], Any], float, float]:
        with torch.device("cuda"):  # weights are drawn there, which takes a moment instead of seconds
            module, inputs, loss = STEPS[name]()
        module.train()
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-5, fused=True)

        def call() -> None:
            with torch.autocast("cuda", torch.bfloat16):
                value = loss(module, *inputs)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()

        return call, 0.0, 0.0

    return Load(f"step_{name}", make, precision="amp_bf16")


def _resnet() -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
    from torchvision.models import resnet50

    images, labels = torch.randn(256, 3, 224, 224, device="cuda"), torch.randint(1000, (256,), device="cuda")
    return resnet50(), (images, labels), lambda module, x, t: F.cross_entropy(module(x), t)


def _vit() -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
    from torchvision.models import vit_b_16

    images, labels = torch.randn(128, 3, 224, 224, device="cuda"), torch.randint(1000, (128,), device="cuda")
    return vit_b_16(), (images, labels), lambda module, x, t: F.cross_entropy(module(x), t)


def _gpt2(layers: int, hidden: int, heads: int, batch: int) -> Callable[[], tuple[Any, tuple[Any, ...], Any]]:
    def made() -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(n_layer=layers, n_embd=hidden, n_head=heads)
        for rate in ("attn_pdrop", "embd_pdrop", "resid_pdrop"):
            setattr(config, rate, 0.0)
        tokens = torch.randint(50257, (batch, 1024), device="cuda")
        return GPT2LMHeadModel(config), (tokens,), lambda module, ids: module(ids, labels=ids).loss

    return made


STEPS: dict[str, Callable[[], tuple[Any, tuple[Any, ...], Callable[..., Any]]]] = {
    "resnet50": _resnet,
    "vit_b_16": _vit,
    "gpt2": _gpt2(12, 768, 12, 16),
    "gpt2_medium": _gpt2(24, 1024, 16, 8),
}

LOADS: dict[str, Load] = {
    "bf16 8192": product(8192, 8192, 8192),
    "bf16 4096": product(4096, 4096, 4096),
    "bf16 2048": product(2048, 2048, 2048),
    "bf16 16384": product(16384, 16384, 16384),
    "bf16 1024": product(1024, 1024, 1024),
    "bf16 8192 zeros": product(8192, 8192, 8192, data="zeros"),
    "bf16 rows 16": product(16, 16384, 16384),
    "bf16 rows 256": product(256, 16384, 16384),
    "bf16 in 256": product(16384, 256, 16384),
    "fp8 8192": product(8192, 8192, 8192, "fp8"),
    "fp8 4096": product(4096, 4096, 4096, "fp8"),
    "tf32 8192": product(8192, 8192, 8192, "tf32"),
    "fp32 8192": product(8192, 8192, 8192, "fp32"),
    "fp16 8192": product(8192, 8192, 8192, "fp16"),
    "bf16 8192 half": product(8192, 8192, 8192, busy=0.5),
    "bf16 8192 quarter": product(8192, 8192, 8192, busy=0.25),
    "bf16 8192 three quarters": product(8192, 8192, 8192, busy=0.75),
    "copy": moving("copy"),
    "copy zeros": moving("copy", data="zeros"),
    "copy half": moving("copy", busy=0.5),
    "fill": moving("fill"),
    "add bf16": moving("add"),
    "add fp32": moving("add", "fp32"),
    "sum": moving("sum"),
    "gelu": moving("gelu"),
    "softmax": moving("softmax"),
    "layer_norm": moving("layer_norm"),
    "to_device": moving("to_device"),
    "tiny_add": moving("tiny_add"),
    "attention forward 8192": attention("forward", 8192, 128),
    "attention backward 8192": attention("backward", 8192, 128),
    "attention forward 2048": attention("forward", 2048, 64),
    "adamw": adamw(),
    "convolution": convolution(),
    **{f"step {name}": step(name) for name in STEPS},
}
