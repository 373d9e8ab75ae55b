# pyright: basic
"""The real module that a model's text names, with its loss and the shapes of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from foretell import modules
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.modules._further_tokens import further_loss
from foretell.modules.cosmoflow import value_loss
from foretell.modules.task import class_loss, token_loss
from foretell.plan.job import micro_batch
from foretell.plan.policies.precision import FORMATS, Precision
from foretell.plan.setting import Setting
from foretell.runtime.assignment import Assignment
from foretell.runtime.tasks import Batch, Loss
from foretell.runtime.tasks._own import loss as own_loss


class RunnableModel(NamedTuple):
    """How a model is built, what it reads, how it is scored, and how many classes it tells apart (0: unknown)."""

    build: Callable[..., nn.Module]  # on a device, or wherever new tensors go
    like: Batch
    loss: Loss
    classes: int


def model_of(assignment: Assignment, setting: Setting) -> RunnableModel:
    """The model of an assignment, scored by its own loss or by a person's. A rank that is rehearsed, or runs dry, has
    no others to share a batch with: its own samples are all there is."""
    own = micro_batch(setting.job, setting.plan) * setting.plan.microbatches
    samples = own if assignment.rehearsal is not None or assignment.dry else setting.job.batch
    found = model(assignment.model, setting, setting.plan.policy(Precision).name or "fp32", samples)
    return found._replace(loss=own_loss(assignment.loss)) if assignment.loss else found


def model(spec: str, setting: Setting, precision: str, samples: int) -> RunnableModel:
    """The model of a text, for so many samples."""
    name = spec.partition(":")[0]
    if name in zoo.names():
        return _of_zoo(_typed(spec, setting, precision), samples)
    if name.endswith(".py") or "." in name:
        return _of_factory(spec, setting, samples)
    what = f"{spec} has no PyTorch module that could run"
    raise BadInput(what, where="MODEL", fix="a name of `foretell list models`, or file.py:factory")


def _typed(spec: str, setting: Setting, precision: str) -> str:
    """The text with the type of the weights and the sequence that the setting has, where it does not say them."""
    said = {item.partition("=")[0].strip() for item in spec.partition(":")[2].split(",")}
    fields: dict[str, str] = {}
    if "dtype" not in said:
        found = FORMATS[precision]
        fields["dtype"] = "fp32" if found.weight == 4 else found.activation
    if setting.job.sequence:
        fields["seq"] = str(setting.job.sequence)
    more = ",".join(f"{name}={value}" for name, value in fields.items())
    return f"{spec}{',' if ':' in spec else ':'}{more}" if more else spec


def _of_zoo(spec: str, batch: int) -> RunnableModel:
    _, fields = zoo.parse(spec)
    example = modules.example(spec, batch)
    classes = getattr(fields, "vocab", getattr(fields, "classes", 0))
    loss = IN_DOUBLE.get(example.loss, example.loss) if fields.dtype == "fp64" else example.loss

    def build(device: torch.device | None = None) -> nn.Module:
        with device or nullcontext():  # weights are drawn where they will be: a core takes seconds for those of a GPU
            return modules.build(spec)

    return RunnableModel(build, Batch(example.inputs, example.target), loss, classes)


def _tokens_in_double(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs.flatten(0, -2), target.flatten())


IN_DOUBLE: dict[Loss, Loss] = {
    class_loss: F.cross_entropy,
    token_loss: _tokens_in_double,
    further_loss: functools.partial(further_loss, each=_tokens_in_double),
    value_loss: F.mse_loss,
}
"""The zoo's losses compute in fp32. Where values are compared in double precision, these stand in for them."""


def _of_factory(spec: str, setting: Setting, samples: int) -> RunnableModel:
    """A person's own: the inputs are those that the factory gives, and its loss takes outputs alone."""
    from foretell.model.importers import torch_factory

    sizes = (samples, setting.job.sequence or None)
    built = torch_factory.real(spec, *sizes)
    inputs = built.inputs if isinstance(built.inputs, tuple) else (built.inputs,)
    if not all(isinstance(one, torch.Tensor) for one in inputs):
        raise BadInput(f"{spec} gives inputs that are no tensors", where=spec, fix="a tensor or a tuple of tensors")
    given = built.loss

    def loss(outputs: Any, target: torch.Tensor) -> torch.Tensor:
        return given(outputs) if given is not None else outputs.float().square().mean()

    def build(device: torch.device | None = None) -> nn.Module:
        module = torch_factory.real(spec, *sizes).module  # which may read files, and draws where it will
        return module if device is None else module.to(device)

    return RunnableModel(build, Batch(inputs, torch.zeros(len(inputs[0]), dtype=torch.int64)), loss, 0)
