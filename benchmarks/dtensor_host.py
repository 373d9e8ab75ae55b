"""Host time of a decoder layer: plain, with tensor parallelism by DTensor, with FSDP2, with both, eager, on a CPU.

Tensors are tiny, so that nothing but the host's work is left, and a fake process group moves nothing.
Only ratios are of use elsewhere: python benchmarks/dtensor_host.py > samples.jsonl
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore

LAYERS, WIDTH, HEADS, TOKENS, TENSOR, DATA = 4, 32, 8, 4, 8, 8
TURNS, STEPS = 15, 4


class Layer(nn.Module):
    """Attention with rotary positions and a gated feed-forward layer between RMS norms, as Llama has them."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.angle = nn.Buffer(torch.rand(TOKENS, WIDTH // HEADS))

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, -1)
        return x * self.angle.cos() + torch.cat((-right, left), -1) * self.angle.sin()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        q, k, v = (one(y).view(1, TOKENS, self.heads, -1).transpose(1, 2) for one in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(1, TOKENS, -1))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def model(tensor: bool, shares: bool) -> nn.Module:
    mesh = init_device_mesh("cpu", (DATA, TENSOR), mesh_dim_names=("dp", "tp"))
    made = nn.Sequential(*(Layer(1 if tensor else HEADS) for _ in range(LAYERS)))
    for layer in made:
        if tensor:
            ways = dict.fromkeys(("q", "k", "v", "gate", "up"), ColwiseParallel())
            parallelize_module(layer, mesh["tp"], {**ways, "o": RowwiseParallel(), "down": RowwiseParallel()})
        if shares:
            fully_shard(layer, mesh=mesh["dp"])
    if shares:
        fully_shard(made, mesh=mesh["dp"])
    return made


def seconds(step: Callable[[], None]) -> float:
    """Of the process, so that what else runs on a core is not counted."""
    began = time.process_time()
    for _ in range(STEPS):
        step()
    return (time.process_time() - began) / STEPS / LAYERS


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=DATA * TENSOR, store=FakeStore())
    models = {
        "plain": model(False, False),
        "tp": model(True, False),
        "fsdp": model(False, True),
        "both": model(True, True),
    }
    x = torch.rand(1, TOKENS, WIDTH)
    found: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(TURNS + 1):  # the first warms up
        for name, made in models.items():
            found[name].append(seconds(lambda made=made: made(x).sum().backward()))
    for name, each in found.items():
        print(json.dumps({"case": name, "torch": torch.__version__, "layer_seconds": each[1:]}))
    plain = statistics.median(found["plain"][1:])
    for name, each in found.items():
        low, middle, high = statistics.quantiles([one / plain for one in each[1:]], n=4)
        print(json.dumps({"case": name, "over plain": [round(one, 3) for one in (low, middle, high)]}))


if __name__ == "__main__":
    main()
