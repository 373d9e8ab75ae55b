"""How long a step takes under a plan, what memory each rank needs, and what limits it."""

from __future__ import annotations

import functools

from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.totals import totals
from foretell.oracle.explain import Bottleneck, bottlenecks
from foretell.plan.facts import facts
from foretell.plan.policies.lora import Lora
from foretell.plan.setting import Setting
from foretell.program.lower import notes
from foretell.timeline.compose import composed
from foretell.timeline.observation import Observation
from foretell.timeline.sheet import priced

BAND = 1.25
"""A declared prior, until bands are learnt from studies: the truth is taken to lie within this factor."""

USABLE = 0.97
"""Share of a device's memory that a run can fill before the allocator fails."""


class Prediction(Observation, frozen=True, kw_only=True):
    """An observation that was not made yet, with how far it can be trusted."""

    model: str
    plan: str
    trainer: str
    cluster: str
    batch: int
    ranks: int
    microbatches: int
    samples_per_second: float
    tokens_per_second: float  # 0 where samples are no sequences
    model_flops: float  # of a step, without what runs again
    utilisation: float  # of the peak of all ranks, by model flops
    interval: tuple[float, float]  # seconds
    fits: bool
    capacity: float  # bytes of a device
    bottlenecks: tuple[Bottleneck, ...]
    provenance: dict[str, str]
    notes: tuple[str, ...]


def predict(setting: Setting, cluster: Cluster) -> Prediction:
    """Predict one step of a plan that fits."""
    plan = priced(setting, cluster)
    outline, device = plan.outline, cluster.device
    found = composed(plan, cluster)
    step, used = found.step_seconds, found.memory
    breakdown = found.breakdown
    flops = _model_flops(setting)
    tokens = facts(setting.graph).sequence * setting.job.batch
    ranks = setting.plan.ranks
    return Prediction(
        step_seconds=step,
        memory_bytes=used.device,
        memory=used,
        breakdown=breakdown,
        model=outline.graph.name,
        plan=str(outline.plan),
        trainer=outline.trainer.name,
        cluster=cluster.text,
        batch=setting.job.batch,
        ranks=ranks,
        microbatches=outline.plan.microbatches,
        samples_per_second=setting.job.batch / step,
        tokens_per_second=tokens / step,
        model_flops=flops,
        utilisation=flops / (step * ranks * device.matrix_rate(plan.prices.form.kernels)),
        interval=(step / BAND, step * BAND),
        fits=used.device <= USABLE * device.memory_bytes,
        capacity=device.memory_bytes,
        bottlenecks=tuple(bottlenecks(breakdown, step, used, device.memory_bytes)),
        provenance=_provenance(outline.trainer.name),
        notes=notes(outline),
    )


def _provenance(trainer: str) -> dict[str, str]:
    """How each part of the answer was obtained."""
    return {
        "compute": "kernel models with the device's data sheet",
        "communication": "collective models with the links' figures",
        "host": f"constants of the trainer {trainer}",
        "memory": "lifetimes of the program, constants of the trainer",
        "interval": f"a declared prior: a factor of {BAND} either way",
    }


def _model_flops(setting: Setting) -> float:
    """Matrix work of a step, forward and backward, that the model itself needs."""
    graph = setting.plan.policy(Lora).trained(setting.graph)
    return float(_matrix_flops(graph) * setting.plan.microbatches)


@functools.lru_cache(maxsize=256)
def _matrix_flops(graph: Graph) -> float:
    """Of one micro-batch."""
    needs = totals(graph)
    return needs.forward.matrix + needs.backward.matrix
