# pyright: basic
"""What puts a plan on a real module: one file for each strategy and policy that runs, under its word.

A file has

    ORDER                     lower ones come first: stages are cut, layers split, recomputed, then replicated
    refusals(part, setting)   what of this strategy or policy, or beside it, does not run yet
    apply(part, subject)      change the subject: its parts, how a batch is shared, how weights are updated

An applier knows the axes of its own strategy only. Hybrids are several of them on one mesh.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from foretell.plan.plan import axis_text, policy_text
from foretell.plan.policies.execution import Execution
from foretell.plan.policies.precision import Precision
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.setting import Setting
from foretell.plan.strategy import Strategy
from foretell.registry import OpenSet
from foretell.runtime.appliers._replicas import replicate
from foretell.runtime.subject import Subject

APPLIERS = OpenSet(__name__, "applier")

RULE = "runs today"
"""The name of the rule that a plan breaks which is legal, and priced, but which nothing here can run."""


def refusals(setting: Setting, alone: bool = False) -> Iterator[Refusal]:
    """Why a plan cannot run, though it may be a good one; `alone`: on one rank, the others not there."""
    for part in _parts(setting):
        if part.word not in APPLIERS:
            strategies = ", ".join(name for name in APPLIERS)
            yield Refusal(RULE, f"{_text(part)} has no applier yet: it is predicted, not run", f"one of {strategies}")
        elif not (alone and getattr(_applier(part), "ALONE", False)):
            yield from (Refusal(RULE, why, fix) for why, fix in _applier(part).refusals(part, setting))


def apply(subject: Subject) -> None:
    """Put the whole plan on a subject. Where no axis shares the batch, gradients may still have to be averaged."""
    alone = [axis for axis in subject.setting.plan.axes if axis.world == 1 and axis.word in subject.mesh]
    for part in sorted([*alone, *_parts(subject.setting)], key=lambda part: _applier(part).ORDER):
        _applier(part).apply(part, subject)
    if not subject.averaged:
        replicate(subject, [])


def compiled(setting: Setting) -> bool:
    """Whether layers go through torch's compiler."""
    return any(isinstance(part, Execution) and part.mode == "compiled" for part in _parts(setting))


def in_precision(subject: Subject) -> None:
    """Put the plan's precision on a subject and nothing else of it: a framework does the rest."""
    for part in subject.setting.plan.policies:
        if isinstance(part, Precision):
            _applier(part).apply(part, subject)


def _parts(setting: Setting) -> list[Strategy | Policy]:
    """What there is to apply. An axis of one rank does nothing; what the plan does not say, the trainer may."""
    plan = setting.plan
    found: list[Strategy | Policy] = [*(axis for axis in plan.axes if axis.world > 1), *plan.policies]
    if plan.policy(Execution).mode == "trainer" and setting.trainer.execution == "compiled":
        found.append(Execution(mode="compiled"))
    return found


def _applier(part: Strategy | Policy) -> ModuleType:
    return APPLIERS[part.word]


def _text(part: Strategy | Policy) -> str:
    return axis_text(part) if isinstance(part, Strategy) else policy_text(part)
