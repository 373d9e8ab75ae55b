"""What the host does in a step, counted while it runs once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode


class Dispatched(TorchDispatchMode):
    """Operators by kind: of DTensors, views, collectives, all others (which start a kernel)."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            self.kinds["dtensor"] += 1
            return NotImplemented
        self.kinds[_kind(func)] += 1
        return func(*args, **(kwargs or {}))


def _kind(func: Any) -> str:
    if "c10d" in func.namespace:
        return "collective"
    if "detach" in func.name():
        return "detach"
    returned = func._schema.returns
    aliased = [one for one in returned if one.alias_info is not None and not one.alias_info.is_write]
    if aliased:
        return "view"
    return "empty" if "empty" in func.name() else "launch"


def counted(forward: Callable[[], torch.Tensor]) -> dict[str, Any]:
    """The counts of one step by pass. Profiling calls of Python is a step of its own, in the forward pass alone."""
    modules, calls, passes = 0, Counter[str](), {}

    def enter(*_: Any) -> None:
        nonlocal modules
        modules += 1

    forward().backward()
    hook = register_module_forward_pre_hook(enter)
    with Dispatched() as mode:
        loss = forward()
        passes["forward"] = {**mode.kinds, "module": modules}
        nodes, mode.kinds, modules = _nodes(loss), Counter(), 0
        loss.backward()
        passes["backward"] = {**mode.kinds, "module": modules, "node": sum(nodes.values())}
    hook.remove()

    def event(_: Any, kind: str, __: Any) -> None:
        calls[kind] += 1

    sys.setprofile(event)
    try:
        loss = forward()
    finally:
        sys.setprofile(None)
    loss.backward()
    return {**passes, "nodes": dict(nodes), "python": dict(calls)}


def _nodes(loss: torch.Tensor) -> Counter[str]:
    seen: set[Any] = set()
    waiting: list[Any] = [loss.grad_fn]
    kinds: Counter[str] = Counter()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        kinds[node.name()] += 1
        waiting.extend(before for before, _ in node.next_functions)
    return kinds
