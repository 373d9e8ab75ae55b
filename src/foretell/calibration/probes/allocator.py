# pyright: basic
"""What memory costs beside tensors: what the allocator reserves over them, and the device's context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from foretell import modules
from foretell.calibration.case import Case, Scope
from foretell.cost.samples import FigureSample

SUMMARY = "the allocator"

MODEL = "gpt2:layers=6,hidden=768,heads=12,seq=512"
BATCH = 8


def cases(scope: Scope) -> Iterator[Case]:
    if scope.device == "cpu":  # tensors come from the host's memory, and go back to it
        yield Case(FigureSample(name="context", unit="B"), lambda clock: [0.0])
        yield Case(FigureSample(name="reserved"), lambda clock: [1.0])
    else:
        yield Case(FigureSample(name="reserved"), lambda clock: [_reserved(scope)])
        yield Case(FigureSample(name="context", unit="B"), lambda clock: _context())


def _reserved(scope: Scope) -> float:
    """What is reserved over what is allocated, at the fullest moment of some training steps."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    module = modules.build(MODEL).to(scope.device)
    rule = torch.optim.AdamW(module.parameters())
    example = modules.example(MODEL, BATCH)
    inputs, target = tuple(x.to(scope.device) for x in example.inputs), example.target.to(scope.device)
    for _ in range(3):
        rule.zero_grad()
        example.loss(module(*inputs), target).backward()
        rule.step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_reserved() / torch.cuda.max_memory_allocated()


def _context() -> Sequence[float]:
    """What the device reports as used, over what the allocator reserved: true where nobody else uses it."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return [float(total - free - torch.cuda.memory_reserved())]
