"""The survey's frameworks: each a trainer and a rule for the plan and the batch on so many GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from foretell.replicas.survey.workload import IMAGES, TEXT, SurveyTask, zero_stage

ROUNDS: Final = 4
"""Micro-batches for each GPU of TorchGPipe (section 4.3.1)."""

MANY: Final = 16
"""Mini-batches for each stage over which PipeDream's steady state is looked at."""

Full: TypeAlias = str
"""What products are computed in without mixed precision: `tf32` or `fp32` (`workload.full_precision`)."""


class FrameworkUse(NamedTuple):
    """What a framework does on so many GPUs."""

    plan: str
    batch: int  # samples of a step of the plan


Rule: TypeAlias = Callable[[int, SurveyTask, Full], FrameworkUse]


class Framework(NamedTuple):
    """One framework as it was measured."""

    name: str
    title: str
    trainer: str
    rule: Rule
    batch_rule: str
    models: tuple[str, ...] = (IMAGES, TEXT)
    machines: tuple[str, ...] = ("lassen", "thetagpu")
    optimizer: str = ""  # where it is not the task's
    replicates: bool = False  # stages, where a deeper pipeline would gain nothing
    interpreter: float = 0.0  # share of all kernels that one interpreter starts for all stages


def _data(storage: Callable[[], str], precision: str) -> Rule:
    def rule(ranks: int, task: SurveyTask, full: Full) -> FrameworkUse:
        stored = storage()
        return FrameworkUse(f"dp{ranks}{':' if stored else ''}{stored} +{precision}", ranks * task.batch)

    return rule


def _intra(ranks: int, task: SurveyTask, full: Full) -> FrameworkUse:
    return FrameworkUse(f"tp{ranks} +fp16", ranks * task.batch)


def _flushed(ranks: int, task: SurveyTask, full: Full) -> FrameworkUse:
    axis = f"pp{ranks}:gpipe" if ranks > 1 else "dp1"
    return FrameworkUse(f"{axis} +m{ROUNDS * ranks} +recompute:full +{full}", ranks * task.batch)


def _stashed(ranks: int, task: SurveyTask, full: Full) -> FrameworkUse:
    if ranks == 1:
        return FrameworkUse(f"dp1 +{full}", task.batch)
    return FrameworkUse(f"pp{ranks}:stash +m{MANY * ranks} +{full}", MANY * ranks * task.batch)


def _replicated() -> str:
    return ""


ONE_PROCESS: Final = 0.5
"""TorchGPipe has a thread for each stage in one process (Kim et al. 2020, arXiv 2004.09910), and one thread of Python
runs at a time. Of a kernel started forward, one again and two backward, it starts the first two; PyTorch's own threads
start the others."""

FIXED: Final = "fixed for each GPU"
GROWS: Final = "grows with the GPUs"
ADAM: Final = "adam"
"""ZeRO saves memory with Adam only (Table 3)."""

FRAMEWORKS: Final = {
    one.name: one
    for one in (
        Framework("ddp", "PyTorch DDP 1.8", "pytorch-1-survey", _data(_replicated, "amp_fp16"), FIXED),
        Framework("zero", "DeepSpeed 0.3.13, ZeRO", "deepspeed-0.3", _data(zero_stage, "fp16"), FIXED, optimizer=ADAM),
        Framework("axonn", "AxoNN", "axonn-2021", _data(_replicated, "fp16"), FIXED, machines=("lassen",)),
        Framework("lbann", "LBANN 0.101", "lbann", _data(_replicated, "amp_fp16"), FIXED, (IMAGES,), ("lassen",)),
        Framework(
            "megatron-data",
            "Megatron-LM 2.3, data",
            "megatron-lm-2021",
            _data(_replicated, "fp16"),
            FIXED,
            (TEXT,),
            ("lassen",),
        ),
        Framework("megatron-intra", "Megatron-LM 2.3, intra-layer", "megatron-lm-2021", _intra, GROWS, (TEXT,)),
        Framework("pipedream", "PipeDream", "pipedream", _stashed, "fixed; more of them in flight", replicates=True),
        Framework(
            "torchgpipe", "TorchGPipe", "torchgpipe", _flushed, "4 micro-batches for each GPU", interpreter=ONE_PROCESS
        ),
    )
}
"""By name, in the order of the survey's tables."""

DATA: Final = ("ddp", "zero", "axonn", "lbann", "megatron-data")
PIPELINES: Final = ("pipedream", "torchgpipe")
