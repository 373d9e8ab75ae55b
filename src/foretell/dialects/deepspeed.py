"""DeepSpeed: one JSON file about batches, ZeRO and precision. The model and its pipeline are Python.

Field names: DeepSpeed 0.19.8, deepspeed/runtime/{config,constants,precision_config}.py, runtime/zero/config.py,
runtime/tensor_parallel/config.py. Ranks lie as (pipe, data, model): deepspeed/runtime/pipe/topology.py.
"""

from __future__ import annotations

import dataclasses
import shlex
from typing import Final

from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import JSON
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import NOTES, Document, Figures, Formula, KeyChoice, Same, optimizer_words

_ZERO = "zero_optimization"

STARTED = "num_processes"
"""Ranks, where a file of Accelerate names this one."""

GRADIENT = {True: 4, False: 2}
"""Bytes of a gradient as it travels, in fp32 or not: buckets are counted in elements."""


def _offloaded(recipe: Recipe) -> Document:
    places = {"optimizer": f"{_ZERO}.offload_optimizer.device", "weights": f"{_ZERO}.offload_param.device"}
    return {key: "cpu" for word, key in places.items() if word in recipe.offload} | (
        {"activation_checkpointing.cpu_checkpointing": True} if "activations" in recipe.offload else {}
    )


def _offload(document: Document) -> Figures:
    said = {
        "optimizer": document.get(f"{_ZERO}.offload_optimizer.device", "none") != "none"
        or bool(document.get(f"{_ZERO}.cpu_offload")),
        "activations": bool(document.get("activation_checkpointing.cpu_checkpointing")),
        "weights": document.get(f"{_ZERO}.offload_param.device", "none") != "none",
    }
    return {"offload": tuple(word for word, moved in said.items() if moved)}


