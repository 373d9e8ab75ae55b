"""What the host does for a message of layers in shares, in launches: python benchmarks/message_host.py

A launch is a layer's forward pass over the launches that the program counts in it. One rank of eight is there; its
messages move nothing (`runtime/rehearsed_world.py`). And what a layer takes more whose operators are each asked whether
they are saved (`+recompute:operators`).
"""

# pyright: basic

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

from foretell.modules import build
from foretell.runtime.appliers import _attention, _sharing
from foretell.runtime.appliers.recompute import _savings
from foretell.runtime.rehearsed_world import RehearsedWorld, begun

MODEL = "llama3-8b:layers=8,hidden=64,heads=4,kv_heads=2,vocab=64,ffn=64,seq=16"
LAYERS, LAUNCHES, TIMES = 8, 22, 200
"""Of the model, and of a layer's forward pass by the program (`foretell program`)."""


def seconds(does: Callable[[], Any]) -> float:
    for _ in range(TIMES // 10):
        does()
    found: list[float] = []
    for _ in range(TIMES):
        begin = time.process_time()
        does()
        found.append(time.process_time() - begin)
    return statistics.median(found)


def model(**how: Any) -> Any:
    """Its layers run again, if somebody says how."""
    found: Any = build(MODEL).float()
    for layer in found.layers if how else ():
        layer.forward = functools.partial(checkpoint, layer.forward, **how)
    return found


def main() -> None:
    torch.set_num_threads(1)
    begun(0, 8)
    RehearsedWorld().enter()
    group, tokens = dist.group.WORLD, torch.randint(64, (1, 16))
    plain, again = model(), model(use_reentrant=False)
    asked = model(use_reentrant=False, context_fn=functools.partial(_savings, set()))
    layer = seconds(lambda: plain(tokens)) / LAYERS
    launch = layer / LAUNCHES
    share = torch.randn(1, 16, 8, requires_grad=True)
    whole = torch.randn(1, 128, 8, requires_grad=True)
    keys = _attention._KeysSeen(torch.randn(1, 2, 16, 8), torch.randn(1, 2, 16, 8))
    timed = {
        "a sum": seconds(lambda: _sharing.Summed.apply(whole, group)),
        "a gather": seconds(lambda: _sharing.Collected.apply(share, 1, group)),
        "a sum in shares": seconds(lambda: _sharing.Scattered.apply(whole, 1, group)),
        "a turn of a ring": seconds(lambda: _attention._passed_on(keys, group)),
        "each launch asked": (seconds(lambda: asked(tokens)) - seconds(lambda: again(tokens))) / LAYERS / LAUNCHES,
    }
    print(f"a launch          {1e6 * launch:6.1f} us, {LAUNCHES} in a layer")
    for name, found in timed.items():
        print(f"{name:17} {1e6 * found:6.1f} us, {found / launch:4.1f} launches")


if __name__ == "__main__":
    main()
