"""What of a plan has no meaning where nothing is trained: a step is a forward pass, for inference or evaluation.

Kahira et al. 2021, Table 6: of what limits training, gradient exchange and weight update are not there in inference.
So nothing can be said of how gradients travel, where states lie, or what runs again before a backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from foretell.plan.facts import facts
from foretell.plan.plan import Plan, axis_text, policy_text
from foretell.plan.policies.a2a_overlap import A2AOverlap
from foretell.plan.policies.base import Base
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.bucket import Bucket
from foretell.plan.policies.compression import Compression
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.loss import Loss
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.partitioned import Partitioned
from foretell.plan.policies.prompt import Prompt
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policies.targets import Targets
from foretell.plan.policies.train import Train
from foretell.plan.policies.variant import Variant
from foretell.plan.policies.wide_adapters import WideAdapters
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed, removed, replaced, with_fields
from foretell.plan.schedule import find
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import EACH_STEP, Strategy

if TYPE_CHECKING:
    from foretell.plan.setting import Setting

RULE: Final = "a forward pass alone"

NOTHING: Final[dict[type[Policy], str]] = {
    Recompute: "nothing is kept that could run again before a backward pass",
    Partitioned: "nothing is saved for a backward pass",
    Lora: "adapters are trained beside frozen weights; merged into them, they are the model itself",
    Base: "it is the form of weights that adapters are trained beside; inference in few bits is not predicted",
    Targets: "it says where adapters are trained, and none are",
    A2AOverlap: "the rows of a forward pass travel beside a backward pass, and there is none",
    WideAdapters: "it says how adapters are trained, and none are",
    Variant: "it says how adapters are trained, and none are",
    Train: "it says which weights are trained, and none are",
    Prompt: "it says what is trained beside frozen weights, and nothing is",
    Compression: "no gradients travel",
    Bucket: "no gradients travel",
    Loss: "it makes gradients of the head beside the loss, and there are none",
    BatchNorm: "batch norms take their running averages, which every rank has",
    Offload: "there are no optimizer states and no kept activations to move to the host",
}
"""Why a policy has no meaning."""


def broken_forward(setting: Setting) -> Iterator[Refusal]:
    """The parts of a plan that are about training alone, where nothing is trained."""
    if facts(setting.graph).trains:
        return
    plan = setting.plan
    for axis in plan.axes:
        yield from broken_axis(plan, axis)
    for policy in plan.policies:
        yield from broken_policy(plan, policy)


def broken_axis(plan: Plan, axis: Strategy) -> Iterator[Refusal]:
    """The refusal of an axis whose ranks train versions of the weights."""
    if any(own.exchange != EACH_STEP for own in axis.axes()):
        why = f"{axis_text(axis)} says how updates of weights come together, and nothing is trained"
        yield Refusal(RULE, why, mends=removed(plan, axis))
    elif isinstance(axis, Pipeline) and not find(axis.schedule).flushes:
        why = f"{axis_text(axis)} keeps versions of weights for backward passes, and there are none"
        yield Refusal(RULE, why, mends=replaced(plan, axis, with_fields(axis, schedule="1f1b")))


def broken_policy(plan: Plan, policy: Policy) -> Iterator[Refusal]:
    """The refusal of a policy that speaks of gradients, states or kept activations."""
    left = _left(policy)
    if policy != left:
        yield Refusal(RULE, f"{policy_text(policy)}: {NOTHING[type(policy)]}", mends=changed(plan, left))


def _left(policy: Policy) -> Policy:
    """What a policy still says where nothing is trained."""
    if isinstance(policy, Offload):
        return Offload(moved=tuple(word for word in policy.moved if word == "weights"))
    return type(policy)() if type(policy) in NOTHING else policy


def without_training(plan: Plan) -> Plan:
    """The plan with what it still says where nothing is trained: for a forward pass beside training."""
    return msgspec.structs.replace(plan, policies=tuple(_left(policy) for policy in plan.policies))
