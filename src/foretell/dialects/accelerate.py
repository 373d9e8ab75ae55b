"""Hugging Face Accelerate: the YAML of `accelerate launch --config_file`, with FSDP2 or DDP.

Field names: Accelerate 1.15.0, accelerate/commands/config/{config_args,cluster}.py, commands/launch.py,
parallelism_config.py (mesh: dp_replicate, dp_shard, cp, sp, tp, the last innermost).
"""

from __future__ import annotations

import shlex

from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import YAML
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, Figures, Formula, KeyChoice
from foretell.errors import BadInput

_PLUGIN = "deepspeed_config."

NAMED = f"{_PLUGIN}deepspeed_config_file"
"""Where a file names DeepSpeed's own."""

_FSDP, _MESH = "fsdp_config.fsdp_", "parallelism_config.parallelism_config_"


def _kind(recipe: Recipe) -> Document:
    """DDP alone is MULTI_GPU; all else is FSDP2 over a mesh."""
    ranks: Document = {"num_processes": recipe.ranks, "num_machines": recipe.nodes}
    if recipe.storage == "replicated" and recipe.tensor == recipe.context == 1:
        return {"distributed_type": "MULTI_GPU" if recipe.ranks > 1 else "NO", **ranks}
    shard = 1 if recipe.storage == "replicated" else recipe.shard or recipe.data
    mesh = {
        f"{_MESH}dp_replicate_size": recipe.data // shard,
        f"{_MESH}dp_shard_size": shard,
        f"{_MESH}tp_size": recipe.tensor,
        f"{_MESH}cp_size": recipe.context,
    }
    return {
        "distributed_type": "FSDP",
        **ranks,
        f"{_FSDP}version": 2,
        f"{_FSDP}reshard_after_forward": recipe.storage != "zero2",
        f"{_FSDP}auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        f"{_FSDP}state_dict_type": "SHARDED_STATE_DICT",
        f"{_FSDP}offload_params": "weights" in recipe.offload,
        f"{_FSDP}activation_checkpointing": recipe.recompute == "block",
        **mesh,
    }


def _figures(document: Document) -> Figures:
    kind = str(document.get("distributed_type", "NO")).upper()
    if kind == "DEEPSPEED":
        return _deepspeed(document)
    if kind not in ("FSDP", "NO", *_REPLICATED):
        raise BadInput(f"distributed_type is {kind}", fix="FSDP, MULTI_GPU or DEEPSPEED")
    ranks = document.get("num_processes")
    figures: Figures = {"ranks": ranks, "recompute": "none", "offload": (), "storage": "replicated"}
    if kind != "FSDP":
        return figures
    reshard = document.get(f"{_FSDP}reshard_after_forward", True)
    old = str(document.get(f"{_FSDP}sharding_strategy", "")).upper()
    zero2 = reshard is False or "SHARD_GRAD_OP" in (str(reshard), old) or old == "2"
    shard, replicas = document.get(f"{_MESH}dp_shard_size"), document.get(f"{_MESH}dp_replicate_size", 1)
    alone = shard == document.get(f"{_MESH}cp_size", 1) == 1  # context ranks have shares with the data ranks
    figures |= {"storage": "replicated" if alone else "zero2" if zero2 else "zero3"}
    if shard is not None:
        figures |= {"data": shard * replicas, "shard": shard if replicas > 1 and shard > 1 else 0}
    figures |= {"tensor": document.get(f"{_MESH}tp_size", 1), "context": document.get(f"{_MESH}cp_size", 1)}
    if document.get(f"{_FSDP}activation_checkpointing"):
        figures["recompute"] = "block"
    if document.get(f"{_FSDP}offload_params"):
        figures["offload"] = ("optimizer", "weights")
    return figures


_REPLICATED = ("MULTI_GPU", "MULTI_XPU", "MULTI_NPU", "MULTI_HPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA")
"""DistributedDataParallel, on devices of several makers: accelerate/utils/dataclasses.py, DistributedType."""


def _deepspeed(document: Document) -> Figures:
    """DeepSpeed's plugin, from words of this file; a JSON file that it names is opened in its place."""
    other = document.get(NAMED)
    if other:
        raise BadInput(f"{other}, which it names, is not beside it", fix=f"--from-config {other}")
    stage = document.get(f"{_PLUGIN}zero_stage", 2)  # DeepSpeedPlugin.zero_stage
    moved = {
        "optimizer": document.get(f"{_PLUGIN}offload_optimizer_device"),
        "weights": document.get(f"{_PLUGIN}offload_param_device"),
    }
    return {
        "ranks": document.get("num_processes"),
        "storage": f"zero{stage}" if stage else "replicated",
        "microbatches": document.get(f"{_PLUGIN}gradient_accumulation_steps", 1),
        "recompute": "none",
        "offload": tuple(word for word, place in moved.items() if place not in (None, "none")),
    }


