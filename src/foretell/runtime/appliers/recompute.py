# pyright: basic
"""Recompute: layers, or whole stages, run again in the backward pass (`torch.utils.checkpoint`)."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from torch import nn
from torch.utils.checkpoint import checkpoint

from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.runtime.subject import Subject

ORDER = 30


def refusals(part: Recompute, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.granularity not in ("none", "block", "full") or part.every:
        yield (
            f"+recompute:{part.granularity if not part.every else f'every{part.every}'} does not run yet",
            "+recompute:block or +recompute:full",
        )


def apply(part: Recompute, subject: Subject) -> None:
    for own in subject.parts:
        again = [own] if part.granularity == "full" else [layer for _, layer in subject.layers(own)]
        for module in again:
            _recompute(module)


def _recompute(module: nn.Module) -> None:
    """The module with the same names and weights, whose inputs alone are kept."""
    module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
