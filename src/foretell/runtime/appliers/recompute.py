# pyright: basic
"""Recompute: attention, layers, or whole stages run again in the backward pass (`torch.utils.checkpoint`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from foretell.model import zoo
from foretell.model.zoo.deepseek import DeepSeek
from foretell.model.zoo.gpt import Gpt
from foretell.model.zoo.llama import Llama
from foretell.model.zoo.mixture import Mixture
from foretell.modules._decoder import Kernel, attended
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.runtime.appliers._attention import ByHeads, RingAttention
from foretell.runtime.subject import Subject

ORDER = 30


def refusals(part: Recompute, setting: Setting) -> Iterator[tuple[str, str]]:
    name, data = setting.graph.name, setting.plan.axis(Data)
    if part.granularity == "attention":
        fields = zoo.parse(name)[1] if name.partition(":")[0] in zoo.names() else None
        if not isinstance(fields, Llama | Gpt | Mixture | DeepSeek):
            why = "+recompute:attention runs in llama, mixture, deepseek and gpt modules today"
            yield why, "+recompute:block or +recompute:full"
    if part.every and data is not None and data.storage in ("zero2", "zero3"):
        why = f"+recompute:every{part.every} beside {data.storage} does not run: FSDP2 gathers the weights of one layer"
        yield why, "+recompute:block or +recompute:full"


def apply(part: Recompute, subject: Subject) -> None:
    for own in subject.parts:
        layers = [layer for _, layer in subject.layers(own)]
        if part.granularity == "attention":
            _attention(own)
        elif part.granularity == "full":
            _again([own])
        else:
            for together in _in_rows(layers, part.every or 1):
                _again(together)


def _in_rows(layers: list[nn.Module], count: int) -> Iterator[list[nn.Module]]:
    for at in range(0, len(layers), count):
        yield layers[at : at + count]


def _again(together: list[nn.Module]) -> None:
    """Modules that follow each other, whose first input alone is kept: the first of them runs all."""
    forwards = [module.forward for module in together]
    together[0].forward = functools.partial(checkpoint, functools.partial(_through, forwards), use_reentrant=False)
    for module in together[1:]:
        module.forward = _passed


def _through(forwards: list[Callable[..., Any]], *inputs: Any, **more: Any) -> Any:
    """What one makes is the first input of the next; the others they share."""
    x = forwards[0](*inputs, **more)
    for forward in forwards[1:]:
        x = forward(x, *inputs[1:], **more)
    return x


def _passed(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _attention(own: nn.Module) -> None:
    """Keep queries, keys and values alone. A ring keeps no more anyway."""
    modules: list[Any] = list(own.modules())
    for module in modules:
        kernel = getattr(module, "kernel", None)
        if isinstance(kernel, ByHeads):
            module.kernel = kernel._replace(inside=functools.partial(_recomputed, kernel.inside))
        elif isinstance(kernel, str):
            module.kernel = functools.partial(_recomputed, functools.partial(attended, kernel))
        else:
            assert kernel is None or isinstance(kernel, RingAttention)


def _recomputed(kernel: Kernel, *inputs: Any) -> Any:
    return checkpoint(kernel, *inputs, use_reentrant=False)
