"""torchtitan's own modules, cut by its own functions, with its own loop of a step."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import sys
import types
from typing import Any

import torch
from cases import Case
from subjects import Mark, Step, axes, filled, plain, policy

from foretell.model import zoo
from foretell.plan.setting import Setting

UNUSED = ("torchdata", "datasets", "tyro", "tensorboard", "wandb", "tokenizers", "torchao", "fsspec", "grouped_gemm")
"""What torchtitan imports and a rehearsal has no use for; an empty module where it is not installed."""


class Nothing:
    """Stands for a class, a decorator or a function that nobody calls."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __call__(self, *found: Any, **_: Any) -> Any:
        return found[0] if found else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class _Anything(types.ModuleType):
    """A module that has whatever is asked of it, and in which there is nothing."""

    __path__: list[str] = []  # noqa: RUF012 (a module's own)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Nothing,), {}) if name[0].isupper() else Nothing()


class _Finder:
    """Finds empty modules for what is not there."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        wanted = name.partition(".")[0] in UNUSED
        return importlib.machinery.ModuleSpec(name, self) if wanted else None  # pyright: ignore[reportArgumentType]

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.append(_Finder())  # pyright: ignore[reportArgumentType]
sys.modules["torch.utils.tensorboard"] = _Anything("torch.utils.tensorboard")

import torchtitan.distributed.utils as dist_utils  # noqa: E402
from torchtitan.components.loss import cross_entropy_loss  # noqa: E402
from torchtitan.config import JobConfig  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402
from torchtitan.distributed.context_parallel import prepare_context_parallel_input  # noqa: E402
from torchtitan.models.llama3 import llama3_args  # noqa: E402
from torchtitan.models.llama3.infra.parallelize import parallelize_llama  # noqa: E402
from torchtitan.models.llama3.model.model import Transformer  # noqa: E402
from torchtitan.models.qwen3 import qwen3_args  # noqa: E402
from torchtitan.models.qwen3.infra.parallelize import parallelize_qwen3  # noqa: E402
from torchtitan.models.qwen3.model.model import Qwen3Model  # noqa: E402

NAMES = {
    "llama3-8b": "8B", "llama3-70b": "70B", "llama3-405b": "405B",
    "qwen3-8b": "8B", "qwen3-1.7b": "1.7B", "qwen3-30b-a3b": "30B-A3B",
}  # fmt: skip


def job(case: Case) -> Any:
    found = JobConfig()
    found.training.seq_len = case.seq
    how = policy(case, "recompute")
    found.activation_checkpoint.mode = {"": "none", "block": "full", "operators": "selective"}[how]
    found.activation_checkpoint.selective_ac_option = "op"
    found.compile.enable = bool(policy(case, "compiled"))
    return found


def model_of(case: Case, config: Any) -> tuple[Any, Any]:
    """The model without memory, and the function that cuts it."""
    name = case.model.partition(":")[0]
    fields = plain(zoo.parse(case.model)[1])
    qwen = name.startswith("qwen")
    args = dataclasses.replace((qwen3_args if qwen else llama3_args)[NAMES[name]], n_layers=fields["layers"])
    if fields["hidden"] == 128:  # a small one, where there is no GPU
        small: dict[str, Any] = {"dim": 128, "n_heads": 16, "n_kv_heads": 8, "vocab_size": 256}
        args = dataclasses.replace(
            args, **small, **({"hidden_dim": 256, "head_dim": 8} if qwen else {"multiple_of": 16})
        )
    if qwen:
        args.enable_weight_tying = fields["tied"]
    args.max_seq_len = case.seq
    config.debug.moe_force_load_balance = True
    args.update_from_config(config)
    with torch.device("meta"):
        return (Qwen3Model if qwen else Transformer)(args), parallelize_qwen3 if qwen else parallelize_llama


def step(case: Case, setting: Setting, device: str) -> Step:
    own, config = axes(case), job(case)
    data = own["dp"]
    tensor, context = (own[word].ranks if word in own else 1 for word in ("tp", "cp"))
    dims = ParallelDims(
        dp_replicate=data.ranks if data.shard else 1, dp_shard=data.shard or data.ranks, cp=context, tp=tensor, pp=1,
        ep=data.experts, etp=1, world_size=setting.plan.ranks,
    )  # fmt: skip
    config.parallelism.context_parallel_degree = context
    model, parallelize = model_of(case, config)
    dims.build_mesh()
    model = parallelize(model, dims, config)
    model = filled(model, device)
    model.train()
    from subjects import optimizer

    update = optimizer(case, list(model.parameters()), **({"fused": True} if device == "cuda" else {}))
    rows = case.batch // (data.ranks * (data.shard or 1))
    tokens = torch.randint(model.model_args.vocab_size, (rows, case.seq), device=device)
    wanted = tokens.clone()
    train = dist_utils.get_train_context(dims.tp_enabled and not config.parallelism.disable_loss_parallel)
    loss_of = torch.compile(cross_entropy_loss) if config.compile.enable else cross_entropy_loss

    def once(mark: Mark) -> None:
        update.zero_grad()
        inputs, labels, more = tokens, wanted, dict[str, Any]()
        if dims.cp_enabled:
            balance = config.parallelism.context_parallel_load_balancer
            inputs, labels, more = prepare_context_parallel_input(
                inputs, labels, more, dims.get_mesh("cp"), torch.device(device), balance
            )
        with train():
            made = model(inputs, **more)
            loss = loss_of(made, labels) / tokens.numel()
            del made
            mark("forward")
            loss.backward()
        mark("backward")
        dist_utils.clip_grad_norm_(list(model.parameters()), 1.0, foreach=True, ep_enabled=dims.ep_enabled)
        mark("clip")
        update.step()
        mark("optimizer")

    return once
