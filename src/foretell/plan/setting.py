"""What a plan meets: the model, the job and the trainer. Refusals are said about all four together."""

from __future__ import annotations

import msgspec

from foretell.model.graph import Graph
from foretell.plan.job import Job
from foretell.plan.plan import Plan
from foretell.plan.trainer import Trainer


class Setting(msgspec.Struct, frozen=True):
    """A plan for a model, to do a job with a trainer. The graph is that of one micro-batch over all ranks."""

    graph: Graph
    job: Job
    plan: Plan
    trainer: Trainer
