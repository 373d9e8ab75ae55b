# pyright: basic
"""Bytes that tensors hold at the fullest moment, where no allocator counts them: on a processor."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class HeldStorages(TorchDispatchMode):
    """Counts storages from the operator that made them until nobody has them."""

    def __init__(self, before: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive: dict[int, int] = {}
        for tensor in before:
            self._count(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf)
        return found

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        name = storage._cdata
        if name in self._alive:
            return
        self._alive[name] = storage.nbytes()
        self.now += self._alive[name]
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, name)

    def _gone(self, name: int) -> None:
        self.now -= self._alive.pop(name, 0)