_KEYS = (
    *(f"{_PLUGIN}{word}" for word in ("deepspeed_config_file", "zero_stage", "gradient_accumulation_steps")),
    *(f"{_PLUGIN}{word}" for word in ("offload_optimizer_device", "offload_param_device")),
    *("distributed_type", "num_processes", "num_machines", f"{_FSDP}version", f"{_FSDP}reshard_after_forward"),
    *(f"{_FSDP}auto_wrap_policy", f"{_FSDP}state_dict_type", f"{_FSDP}offload_params", f"{_FSDP}sharding_strategy"),
    *(f"{_FSDP}activation_checkpointing", f"{_MESH}dp_replicate_size", f"{_MESH}dp_shard_size"),
    *(f"{_MESH}tp_size", f"{_MESH}cp_size"),
)


_FREE = """
    compute_environment debug downcast_bf16=no enable_cpu_affinity machine_rank main_* rdzv_* same_network tpu_* gpu_ids
    num_machines fsdp_config.fsdp_backward_prefetch* fsdp_config.fsdp_cpu_ram_efficient_loading
    fsdp_config.fsdp_forward_prefetch fsdp_config.fsdp_sync_module_states fsdp_config.fsdp_use_orig_params
    fsdp_config.fsdp_transformer_layer_cls_to_wrap fsdp_config.fsdp_min_num_params dynamo_config.dynamo_mode=default
    dynamo_config.dynamo_use_* deepspeed_config.zero3_* deepspeed_config.gradient_clipping
    deepspeed_config.deepspeed_multinode_launcher deepspeed_config.deepspeed_hostfile mpirun_config.* ipex_config.ipex
    commands command_file tpu_env
"""

_REFUSED = {
    "use_cpu": "a run on processors, whose ranks these words do not tell | foretell predict MODEL --on a cluster",
    f"{_MESH}sp_size=[2-9]*": "sequence parallelism of its own, which these words do not tell | a file with cp_size",
}


def _fixed(recipe: Recipe) -> Document:
    return {
        "compute_environment": "LOCAL_MACHINE",
        "machine_rank": 0,
        "main_training_function": "main",
        "rdzv_backend": "c10d",
    }


def _mixed(recipe: Recipe) -> Document:
    """Under FSDP mixed precision casts gathered weights; alone it is automatic mixed precision."""
    word = {"bf16": "bf16", "amp_bf16": "bf16", "fp16": "fp16", "amp_fp16": "fp16", "fp8": "fp8", "fp32": "no"}
    return {"mixed_precision": word[recipe.precision]} if recipe.precision in word else {}


def _precision(document: Document) -> Figures:
    said = document.get("mixed_precision")
    word = "no" if said in (None, False) else str(said)  # YAML reads a bare no as false
    sharded = document.get("distributed_type") in ("FSDP", "DEEPSPEED")
    words = {"no": "fp32", "bf16": "bf16" if sharded else "amp_bf16", "fp16": "fp16" if sharded else "amp_fp16"}
    if word not in {**words, "fp8": ""}:
        raise BadInput(f"mixed_precision is {word!r}", fix="no, bf16, fp16, fp8")
    return {"precision": words.get(word, word)}


DIALECT = Dialect(
    name="accelerate",
    summary="Accelerate's YAML, with FSDP2 or DDP",
    version="Accelerate 1.15.0",
    trainer=lambda recipe: "pytorch" if recipe.storage == "replicated" and recipe.tensor == 1 else "fsdp",
    format=YAML,
    file="accelerate.yaml",
    table=(
        Formula(_KEYS, _kind, _figures),
        Formula(("mixed_precision",), _mixed, _precision),
        KeyChoice(
            "exchange",
            {"ring": {f"{_MESH}cp_comm_strategy": "alltoall"}},
            default="ring",
            also=(("ring", {f"{_MESH}cp_comm_strategy": "allgather"}),),
            when="context",
        ),
        KeyChoice(
            "execution",
            {"compiled": {"dynamo_config.dynamo_backend": "INDUCTOR"}},
            default="trainer",
            also=(("trainer", {"dynamo_config.dynamo_backend": "NO"}),),
        ),
    ),
    elsewhere={
        "model": "the model that accelerator.prepare gets",
        "microbatches": "Accelerator(gradient_accumulation_steps=...) in the training script",
        "micro_batch": "DataLoader(batch_size=...) in the training script",
        "sequence": "the samples of the training script",
        "optimizer": "the optimizer that accelerator.prepare gets",
        "sequence_parallel": "the tensor-parallel plan of the model (tp_plan)",
    },
    free=tuple(_FREE.split()),
    refused=_REFUSED,
    fixed=_fixed,
    own="accelerate launch",
    command=lambda document, file: [
        f"--config_file {shlex.quote(file)}",
        "--machine_rank ${SLURM_NODEID:-0}",
        "--main_process_ip ${MASTER_ADDR:-127.0.0.1} --main_process_port 29500",
        "train.py",
    ],
)