def _bucket(recipe: Recipe) -> Document:
    return (
        {f"{_ZERO}.reduce_bucket_size": recipe.bucket // GRADIENT[recipe.precision == "fp32"]} if recipe.bucket else {}
    )


def _bucket_bytes(document: Document) -> Figures:
    half = any(str(document.get(f"{word}.enabled")).lower() == "true" for word in ("bf16", "fp16", "bfloat16"))
    return {"bucket": GRADIENT[not half] * int(document.get(f"{_ZERO}.reduce_bucket_size", 0))}


def _group(document: Document) -> Figures:
    """MiCS: shares among groups of ranks. It is read and not written: releases after 0.19 refuse it."""
    size = int(document.get(f"{_ZERO}.mics_shard_size", -1))
    return {"shard": size} if size > 0 else {}


def _interval(recipe: Recipe) -> Document:
    every = {"block": 1, "none": 0}.get(recipe.recompute, recipe.recompute.removeprefix("every"))
    return {"pipeline.activation_checkpoint_interval": int(every)} if str(every).isdecimal() and every else {}


def _recomputed(document: Document) -> Figures:
    every = int(document.get("pipeline.activation_checkpoint_interval", 0))
    return {"recompute": {0: "none", 1: "block"}.get(every, f"every{every}")}


def _partitioned(document: Document) -> Figures:
    """What checkpoints save, in shares among the ranks of a layer; alone, one keeps all of it.

    DeepSpeed (02f59ea), deepspeed/runtime/activation_checkpointing/checkpointing.py: partition_activations is over the
    model-parallel group, and gather_partitioned_activations gathers nothing where that is one rank. Without checkpoints
    of each layer a plan has none to share, and the script may have them all the same.
    """
    ranks = document.get("tensor_parallel.autotp_size") or 1
    if not document.get(_PARTITIONED) or ranks == 1:
        return {}
    if int(document.get("pipeline.activation_checkpoint_interval", 0)) != 1:
        told = f"{_PARTITIONED}: the file does not say that each layer runs again; +recompute:block +partitioned if so"
        return {NOTES: (told,)}
    return {"partitioned": True}


_PARTITIONED: Final = "activation_checkpointing.partition_activations"

_FREE = """
    num_processes steps_per_print wall_clock_breakdown dump_state gradient_clipping prescale_gradients
    gradient_predivide_factor memory_breakdown seed disable_allgather zero_allow_untested_optimizer
    zero_force_ds_cpu_optimizer optimizer.params.* optimizer.legacy_fusion scheduler.* tensorboard.* wandb.*
    csv_monitor.* flops_profiler.* comms_logger.* checkpoint.* elasticity.* dataloader_drop_last
    bf16.check_grad_overflow bf16.immediate_grad_update
    fp16.loss_scale* fp16.initial_scale_power fp16.hysteresis fp16.min_loss_scale fp16.consecutive_hysteresis
    fp16.auto_cast fp16.master_weights_and_grads=False fp16.fp16_master_weights_and_grads=False
    zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size zero_optimization.reduce_scatter
    zero_optimization.contiguous_gradients zero_optimization.stage3_* zero_optimization.sub_group_size
    zero_optimization.round_robin_gradients zero_optimization.load_from_fp32_weights zero_optimization.elastic_*
    zero_optimization.ignore_unused_parameters zero_optimization.*.pin_memory zero_optimization.*.buffer_*
    zero_optimization.*.fast_init zero_optimization.prefetch_bucket_size zero_optimization.param_persistence_threshold
    zero_optimization.gather_16bit_weights_on_model_save zero_optimization.memory_efficient_linear
    zero_optimization.max_live_parameters zero_optimization.max_reuse_distance
"""
"""Keys that change no cost, or too little to tell; all others that no table has are told."""

_COMPRESSED = (
    "%s sends compressed gradients after its warm-up, which no plan of a file tells here: priced as in its "
    "warm-up, so communication is overestimated afterwards"
)

_OPTIMIZERS = dataclasses.replace(
    optimizer_words("deepspeed", "optimizer.type"),
    near=tuple(
        (word, {"optimizer.type": name}, _COMPRESSED % name)
        for name, word in {"OneBitAdam": "adam", "ZeroOneAdam": "adam", "OneBitLamb": "lamb"}.items()
    ),
)
"""deepspeed/runtime/fp16/onebit: before freeze_step each is the plain optimizer."""


def _fixed(recipe: Recipe) -> Document:
    return {"gradient_clipping": 1.0, "steps_per_print": 10}


DIALECT = Dialect(
    name="deepspeed",
    summary="DeepSpeed's JSON: batches, zero_optimization, precision",
    version="DeepSpeed 0.19.8",
    trainer=lambda recipe: "deepspeed",
    format=JSON,
    file="ds_config.json",
    table=(
        Same("train_batch_size", "batch"),
        Same("train_micro_batch_size_per_gpu", "micro_batch"),
        Same("gradient_accumulation_steps", "microbatches"),
        KeyChoice(
            "storage",
            {
                "replicated": {f"{_ZERO}.stage": 0},
                "zero1": {f"{_ZERO}.stage": 1},
                "zero2": {f"{_ZERO}.stage": 2},
                "zero3": {f"{_ZERO}.stage": 3},
            },
            default="replicated",
        ),
        Formula((f"{_ZERO}.mics_shard_size",), lambda recipe: {}, _group),
        Formula(
            (
                f"{_ZERO}.offload_optimizer.device",
                f"{_ZERO}.offload_param.device",
                f"{_ZERO}.cpu_offload",
                "activation_checkpointing.cpu_checkpointing",
            ),
            _offloaded,
            _offload,
        ),
        KeyChoice(
            "overlap",
            {"always": {f"{_ZERO}.overlap_comm": True}, "never": {f"{_ZERO}.overlap_comm": False}},
            default="trainer",
        ),
        Formula((f"{_ZERO}.reduce_bucket_size",), _bucket, _bucket_bytes),
        KeyChoice(
            "precision",
            {
                "bf16": {"bf16.enabled": True, "bf16.bf16_master_weights_and_grads": None},
                "bf16:pure": {
                    "bf16.enabled": True,
                    "bf16.bf16_master_weights_and_grads": True,
                    "bf16.bf16_optimizer_states": True,
                },
                "fp16": {"fp16.enabled": True},
                "amp_bf16": {"torch_autocast.enabled": True, "torch_autocast.dtype": "bfloat16"},
                "amp_fp16": {"torch_autocast.enabled": True, "torch_autocast.dtype": "float16"},
                "fp32": {"bf16.enabled": False, "fp16.enabled": False},
            },
            default="fp32",
        ),
        Same("tensor_parallel.autotp_size", "tensor", 1, told=False),
        Same("sequence_parallel_size", "context", 1, told=False),
        KeyChoice("exchange", {"alltoall": {}}, default="alltoall"),
        Same("pipeline.stages", "pipeline", 1, told=False),
        Formula(("pipeline.activation_checkpoint_interval",), _interval, _recomputed),
        Formula((_PARTITIONED,), lambda recipe: {_PARTITIONED: True} if recipe.partitioned else {}, _partitioned),
        _OPTIMIZERS,
        Formula((), lambda recipe: {}, lambda document: {"ranks": document.get(STARTED)}),
    ),
    elsewhere={
        "model": "the model that deepspeed.initialize(model=...) gets",
        "sequence": "the samples that the training script gives it",
        "experts": "deepspeed.moe.layer.MoE(ep_size=...) in the model",
    },
    beside={
        "pipeline": "PipelineModule(num_stages=...) in the training script",
        "tensor": "deepspeed.tp_model_init in the training script",
        "context": "the sequence groups of deepspeed.sequence (Ulysses) in the training script",
        "recompute": "PipelineModule(activation_checkpoint_interval=...), or the model's own checkpointing without one",
    },
    free=tuple(_FREE.split()),
    fixed=_fixed,
    command=lambda document, file: ["train.py", f"--deepspeed --deepspeed_config {shlex.quote(file)}"],
)
