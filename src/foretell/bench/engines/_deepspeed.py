# pyright: basic
"""DeepSpeed's engine at a stage of ZeRO, in a process group of its own making."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foretell.bench.engine import Engine

if TYPE_CHECKING:
    import torch

    from foretell.runtime.place import RankPlace
    from foretell.runtime.subject import Subject

STORAGE = {0: "", 1: ":zero1", 2: ":zero2", 3: ":zero3"}


def engine(stage: int) -> Engine:
    return Engine(
        title=f"DeepSpeed ZeRO-{stage}",
        plan=f"dp{{n}}{STORAGE[stage]}",
        runs="dp{n}",
        package="deepspeed",
        tools=("ninja", "g++"),  # it builds an operator of its own at the first start
        whole_weights=False,  # states lie in flat shares
        settings=settings(stage),
        environment={"DS_ACCELERATOR": "{device}", "DS_SKIP_CUDA_CHECK": "1"},
    )


def settings(stage: int) -> Mapping[str, str]:
    return {
        "zero_optimization.stage": str(stage),
        "zero_optimization.reduce_bucket_size": "as many elements as the model has, at most its default",
        "zero_allow_untested_optimizer": "true",
        "gradient_clipping": "0",
    }


BUCKET = 500_000_000
"""Elements that DeepSpeed sets aside to sum gradients, whatever the model: 2 GB in fp32."""


def begin(device: str, place: RankPlace, meeting: str) -> None:
    """DeepSpeed makes the group itself; ranks meet where torch's would."""
    import deepspeed  # pyright: ignore[reportMissingImports]

    os.environ |= {"RANK": str(place.rank), "LOCAL_RANK": str(place.local), "WORLD_SIZE": str(place.world)}
    os.environ |= {"LOCAL_SIZE": str(place.here), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # not used to meet
    deepspeed.init_distributed(
        dist_backend="nccl" if device == "cuda" else "gloo",
        auto_mpi_discovery=False,
        verbose=False,
        init_method=meeting,
        rank=place.rank,
        world_size=place.world,
    )


def apply(stage: int, subject: Subject) -> None:
    import deepspeed  # pyright: ignore[reportMissingImports]

    from foretell.bench.wrapping import optimizer_of, own_samples

    rows = len(subject.sample.target)
    bucket = min(BUCKET, sum(weight.numel() for weight in subject.weights()))
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": rows,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,  # its default is 1: gradients of the others are as they are
        "zero_optimization": {"stage": stage, "reduce_bucket_size": bucket, "allgather_bucket_size": bucket},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1 << 30,
    }
    module = subject.parts[0]
    made: Any = deepspeed.initialize(
        model=module, optimizer=optimizer_of(subject), config=config, dist_init_required=False
    )
    engine = made[0]
    own_samples(subject)
    subject.parts = [engine]
    subject.wholes.append(_Gathered(engine))
    subject.driver = lambda subject: _driver(subject, engine)
    stepped: Any = _Stepped(engine)
    subject.optimizer = lambda rule, own: stepped


def _driver(subject: Subject, engine: Any) -> Any:
    from foretell.bench.wrapping import LossDriver

    return LossDriver(subject, engine.backward)


class _Stepped:
    """DeepSpeed's engine as the optimizer that the loop knows."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self._engine.optimizer.param_groups

    def step(self) -> None:
        self._engine.step()

    def zero_grad(self) -> None:
        """Its step does it."""


class _Gathered:
    """The whole of a weight: of stage 3 it is put together first."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __call__(self, name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
        import deepspeed  # pyright: ignore[reportMissingImports]

        weight = self._engine.get_parameter(name)
        if not hasattr(weight, "ds_id"):
            return name.removeprefix("module."), share
        with deepspeed.zero.GatheredParameters([weight]):
            return name.removeprefix("module."), weight.detach().clone()
