"""The pieces that a training step is made of for the host, each by itself.

A piece that can follow itself is run in chains of two lengths, so that what a chain costs whatever its length (the
engine of autograd, the loop) is seen apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from clock import Call
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

WIDTH, ROWS = 128, 16
SHORT, LONG = 1, 17


class Piece(NamedTuple):
    """Something to time. `makes` is called when its turn comes, `count` is how many pieces are in a call."""

    name: str
    part: str
    count: int
    makes: Callable[[], Call]


Op = Callable[[torch.Tensor], torch.Tensor]


def chain(
    name: str, start: Callable[[], torch.Tensor], op: Op, weights: tuple[torch.Tensor, ...] = ()
) -> Iterator[Piece]:
    """Forward without and with autograd, and backward, at two lengths."""

    def run(length: int, x: torch.Tensor) -> torch.Tensor:
        for _ in range(length):
            x = op(x)
        return x

    def forward(length: int, trains: bool) -> Call:
        x = start().requires_grad_(trains)

        def bare() -> torch.Tensor:
            with torch.no_grad():
                return run(length, x)

        return (lambda: run(length, x)) if trains else bare

    def backward(length: int) -> Call:
        x = start().requires_grad_()
        y = run(length, x)
        gradient = torch.ones_like(y).detach()
        return lambda: torch.autograd.grad(y, (x, *weights), gradient, retain_graph=True)

    for length in (SHORT, LONG):
        yield Piece(name, "bare", length, lambda n=length: forward(n, False))
        yield Piece(name, "forward", length, lambda n=length: forward(n, True))
        yield Piece(name, "backward", length, lambda n=length: backward(n))


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.add(1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient.mul(x)


class Empty(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def plain(device: str) -> Iterator[Piece]:
    kind = torch.bfloat16

    def start() -> torch.Tensor:
        return torch.rand(1, ROWS, WIDTH, device=device, dtype=kind)

    def weight(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, device=device, dtype=kind).requires_grad_()

    x, w, square, fours = start(), weight(WIDTH), weight(WIDTH, WIDTH), torch.rand(1, 8, ROWS, 16, device=device)
    fours = fours.to(kind)
    yield from chain("add", start, lambda y: y + x)
    yield from chain("multiply two", start, lambda y: y * w, (w,))
    yield from chain("view", start, lambda y: y.view(1, ROWS, WIDTH))
    yield from chain("transpose", start, lambda y: y.transpose(0, 1))
    yield from chain("silu", start, F.silu)
    yield from chain("softmax", start, lambda y: y.softmax(-1))
    yield from chain("dropout", start, lambda y: F.dropout(y, 0.1))
    yield from chain("cast two", start, lambda y: y.float().to(kind))
    yield from chain("linear", start, lambda y: F.linear(y, square), (square,))
    yield from chain("linear biased", start, lambda y: F.linear(y, square, w), (square, w))
    yield from chain("rms norm", start, lambda y: F.rms_norm(y, (WIDTH,), w), (w,))
    yield from chain("layer norm", start, lambda y: F.layer_norm(y, (WIDTH,), w, w), (w,))
    yield from chain("cat", start, lambda y: torch.cat((y, x))[:1])
    yield from chain("own function", start, Own.apply)
    yield from chain(
        "attention",
        lambda: fours.clone(),
        lambda y: F.scaled_dot_product_attention(y, fours, fours, is_causal=True),
    )
    yield from chain("module", start, Empty().to(device))
    linear = nn.Linear(WIDTH, WIDTH, bias=False, device=device, dtype=kind)
    yield from chain("linear module", start, linear, (linear.weight,))
    hooked, whole, both = Empty(), Empty(), Empty()
    hooked.register_forward_hook(lambda *_: None)
    both.register_forward_hook(lambda *_: None)
    both.register_forward_pre_hook(lambda *_: None)
    whole.register_full_backward_hook(lambda *_: None)
    yield from chain("module hooked", start, hooked)
    yield from chain("module hooked twice", start, both)
    yield from chain("module hooked backward", start, whole)
    yield from chain("checkpoint", start, lambda y: checkpoint(lambda z: z + x, y, use_reentrant=False))
    images = torch.rand(1, 8, 8, 8, device=device, dtype=kind)
    convolution = nn.Conv2d(8, 8, 3, padding=1, bias=False, device=device, dtype=kind)
    norm = nn.BatchNorm2d(8, device=device, dtype=kind)
    yield from chain("convolution", lambda: images.clone(), convolution, (convolution.weight,))
    yield from chain("batch norm", lambda: images.clone(), norm, (norm.weight, norm.bias))
    wide = nn.Linear(WIDTH, WIDTH, bias=False, device=device)

    def autocast(op: Op) -> Op:
        def run(y: torch.Tensor) -> torch.Tensor:
            with torch.autocast(device, torch.bfloat16):
                for _ in range(8):
                    y = op(y)
            return y

        return run

    def single() -> torch.Tensor:
        return torch.rand(1, ROWS, WIDTH, device=device)

    yield from chain("autocast 8 linear", single, autocast(wide), (wide.weight,))
    yield from chain("autocast 8 norm", start, autocast(lambda y: F.layer_norm(y, (WIDTH,)).to(kind)))
    yield from chain("autocast 8 add", single, autocast(lambda y: y + 1))


def others(device: str) -> Iterator[Piece]:
    """What cannot follow itself."""
    table = nn.Embedding(64, WIDTH, device=device)
    tokens = torch.randint(64, (1, ROWS), device=device)
    logits = torch.rand(ROWS, 64, device=device, requires_grad=True)

    def loss() -> None:
        torch.autograd.grad(F.cross_entropy(logits, tokens[0]), logits)

    def embedding() -> None:
        y = table(tokens)
        torch.autograd.grad(y, table.weight, y)

    def python() -> int:
        total = 0
        for place in range(1000):
            total += place
        return total

    yield Piece("embedding", "both", 1, lambda: embedding)
    yield Piece("cross entropy", "both", 1, lambda: loss)
    yield Piece("python loop of 1000", "bare", 1, lambda: python)
    x = torch.rand(4, device=device)
    yield Piece("empty", "bare", 1, lambda: lambda: torch.empty(4, device=device))
    if device == "cuda":
        side, event = torch.cuda.Stream(), torch.cuda.Event()

        def switch() -> None:
            with torch.cuda.stream(side):
                event.record()
            event.wait()

        yield Piece("stream", "bare", 1, lambda: switch)
        yield Piece("nccl all-reduce of one rank", "bare", 1, lambda: _nccl(x))


def _nccl(x: torch.Tensor) -> Call:
    group = dist.ProcessGroupNCCL(dist.HashStore(), 0, 1)
    return lambda: group.allreduce([x]).wait()


def distributed(device: str) -> Iterator[Piece]:
    mesh = init_device_mesh(device, (8, 8), mesh_dim_names=("dp", "tp"))
    tp, kind = mesh["tp"], torch.bfloat16

    def spread(shape: tuple[int, ...], place: Any) -> DTensor:
        return DTensor.from_local(torch.rand(*shape, device=device, dtype=kind), tp, [place], run_check=False)

    def like(shape: tuple[int, ...], place: Any) -> Callable[[], torch.Tensor]:
        return lambda: spread(shape, place)

    full, rows, columns = (1, ROWS, WIDTH), (1, ROWS // 8, WIDTH), (1, ROWS, WIDTH // 8)
    for word, shape, place in (
        ("replicated", full, Replicate()),
        ("rows", rows, Shard(1)),
        ("columns", columns, Shard(2)),
    ):
        x = spread(shape, place)
        yield from chain(f"dtensor add, {word}", like(shape, place), lambda y, x=x: y + x)
        yield from chain(f"dtensor silu, {word}", like(shape, place), F.silu)
        if word != "columns":
            w = spread((WIDTH,), Replicate()).requires_grad_()
            yield from chain(
                f"dtensor norm, {word}", like(shape, place), lambda y, w=w: F.rms_norm(y, (WIDTH,), w), (w,)
            )
    x = spread(columns, Shard(2))
    yield from chain("dtensor multiply, columns", like(columns, Shard(2)), lambda y: y * x)
    yield from chain("dtensor view, columns", like(columns, Shard(2)), lambda y: y.view(1, ROWS, WIDTH))
    yield from chain("dtensor transpose, columns", like(columns, Shard(2)), lambda y: y.transpose(0, 1))
    yield from chain(
        "dtensor local and back",
        like(full, Replicate()),
        lambda y: DTensor.from_local(y.to_local(), tp, [Replicate()], run_check=False),
    )
    yield from chain(
        "dtensor gather and share",
        like(rows, Shard(1)),
        lambda y: y.redistribute(placements=[Replicate()]).redistribute(placements=[Shard(1)]),
    )
    up = spread((WIDTH // 8, WIDTH), Shard(0)).requires_grad_()
    down = spread((WIDTH, WIDTH // 8), Shard(1)).requires_grad_()

    def reduced(y: torch.Tensor, place: Any) -> torch.Tensor:
        return F.linear(F.linear(y, up), down).redistribute(placements=[place])

    yield from chain("dtensor column, row, sum", like(full, Replicate()), lambda y: reduced(y, Replicate()), (up, down))
    yield from chain(
        "dtensor gather, column, row, scatter",
        like(rows, Shard(1)),
        lambda y: reduced(y.redistribute(placements=[Replicate()]), Shard(1)),
        (up, down),
    )
    local = spread(full, Replicate())
    split, partial = spread(columns, Shard(2)), spread(full, Partial())
    with torch.no_grad():
        bare_up, bare_down = up.detach(), down.detach()
    yield Piece("dtensor column", "bare", 1, lambda: lambda: F.linear(local, bare_up))
    yield Piece("dtensor row", "bare", 1, lambda: lambda: F.linear(split, bare_down))
    yield Piece("dtensor sum", "bare", 1, lambda: lambda: partial.redistribute(placements=[Replicate()]))
    yield Piece("dtensor scatter", "bare", 1, lambda: lambda: partial.redistribute(placements=[Shard(1)]))
    yield from _parallel_modules(device, tp)
    for tensors in (1, 8):
        yield from _units(device, mesh, tensors)


def _parallel_modules(device: str, tp: Any) -> Iterator[Piece]:
    def linear(style: Any) -> nn.Module:
        return parallelize_module(nn.Linear(WIDTH, WIDTH, bias=False, device=device, dtype=torch.bfloat16), tp, style)

    def start() -> torch.Tensor:
        return torch.rand(1, ROWS, WIDTH, device=device, dtype=torch.bfloat16)

    x = start()
    column, row = linear(ColwiseParallel()), linear(RowwiseParallel())
    yield from chain("modules column, row", start, lambda y: row(column(y)), (column.weight, row.weight))
    shared = {"desired_input_layouts": (Replicate(),)}
    gather = parallelize_module(Empty(), tp, PrepareModuleInput(input_layouts=(Shard(1),), **shared))
    yield Piece("module input gathered", "bare", 1, lambda: lambda: gather(x))
    norm = parallelize_module(nn.RMSNorm(WIDTH, device=device, dtype=torch.bfloat16), tp, SequenceParallel())
    yield Piece("module norm of rows", "bare", 1, lambda: lambda: norm(x))


class Several(nn.Module):
    def __init__(self, tensors: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.rand(WIDTH) for _ in range(tensors))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = x * weight
        return x


def _units(device: str, mesh: Any, tensors: int) -> Iterator[Piece]:
    """A row of units under fully_shard, and the same one bare."""
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for word in ("bare", "sharded", "sharded mixed"):
        for units in (2, 10):
            made = nn.Sequential(*(Several(tensors) for _ in range(units))).to(device)
            if word != "bare":
                more = {"mp_policy": mixed} if "mixed" in word else {}
                for unit in made:
                    fully_shard(unit, mesh=mesh["dp"], **more)
                fully_shard(made, mesh=mesh["dp"], **more)
            x = torch.rand(ROWS, WIDTH, device=device)

            def both(made: nn.Module = made, x: torch.Tensor = x) -> None:
                made(x).sum().backward()

            yield Piece(f"units of {tensors}, {word}", "both", units, lambda both=both: both)


def optimizers(device: str) -> Iterator[Piece]:
    mesh = init_device_mesh(device, (64,))
    for placed in (False, True):
        for tensors in (8, 64):
            weights = [nn.Parameter(torch.rand(WIDTH, device=device)) for _ in range(tensors)]
            if placed:
                spread = [DTensor.from_local(w.detach(), mesh, [Shard(0)], run_check=False) for w in weights]
                weights = [nn.Parameter(w) for w in spread]
            for weight in weights:
                weight.grad = torch.zeros_like(weight)
            word = "dtensors" if placed else "tensors"
            for name, made in (
                ("adamw fused", torch.optim.AdamW(weights, fused=True)),
                ("adamw lists", torch.optim.AdamW(weights, foreach=True)),
                ("momentum lists", torch.optim.SGD(weights, 1e-3, momentum=0.9, foreach=True)),
                ("adamw one by one", torch.optim.AdamW(weights, foreach=False)),
            ):
                yield Piece(f"{name}, {word}", "bare", tensors, lambda made=made: made.step)
            yield Piece(f"clip, {word}", "bare", tensors, lambda w=weights: lambda: nn.utils.clip_grad_norm_(w, 1.0))
