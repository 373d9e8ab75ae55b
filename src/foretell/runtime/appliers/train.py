# pyright: basic
"""Parts that are trained while everything else is frozen: the weights that the program trains, by their names."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.model.fold import unfold
from foretell.model.partly import partly_trained
from foretell.plan.policies.train import Train
from foretell.plan.setting import Setting
from foretell.runtime.subject import Subject

ORDER = 11


def refusals(part: Train, setting: Setting) -> Iterator[tuple[str, str]]:
    return iter(())


def apply(part: Train, subject: Subject) -> None:
    if part == Train():
        return
    flat = unfold(partly_trained(subject.setting.graph, part.parts, part.last).blocks)
    trained = {tensor.name for tensor in flat.tensors if tensor.role == "parameter" and tensor.trainable}
    for own in subject.parts:
        for name, weight in own.named_parameters():
            weight.requires_grad_(name in trained)
