"""TRL and transformers' Trainer: the YAML of `trl sft --config`, one table of SFTConfig's and ModelConfig's fields.

Field names: transformers 5.22, training_args.py; TRL 040e32d, trl/trainer/model_config.py, where `dtype` is still
`torch_dtype`; `max_length` and `packing` by its documentation; `bnb_4bit_quant_storage` by today's
trl/trainer/utils.py, which hands it to bitsandbytes, and what it has to be under FSDP by bitsandbytes'
docs/source/fsdp_qlora. Ranks are those that `accelerate launch` starts; states lie in shares by FSDP. Where a file
does not say it, SFTConfig (016013e, trl/trainer/sft_config.py) computes in bf16 unless fp16 is asked for, and runs
blocks again.
"""

from __future__ import annotations

import shlex

from foretell.dialects._adapters import checkpoint, optimizers, targets, variants
from foretell.dialects._arguments import BATCHES, COMPILED, DEEPSPEED, FREE, SHARDED, checkpointing, liger
from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import YAML
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import NOTES, Document, Figures, Formula, Same


def _precision(recipe: Recipe) -> Document:
    """Autocast over weights in fp32, or over weights in 16 bits; FSDP casts what it gathers."""
    half = recipe.precision == "bf16:pure" or (recipe.adapter and recipe.precision == "bf16")
    return {
        "bf16": "bf16" in recipe.precision,
        "fp16": "fp16" in recipe.precision,
        "dtype": "bfloat16" if half else "float32",
    }


def _read_precision(document: Document) -> Figures:
    said = document.get("dtype", document.get("torch_dtype"))
    half = str(said).rpartition(".")[2] in ("bfloat16", "bf16")
    notes = () if said else ("dtype is not set: taken as weights in float32, as TRL loads them",)
    if document.get("fp16"):
        return {"precision": "fp16" if document.get("fsdp") else "amp_fp16", NOTES: notes}
    if document.get("bf16") is False:
        return {"precision": "bf16:pure" if half else "fp32", NOTES: notes}
    if half:
        return {"precision": "bf16" if document.get("use_peft") else "bf16:pure", NOTES: notes}
    return {"precision": "bf16" if document.get("fsdp") else "amp_bf16", NOTES: notes}


def _adapters(recipe: Recipe) -> Document:
    if not recipe.adapter:
        return {}
    document: Document = {"use_peft": True, "lora_r": recipe.adapter, "lora_alpha": 2 * recipe.adapter}
    if recipe.base in ("nf4", "nf4-dq", "fp4"):
        double = {"use_bnb_nested_quant": True} if recipe.base == "nf4-dq" else {}
        document |= {"load_in_4bit": True, "bnb_4bit_quant_type": recipe.base.removesuffix("-dq"), **double}
        if recipe.storage != "replicated":  # FSDP takes shares of floating-point tensors alone
            document["bnb_4bit_quant_storage"] = "bfloat16"
    elif recipe.base == "int8":
        document["load_in_8bit"] = True
    return document


def _read_adapters(document: Document) -> Figures:
    if not document.get("use_peft"):
        return {"adapter": 0}
    base = "int8" if document.get("load_in_8bit") else ""
    figures: Figures = {"adapter": document.get("lora_r", 16), "wide_adapters": True, "base": base}
    if document.get("load_in_4bit"):
        form = str(document.get("bnb_4bit_quant_type", "nf4"))
        figures["base"] = f"{form}-dq" if form == "nf4" and document.get("use_bnb_nested_quant") else form
    return figures


_REFUSED = {
    "tensor_parallel*": "a mesh of its own | a plan on the command line",
    **DEEPSPEED,
}

_FREE = """
    lora_alpha lora_dropout lora_task_type model_revision trust_remote_code attn_implementation
    assistant_only_loss completion_only_loss chat_template_path eos_token pad_token shuffle_dataset packing_strategy
    activation_offloading=False packing=True padding_free=False neftune_noise_alpha
    beta precompute_ref_log_probs label_smoothing max_prompt_length max_completion_length num_generations
"""

DIALECT = Dialect(
    name="trl",
    summary="TRL's YAML of `trl sft`: transformers' training arguments, adapters",
    version="transformers 5.22, TRL (040e32d)",
    trainer=lambda recipe: "trl" if recipe.storage == "replicated" else "fsdp",
    format=YAML,
    file="sft.yaml",
    table=(
        checkpoint("model_name_or_path"),
        *BATCHES,
        Same("max_length", "sequence", 1024, others=("max_seq_length",)),
        SHARDED,
        Formula(("bf16", "fp16", "dtype", "torch_dtype"), _precision, _read_precision),
        Formula(
            (
                *("use_peft", "lora_r", "load_in_8bit", "load_in_4bit", "bnb_4bit_quant_type", "use_bnb_nested_quant"),
                "bnb_4bit_quant_storage",
            ),
            _adapters,
            _read_adapters,
        ),
        variants(dora="use_dora", rslora="use_rslora"),
        targets("lora_target_modules", "all-linear", saved="lora_modules_to_save"),
        checkpointing("block"),
        COMPILED,
        liger("use_liger_kernel"),
        optimizers("optim"),
    ),
    telling=("dataset_name",),
    free=(*FREE.split(), *_FREE.split()),
    refused=_REFUSED,
    elsewhere={"task": "the command: `trl dpo`, `trl reward`, `trl grpo`", "answers": "num_generations"},
    fixed=lambda recipe: {"output_dir": "outputs", "dataset_name": "trl-lib/Capybara", "packing": True},
    launcher="torchrun",
    own="trl sft",
    command=lambda document, file: [f"--config {shlex.quote(file)}"],
)
