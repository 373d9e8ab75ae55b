"""What a plan meets: the model, the job and the trainer. Refusals are said about all four together."""

from __future__ import annotations

import msgspec

from foretell.model.graph import Graph
from foretell.plan.job import Job
from foretell.plan.plan import Plan
from foretell.plan.policies.precision import Precision
from foretell.plan.trainer import Trainer


def with_precision(plan: Plan, trainer: Trainer) -> Plan:
    """The plan with the trainer's usual precision, where it does not say one; fp32 need not be said."""
    usual = trainer.defaults.precision
    if plan.policy(Precision).name or usual == "fp32":
        return plan
    return msgspec.structs.replace(plan, policies=(*plan.policies, Precision(name=usual)))


class Setting(msgspec.Struct, frozen=True):
    """A plan for a model, to do a job with a trainer. The graph is that of one micro-batch over all ranks."""

    graph: Graph
    job: Job
    plan: Plan
    trainer: Trainer

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "plan", with_precision(self.plan, self.trainer))
