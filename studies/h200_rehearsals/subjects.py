"""What is rehearsed of a case: its modules under its plan, as a function that does one step."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from cases import Case
from torch import nn

from foretell.hardware import catalog
from foretell.runtime import message_prices
from foretell.runtime.rehearsed_world import at_once

Mark = Callable[[str], None]
Step = Callable[[Mark], None]

NOISE = 0.02


def ready() -> None:
    """Import what cases need once, before any of their processes begins."""
    for name in ("foretell.runtime.training", "of_zoo", "of_hugging_face", "of_vision", "of_torchtitan"):
        try:
            importlib.import_module(name)
        except Exception as problem:  # its cases will say so
            print(f"{name}: {problem}", flush=True)


def price(case: Case, tiny: bool) -> tuple[Callable[[Any], float], Mapping[int, Sequence[float]]]:
    """How long messages take, and when others send."""
    if not case.priced:
        return at_once, {}
    cluster = catalog.cluster(case.cluster)
    if case.maker == "zoo":
        known = message_prices.of_rank(case.setting(tiny), cluster, case.rank, "")
        return lambda one: known.seconds(one.kind, one.ranks, one.payload), known.arrivals
    known = message_prices.on_links(cluster)
    return lambda one: known.seconds(one.kind, one.ranks, one.payload), {}


def built(case: Case, device: str, tiny: bool) -> Step:
    """The step of a case."""
    own = case.small() if tiny else case
    makers = {"zoo": "of_zoo", "hf": "of_hugging_face", "titan": "of_torchtitan", "vision": "of_vision"}
    return importlib.import_module(makers[case.maker]).step(own, case.setting(tiny), device)


def filled(module: nn.Module, device: str) -> nn.Module:
    """Memory and noise for what was built without memory: shares alone, where weights lie in shares."""
    module = module.to_empty(device=device)
    with torch.no_grad():
        for weight in module.parameters():
            own = weight.to_local() if hasattr(weight, "to_local") else weight
            own.normal_(0.0, NOISE) if own.dim() > 1 else own.fill_(1.0)
        for buffer in module.buffers():
            buffer.fill_(NOISE if buffer.is_floating_point() or buffer.is_complex() else 1)
    return module


def optimizer(case: Case, weights: list[nn.Parameter], **more: Any) -> torch.optim.Optimizer:
    if case.optimizer == "momentum":
        return torch.optim.SGD(weights, lr=1e-4, momentum=0.9)
    return torch.optim.AdamW(weights, lr=1e-5, **more)


def axes(case: Case) -> dict[str, Any]:
    """The axes of a plan by their words, of more than one rank."""
    from foretell.plan.text import parse

    return {axis.word: axis for axis in parse(case.plan).axes if axis.world > 1}


def policy(case: Case, word: str) -> str:
    """What the plan says after a word, such as `block` of +recompute:block; empty where it does not say it."""
    for one in case.plan.split():
        if one.startswith(f"+{word}"):
            return one.removeprefix(f"+{word}").removeprefix(":") or "yes"
    return ""


def plain(fields: Any) -> dict[str, Any]:
    return msgspec.structs.asdict(fields)
