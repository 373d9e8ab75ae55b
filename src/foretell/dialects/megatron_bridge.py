"""Megatron-Bridge: Python that changes a recipe's `ConfigContainer`.

Field names: Megatron-Bridge 0.3.1, megatron/bridge/recipes/llama/llama3.py and
training/{config,mixed_precision}.py.
"""

from __future__ import annotations

import shlex

from foretell.dialects._dialect import Dialect
from foretell.dialects._megatron import common
from foretell.dialects._python import CALLED, assignments, python
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, KeyChoice

_PLACES = {
    "ddp": (
        *("use_distributed_optimizer", "use_megatron_fsdp", "data_parallel_sharding_strategy", "overlap_grad_reduce"),
        *("overlap_param_gather", "bucket_size", "num_distributed_optimizer_instances"),
    ),
    "train": ("micro_batch_size", "global_batch_size"),
    "dist": ("use_tp_pp_dp_mapping",),
    "optimizer": ("optimizer_cpu_offload",),
}


def _at(word: str) -> str:
    return next((f"{table}.{word}" for table, words in _PLACES.items() if word in words), f"model.{word}")


RECIPES = {
    "llama3.2-1b": "llama32_1b_pretrain_config",
    "llama3.2-3b": "llama32_3b_pretrain_config",
    "llama3-8b": "llama3_8b_pretrain_config",
    "llama3-70b": "llama3_70b_pretrain_config",
    "llama3-405b": "llama31_405b_pretrain_config",
    "llama2-7b": "llama2_7b_pretrain_config",
}
"""Names of the zoo, and the recipes with the same sizes."""


def _fixed(recipe: Recipe) -> Document:
    return {"train.train_iters": 100, **({"dataset.seq_length": recipe.sequence} if recipe.sequence else {})}


DIALECT = Dialect(
    name="megatron-bridge",
    summary="Megatron-Bridge: Python that changes a recipe",
    version="Megatron-Bridge 0.3.1",
    trainer=lambda recipe: "megatron-core",
    format=python(
        assignments(
            "cfg",
            [
                "from megatron.bridge.recipes.llama import {last}",
                "from megatron.bridge.training.gpt_step import forward_step",
                "from megatron.bridge.training.pretrain import pretrain",
                "",
                "cfg = {made}({given})",
            ],
            ["", 'if __name__ == "__main__":', "    pretrain(cfg, forward_step)"],
        )
    ),
    file="pretrain.py",
    table=(
        KeyChoice("model", {name: {CALLED: made} for name, made in RECIPES.items()}, open=True),
        *common(_at, absent=False),
        KeyChoice(
            "precision",
            {
                "bf16": {"mixed_precision": "bf16_mixed"},
                "fp16": {"mixed_precision": "fp16_mixed"},
                "fp8": {"mixed_precision": "bf16_with_fp8_delayed_scaling_mixed"},
                "mxfp8": {"mixed_precision": "bf16_with_mxfp8_mixed"},
                "nvfp4": {"mixed_precision": "bf16_with_nvfp4_mixed"},
            },
            default="bf16",
            also=(
                ("fp8", {"mixed_precision": "bf16_with_fp8_current_scaling_mixed"}),
                ("bf16", {f"mixed_precision.{CALLED}": "bf16_mixed"}),
                ("fp16", {f"mixed_precision.{CALLED}": "fp16_mixed"}),
            ),
        ),
    ),
    elsewhere={"optimizer": "the recipe's cfg.optimizer (Adam)"},
    assumed=(_at("tensor_model_parallel_size"), _at("pipeline_model_parallel_size")),
    fixed=_fixed,
    command=lambda document, file: [shlex.quote(file)],
)
