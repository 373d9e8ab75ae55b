# pyright: basic
"""Context parallelism: every rank has some places of each sequence. Attention alone looks at others."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from foretell.model import zoo
from foretell.model.attention import attention_kernel
from foretell.model.zoo.deepseek import DeepSeek
from foretell.model.zoo.gpt import Gpt
from foretell.model.zoo.llama import Llama
from foretell.model.zoo.mixture import Mixture
from foretell.modules._rotary import Angles, RotaryTable
from foretell.modules.deepseek import LatentAttention
from foretell.modules.gpt import FusedAttention
from foretell.modules.llama import GroupedQueryAttention
from foretell.plan.plan import axis_text
from foretell.plan.setting import Setting
from foretell.plan.strategies.context import Context
from foretell.runtime.appliers._attention import ByHeads, RingAttention
from foretell.runtime.appliers._whole import undivided
from foretell.runtime.subject import Subject
from foretell.runtime.tasks import Batch

ORDER = 8

KERNELS: dict[str, Any] = {"ring": RingAttention, "alltoall": ByHeads}

PLACES = 1
"""The dim of tokens [sample, place], and of their targets."""


def refusals(part: Context, setting: Setting) -> Iterator[tuple[str, str]]:
    """Read from the name of the model: its module is not there yet."""
    said, name = axis_text(part), setting.graph.name
    fields: Any = zoo.parse(name)[1] if name.partition(":")[0] in zoo.names() else None
    if not isinstance(fields, Llama | Gpt | Mixture | DeepSeek):
        yield f"{said}: of all modules, llama, mixture, deepseek and gpt ones run in shares today", "dp, or these"
        return
    if whole := undivided(fields):
        yield f"{said}: {whole} not run in shares yet", "dp, or pp"
    if getattr(fields, "positions", "") == "alibi":
        yield f"{said}: a bias on the scores does not run in shares yet", f"{name} with other positions"
    if not attention_kernel(fields.attention).rotates:
        yield f"{said}: {fields.attention} attention does not run in shares yet", "attention=flash"
    window: int = getattr(fields, "window", 0)
    if 0 < window < fields.seq:
        why = f"{said}: a window of {window} in a sequence of {fields.seq} does not run in shares yet"
        yield why, "window=0"
    if getattr(fields, "dropout", 0.0):
        yield f"{said}: dropout of scores does not run in shares yet", "dropout=0"


def apply(part: Context, subject: Subject) -> None:
    group, place = subject.mesh.group("cp"), subject.mesh.place("cp")
    share = functools.partial(_share, place, part.ranks)
    first = place * (subject.sample.inputs[0].shape[PLACES] // part.ranks)
    subject.shares.append(share)
    subject.sample = share(subject.sample)
    subject.alike.append("cp")
    for own in subject.parts:
        for name, module in own.named_modules():
            if isinstance(module, GroupedQueryAttention | FusedAttention | LatentAttention):
                module.kernel = KERNELS[part.exchange](group)
            elif isinstance(module, RotaryTable):
                module.forward = functools.partial(_turned_from, module, first)
            elif name == "position":
                module.forward = functools.partial(_looked_up_from, module.forward, first)


def _share(place: int, ranks: int, batch: Batch) -> Batch:
    def own(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.chunk(ranks, PLACES)[place].contiguous()

    return Batch(tuple(map(own, batch.inputs)), own(batch.target))


def _turned_from(module: Any, first: int, sequence: int) -> Angles:
    """The angles of this rank's places."""
    return module.cos[first : first + sequence], module.sin[first : first + sequence]


def _looked_up_from(inner: Any, first: int, places: torch.Tensor) -> torch.Tensor:
    return inner(places + first)
