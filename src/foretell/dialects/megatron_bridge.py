"""Megatron-Bridge: Python that changes a recipe's `ConfigContainer`.

Field names: Megatron-Bridge 0.3.1, megatron/bridge/recipes/llama/llama3.py and
training/{config,mixed_precision}.py. Its recipes of 2026 (067f987) have the model of a hub id and the number of
devices in their names: `llama3_8b_pretrain_2gpu_h100_bf16_config`.
"""

from __future__ import annotations

import re
import shlex

from foretell.dialects._dialect import Dialect
from foretell.dialects._megatron import common
from foretell.dialects._megatron_python import free, precision
from foretell.dialects._model import named
from foretell.dialects._python import CALLED, DEFINED, assignments, python
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, Figures, Formula, KeyChoice

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
    return {"train.train_iters": 100}


_MODEL = KeyChoice("model", {name: {CALLED: made} for name, made in RECIPES.items()}, open=True)

_MADE = f"model.{CALLED}"

PROVIDERS = {"GPTProvider175B": "gpt3-175b", "GPT3ModelProvider175B": "gpt3-175b"}
"""Classes of Megatron-Bridge that are models by themselves."""


def _model(document: Document) -> Figures:
    """By the recipe, by the hub id that its weights would come from, or by the class that makes it."""
    made = str(document.get(_MADE, ""))
    ids = re.findall(r"""from_hf_(?:pretrained|config)\(['"]([^'"]+)""", made)
    found = named(ids[0]) if ids else PROVIDERS.get(made, "")
    return {"model": found} if found else _MODEL.read(document)


def _sequence(recipe: Recipe) -> Document:
    return {"dataset.seq_length": recipe.sequence} if recipe.sequence else {}


def _ranks(document: Document) -> Figures:
    """Devices by the recipe's name."""
    found = re.search(r"_([0-9]+)gpu_", str(document.get(DEFINED, "")))
    return {"ranks": int(found[1])} if found else {}


_PRECISION = KeyChoice(
    "precision",
    {
        "bf16": {"mixed_precision": "bf16_mixed"},
        "fp16": {"mixed_precision": "fp16_mixed"},
        "fp8": {"mixed_precision": "bf16_with_fp8_delayed_scaling_mixed"},
        "mxfp8": {"mixed_precision": "bf16_with_mxfp8_mixed"},
        "nvfp4": {"mixed_precision": "bf16_with_nvfp4_mixed"},
    },
    default="bf16",
)

_FREE = (
    *("train.train_iters", "train.manual_gc*", "train.eval*", "train.exit*", "train.train_samples", "validation.*"),
    *("scheduler.*", "logger.*", "tokenizer.*", "checkpoint.*", "rng.*", "dist.*", "env_vars*", "dataset.*"),
    *("profiling.*", "rerun_state_machine.*", "optimizer.*lr*", "optimizer.adam_*", "optimizer.weight_decay*"),
    *("optimizer.clip_grad", "optimizer.bf16", "optimizer.fp16", "optimizer.lion_*", "optimizer.optimizer=adam"),
    *("optimizer.muon_*", "optimizer.use_distributed_optimizer", "optimizer.*_dtype=torch.float32", "optimizer.().*"),
    *("mixed_precision.*_dtype", "mixed_precision.bf16", "mixed_precision.0", "mixed_precision.autocast_enabled"),
    *("mixed_precision.fp8*", "mixed_precision.grad_reduce_in_fp32=True", "ddp.grad_reduce_in_fp32=True"),
    *("mixed_precision.num_layers_at*", "mixed_precision.first_last*", "comm_overlap.tp_comm_overlap_cfg.*"),
    *("comm_overlap.tp_comm_bootstrap_backend", "ddp.use_megatron_fsdp", "model.().*", "ddp.().*"),
    *free("model", "ddp"),
)

_SEEN = "a vision-language model: not a text decoder, and not priced as one | a recipe of a text decoder"
_IMAGES = "a diffusion model of images or video: no plan here describes it | a recipe of a text decoder"
_REFUSED = {
    "model.freeze_vision_model": _SEEN,
    f"{_MADE}=*VL*": _SEEN,
    f"{_MADE}=*Wan*": _IMAGES,
    f"{_MADE}=*Flux*": _IMAGES,
    "optimizer.optimizer=*muon": "Muon, which this reader cannot express | --optimizer muon beside --plan",
}

_HYBRID = "layers of several kinds (Mamba, attention), which no model here has"
_UNLIKE = {"model.hybrid_layer_pattern": _HYBRID, "model.hybrid_override_pattern": _HYBRID}


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
        Formula((*_MODEL.keys, _MADE), _MODEL.write, _model),
        Formula((), lambda recipe: {}, _ranks),
        Formula(("dataset.seq_length",), _sequence, lambda document: {"sequence": document.get("dataset.seq_length")}),
        *common(_at, absent=False),
        Formula(
            ("mixed_precision", f"mixed_precision.{CALLED}", f"mixed_precision.0.{CALLED}"),
            _PRECISION.write,
            lambda document: precision(document, "mixed_precision"),
        ),
    ),
    elsewhere={"optimizer": "the recipe's cfg.optimizer (Adam)"},
    assumed=(_at("tensor_model_parallel_size"), _at("pipeline_model_parallel_size")),
    free=_FREE,
    refused=_REFUSED,
    unlike=_UNLIKE,
    fixed=_fixed,
    command=lambda document, file: [shlex.quote(file)],
)
