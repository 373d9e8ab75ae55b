"""torchtune: the YAML of its recipes (`tune run full_finetune_distributed --config FILE`, and those of LoRA).

Field names: torchtune 0031bfb, recipes/configs/llama3_1/8B_lora.yaml; others by its documentation, not looked up.
Weights, gradients and states are all in `dtype`; adapters too. On several GPUs states lie in shares among all of them
(FSDP2); `fsdp_reshard_after_forward: false` keeps what was gathered.
"""

from __future__ import annotations

import shlex
from typing import Final

from foretell.dialects._adapters import ATTENTION, variants, words
from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import YAML
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, Figures, Formula, KeyChoice, Same
from foretell.errors import BadInput

BUILDERS: Final = {
    "llama2-13b": "llama2.{}llama2_13b",
    "llama2-70b": "llama2.{}llama2_70b",
    "llama2-7b": "llama2.{}llama2_7b",
    "llama3-405b": "llama3_1.{}llama3_1_405b",
    "llama3-70b": "llama3_1.{}llama3_1_70b",
    "llama3-8b": "llama3_1.{}llama3_1_8b",
    "llama3.2-1b": "llama3_2.{}llama3_2_1b",
    "llama3.2-3b": "llama3_2.{}llama3_2_3b",
    "mistral-7b": "mistral.{}mistral_7b",
    "qwen2.5-7b": "qwen2_5.{}qwen2_5_7b",
}
"""Models of the zoo and what builds them there, with `lora_` or `qlora_` before the last word."""

_ALSO: Final = {"llama3.{}llama3_8b": "llama3-8b", "llama3.{}llama3_70b": "llama3-70b"}

_BUILDER, _OPTIMIZER = "model._component_", "optimizer._component_"
_NAMES: Final = {"output": "output_proj", **{word: name for word, name in ATTENTION.items() if word != "output"}}


def _model(recipe: Recipe) -> Document:
    if recipe.model not in BUILDERS:
        what = f"torchtune cannot express this plan: no builder is known for {recipe.model or 'a model without a name'}"
        raise BadInput(what, where="--to", fix=", ".join(BUILDERS))
    kind = "" if not recipe.adapter else "qlora_" if recipe.base else "lora_"
    document: Document = {_BUILDER: f"torchtune.models.{BUILDERS[recipe.model].format(kind)}"}
    if not recipe.adapter:
        return document
    where = set(recipe.adapted) or {"attention", "feed_forward"}
    said = set(ATTENTION) if "attention" in where else where
    return document | {
        "model.lora_attn_modules": [name for word, name in sorted(_NAMES.items()) if word in said],
        "model.apply_lora_to_mlp": "feed_forward" in where,
        "model.apply_lora_to_output": False,
        "model.lora_rank": recipe.adapter,
        "model.lora_alpha": 2 * recipe.adapter,
    }


def _read_model(document: Document) -> Figures:
    said = document.get(_BUILDER)
    if not isinstance(said, str):
        return {}
    place, _, name = said.removeprefix("torchtune.models.").rpartition(".")
    kind = next((one for one in ("qlora_", "lora_") if name.startswith(one)), "")
    form = f"{place}.{{}}{name.removeprefix(kind)}"
    models = {builder: model for model, builder in BUILDERS.items()} | _ALSO
    figures: Figures = {"model": models.get(form)}
    if not kind:
        return figures | {"adapter": 0}
    modules = [*document.get("model.lora_attn_modules", ())]
    if document.get("model.apply_lora_to_mlp"):
        modules += ["w1", "w2", "w3"]
    quantized = kind == "qlora_" or document.get("model.quantize_base")
    return figures | {
        "adapter": document.get("model.lora_rank", 8),
        "adapted": words(modules),
        "base": "nf4-dq" if quantized else "",
    }


def _storage(recipe: Recipe) -> Document:
    if recipe.storage == "replicated":
        return {}
    return {
        "fsdp_reshard_after_forward": recipe.storage == "zero3",
        "fsdp_cpu_offload": "weights" in recipe.offload,
    }


def _read_storage(document: Document) -> Figures:
    """A recipe for several GPUs has shares; which recipe it is, is not in the file: a plan of one GPU has none."""
    resharded = document.get("fsdp_reshard_after_forward", True)
    figures: Figures = {"storage": "zero3" if resharded else "zero2", "tensor": 1, "context": 1, "pipeline": 1}
    moved = ["optimizer", "weights"] if document.get("fsdp_cpu_offload") else []
    moved += ["activations"] if document.get("enable_activation_offloading") else []
    return figures | {"offload": tuple(word for word in ("optimizer", "activations", "weights") if word in moved)}


