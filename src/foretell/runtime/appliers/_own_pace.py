# pyright: basic
"""What the axes have in common whose ranks keep versions of the weights: samples are shared, and nothing is summed.

What becomes of gradients is for an algorithm to say (`runtime/methods`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from foretell.model.optimizer import optimizer
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.strategy import Strategy
from foretell.runtime.appliers.dp import share_samples
from foretell.runtime.methods import choice
from foretell.runtime.subject import Subject

ORDER = 40

WHOLE = ("", "fp32", "tf32", "amp_bf16", "fp64")
"""Precisions whose weights are numbers that numpy has."""


def refusals(part: Strategy, setting: Setting) -> Iterator[tuple[str, str]]:
    plan, word = setting.plan, part.word
    others = [axis.word for axis in plan.axes if axis.world > 1 and axis is not part]
    if others:
        yield f"{word} beside {', '.join(others)} does not run yet: its ranks have whole models", f"{word} alone"
    if optimizer(setting.job.optimizer).torch != "SGD":
        what = f"{setting.job.optimizer} beside {word}: algorithms that merge versions step by SGD"
        yield what, "--optimizer sgd, or momentum"
    precision = plan.policy(Precision).name
    if precision not in WHOLE:
        yield f"+{precision} beside {word} does not run yet", "+fp32, or +amp_bf16"
    found = choice.method(plan)
    if found is not None:
        yield from choice.refusals(found)


def apply(part: Strategy, subject: Subject) -> None:
    subject.shares.append(functools.partial(share_samples, subject, part.word))
    subject.averaged = True
