# pyright: basic
"""Modules that timm and torchvision build by name, with an image and a loss to trace them with."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional as F

from foretell.errors import MissingExtra, unknown
from foretell.model.importers.packages import PACKAGES, PackageModel

IMAGE = 224
"""The image of models that do not say theirs (torchvision's)."""

CLASSES = 1000
"""ImageNet's, whatever a model's usual weights were trained for."""


def factory(model: PackageModel) -> tuple[Callable[[int], Any], ModuleType]:
    """A factory of the model, and the package that it is of."""
    package = {"timm": _timm, "torchvision": _torchvision}[model.package]()

    def build(batch: int) -> Any:
        module, image = {"timm": _built_by_timm, "torchvision": _built_by_torchvision}[model.package](package, model)
        return module, (torch.zeros(batch, 3, image, image),), _loss

    return build, package


def _loss(output: Any) -> torch.Tensor:
    """Cross-entropy of classes; Inception gives its second head besides, which has no share here."""
    scores = output if isinstance(output, torch.Tensor) else output[0]
    return F.cross_entropy(scores, torch.zeros(scores.shape[0], dtype=torch.int64))


def _built_by_timm(timm: Any, model: PackageModel) -> tuple[torch.nn.Module, int]:
    timm.layers.set_fused_attn(model.attention == "flash")
    if not timm.is_model(model.name):
        raise unknown("model of timm", model.name, timm.list_models())
    module = timm.create_model(model.name, pretrained=False, num_classes=CLASSES)
    usual = module.pretrained_cfg.get("input_size", (3, IMAGE, IMAGE))[-1]
    if model.image in (0, usual):
        return module, usual
    try:  # those that have a place for every patch are built for one size
        return timm.create_model(model.name, False, num_classes=CLASSES, img_size=model.image), model.image
    except TypeError:
        return module, model.image


def _built_by_torchvision(torchvision: Any, model: PackageModel) -> tuple[torch.nn.Module, int]:
    known = torchvision.models.list_models(module=torchvision.models)
    if model.name not in known:
        raise unknown("model of torchvision", model.name, known)
    kwargs = {"init_weights": False} if model.name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(model.name, weights=None, **kwargs), model.image or IMAGE


def _torchvision() -> ModuleType:
    try:
        return importlib.import_module("torchvision")
    except Exception as problem:
        what = f"torchvision cannot be imported: {problem}"
        raise MissingExtra(what, fix=f"{PACKAGES['torchvision']}, of the build that is made for this torch") from None


def _timm() -> ModuleType:
    """timm; its models need torchvision for nothing that is run here, so one that is missing is stood in for.

    torchvision's usual wheel does not load beside a CPU build of torch.
    """
    try:
        importlib.import_module("torchvision")
    except Exception:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.meta_path.insert(0, _StandIn())
    return importlib.import_module("timm")


class _Anything(type):
    """The type of names of torchvision: classes whose attributes are their own names."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _StandIn(MetaPathFinder, Loader):
    """Finds torchvision and all that is in it: names to import, nothing to call."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] == "torchvision" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = _named  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def _named(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Anything(name, (), {})