def _kept(recipe: Recipe) -> Document:
    return {"enable_activation_offloading": "activations" in recipe.offload}


_FREE = """
    tokenizer.* checkpointer* dataset* metric_logger* seed shuffle epochs max_steps_per_epoch lr_scheduler* loss*
    output_dir device log_* resume_from_checkpoint save_* keep_* model.lora_* model.apply_lora_* optimizer.lr
    optimizer.weight_decay optimizer.fused optimizer.betas optimizer.eps clip_grad_norm profiler* quantizer* run_*
    cudnn_deterministic_mode custom_sharded_layers validation* early_* tokenizer
"""

_REFUSED = {
    "model.apply_lora_to_output": "an adapter beside the head, which no plan has | apply_lora_to_output: false",
    "optimizer_in_bwd": "updates inside the backward pass, which no plan has | optimizer_in_bwd: false",
    "tensor_parallel_dim=[2-9]*": "ranks that share a layer | a plan on the command line: tp2",
    "context_parallel_dim=[2-9]*": "ranks that share a sequence | a plan on the command line: cp2",
    "data_parallel_replicate_dim=[2-9]*": "groups of shares | a plan on the command line: dp2:zero3,shard4",
}

DIALECT = Dialect(
    name="torchtune",
    summary="torchtune's recipes in YAML: full, LoRA or QLoRA, with FSDP2",
    version="torchtune main (0031bfb)",
    trainer=lambda recipe: "torchtune",
    format=YAML,
    file="torchtune.yaml",
    table=(
        Formula(
            (
                *(_BUILDER, "model.lora_attn_modules", "model.apply_lora_to_mlp", "model.apply_lora_to_output"),
                *("model.lora_rank", "model.lora_alpha", "model.quantize_base"),
            ),
            _model,
            _read_model,
        ),
        variants(dora="model.use_dora"),
        Same("tokenizer.max_seq_len", "sequence"),
        Same("batch_size", "micro_batch"),
        Same("gradient_accumulation_steps", "microbatches", 1),
        Formula(("fsdp_reshard_after_forward", "fsdp_cpu_offload"), _storage, _read_storage),
        Formula(("enable_activation_offloading",), _kept, lambda document: {}),
        KeyChoice("precision", {"bf16:pure": {"dtype": "bf16"}, "fp32": {"dtype": "fp32"}}, default="bf16:pure"),
        KeyChoice(
            "recompute",
            {"block": {"enable_activation_checkpointing": True}, "none": {"enable_activation_checkpointing": False}},
            default="none",
        ),
        KeyChoice(
            "execution", {"compiled": {"compile": True}}, default="trainer", also=(("trainer", {"compile": False}),)
        ),
        KeyChoice(
            "optimizer",
            {
                "adamw": {_OPTIMIZER: "torch.optim.AdamW"},
                "adamw8bit": {_OPTIMIZER: "bitsandbytes.optim.AdamW8bit"},
                "sgd": {_OPTIMIZER: "torch.optim.SGD"},
            },
            default="adamw",
            also=(("adamw8bit", {_OPTIMIZER: "torchao.optim.AdamW8bit"}),),
            near=(
                (
                    "adamw8bit",
                    {_OPTIMIZER: "bitsandbytes.optim.PagedAdamW8bit"},
                    "PagedAdamW8bit moves states to the host when memory is short: taken as states that stay",
                ),
                (
                    "adamw",
                    {_OPTIMIZER: "bitsandbytes.optim.PagedAdamW"},
                    "PagedAdamW moves states to the host when memory is short: taken as states that stay",
                ),
            ),
        ),
    ),
    free=tuple(_FREE.split()),
    refused=_REFUSED,
    fixed=lambda recipe: {
        "dataset._component_": "torchtune.datasets.alpaca_dataset",
        "dataset.packed": True,
        "optimizer.lr": 2.0e-5,
        "loss._component_": "torchtune.modules.loss.LinearCrossEntropyLoss",
        "epochs": 1,
        "device": "cuda",
        "output_dir": "outputs",
    },
    own="tune run",
    command=lambda document, file: [
        f"{'lora' if 'model.lora_rank' in document else 'full'}_finetune_distributed",
        f"--config {shlex.quote(file)}",
    ],
)
