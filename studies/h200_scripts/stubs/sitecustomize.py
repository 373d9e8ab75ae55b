"""Empty modules for what a trainer imports and a rehearsal has no use for, where it is not installed.

Python imports this by itself from PYTHONPATH, so that the training script stays as it is.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from typing import Any

UNUSED = ("tensorboard", "wandb", "torchao", "grouped_gemm")


class Nothing:
    """Stands for a class, a decorator or a function that nobody calls."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __call__(self, *found: Any, **_: Any) -> Any:
        return found[0] if found else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Anything(types.ModuleType):
    """A module that has whatever is asked of it, and in which there is nothing."""

    __path__: list[str] = []  # noqa: RUF012 (a module's own)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Nothing,), {}) if name[0].isupper() else Nothing()


class Finder:
    """Finds them, after all others found nothing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        wanted = name.partition(".")[0] in UNUSED
        return importlib.machinery.ModuleSpec(name, self) if wanted else None  # pyright: ignore[reportArgumentType]

    def create_module(self, spec: Any) -> types.ModuleType:
        return Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


if os.environ.get("TRAINER") == "torchtitan":  # others look what is there, and do without
    sys.meta_path.append(Finder())  # pyright: ignore[reportArgumentType]
    sys.modules["torch.utils.tensorboard"] = Anything("torch.utils.tensorboard")
