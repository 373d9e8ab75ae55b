"""LLaMA-Factory: the YAML of `llamafactory-cli train`.

Field names: LLaMA-Factory 00577a8, src/llamafactory/hparams/finetuning_args.py; those of quantisation and data are by
its examples, and so is what follows, not looked up in its sources. Its loader keeps frozen weights in the type that
is computed in, and what is trained in fp32 unless `pure_bf16` says otherwise. ZeRO is in files of DeepSpeed that come
with it, whose names say the stage.
"""

from __future__ import annotations

import re
import shlex

from foretell.dialects._adapters import checkpoint, optimizers, targets, variants
from foretell.dialects._arguments import BATCHES, COMPILED, FREE, liger
from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import YAML
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, Figures, Formula, KeyChoice, Same
from foretell.errors import BadInput

_FOLDER = "examples/deepspeed"


def _precision(recipe: Recipe) -> Document:
    return {
        "bf16": "bf16" in recipe.precision,
        "fp16": "fp16" in recipe.precision,
        "pure_bf16": recipe.precision == "bf16:pure",
    }


def _read_precision(document: Document) -> Figures:
    """With adapters, or with ZeRO, weights are kept in 16 bits; else autocast runs over weights in fp32."""
    if document.get("pure_bf16"):
        return {"precision": "bf16:pure"}
    stored = _method(document) == "lora" or document.get("deepspeed")
    if document.get("bf16"):
        return {"precision": "bf16" if stored else "amp_bf16"}
    return {"precision": ("fp16" if stored else "amp_fp16") if document.get("fp16") else "fp32"}


def _method(document: Document) -> str:
    return str(document.get("finetuning_type", "lora"))


def _adapters(recipe: Recipe) -> Document:
    if recipe.last:
        return {"finetuning_type": "freeze", "freeze_trainable_layers": recipe.last}
    if not recipe.adapter:
        return {"finetuning_type": "full"}
    document: Document = {"finetuning_type": "lora", "lora_rank": recipe.adapter}
    if recipe.base in ("nf4", "nf4-dq", "fp4"):
        document |= {
            "quantization_bit": 4,
            "quantization_method": "bnb",
            "quantization_type": recipe.base.removesuffix("-dq"),
            "double_quantization": recipe.base == "nf4-dq",
        }
    elif recipe.base == "int8":
        document |= {"quantization_bit": 8, "quantization_method": "bnb"}
    return document


def _read_adapters(document: Document) -> Figures:
    method = _method(document)
    if method not in ("full", "lora", "freeze"):
        raise BadInput(f"finetuning_type is {method}, which no plan has", fix="full, lora or freeze")
    if method == "freeze":
        last = document.get("freeze_trainable_layers", 2)
        if not isinstance(last, int) or last < 1:
            raise BadInput(f"freeze_trainable_layers is {last}: the first layers, which no plan says", fix="2")
        return {"adapter": 0, "last": last}
    if method == "full":
        return {"adapter": 0, "last": 0}
    bits = document.get("quantization_bit")
    if bits not in (None, 4, 8):
        raise BadInput(f"quantization_bit is {bits}: no plan has a base of so many bits", fix="4 or 8")
    form = str(document.get("quantization_type", "nf4"))
    double = form == "nf4" and document.get("double_quantization", True)
    base = {None: "", 8: "int8"}.get(bits, "nf4-dq" if double else form)
    return {"adapter": document.get("lora_rank", 8), "wide_adapters": True, "base": base, "last": 0}


def _storage(recipe: Recipe) -> Document:
    if recipe.storage == "replicated":
        return {}
    offload = "_offload" if recipe.offload else ""
    return {"deepspeed": f"{_FOLDER}/ds_z{recipe.storage[-1]}{offload}_config.json"}


def _read_storage(document: Document) -> Figures:
    said = document.get("deepspeed")
    figures: Figures = {"storage": "replicated", "offload": (), "tensor": 1, "context": 1, "pipeline": 1}
    if not said:
        return figures
    found = re.search(r"(?:z|zero|stage)_?([0-3])", str(said))
    if found is None:
        raise BadInput(f"{said} does not say its stage by its name", fix=f"--from-config {said}")
    stage = int(found[1])
    figures["storage"] = f"zero{stage}" if stage else "replicated"
    if "offload" in str(said):
        figures["offload"] = ("optimizer", "weights") if stage == 3 else ("optimizer",)
    return figures


_FREE = """
    cutoff_len lora_alpha lora_dropout template trust_remote_code flash_attn packing=True
    neat_packing preprocessing_* mask_history train_on_prompt plot_loss val_size max_samples tokenized_path media_dir
    loraplus_* pissa_* create_new_adapter image_max_pixels video_max_pixels ray_* streaming mix_strategy
    use_swanlab swanlab_* double_quantization pref_beta pref_loss=sigmoid ref_model* reward_model*
    freeze_trainable_modules=all
"""

_REFUSED = {
    "freeze_extra_modules": "more weights that are trained, by name | --plan '... +train:last2,head'",
    "use_llama_pro": "layers that are added, which no plan has | without use_llama_pro",
    "use_apollo": "APOLLO, whose projections no plan has | without use_apollo",
    "use_galore": "GaLore, whose projections no plan has | without use_galore",
    "use_badam": "BAdam, which trains blocks in turn | without use_badam",
    "use_unsloth": "kernels of Unsloth, which no trainer here has | without use_unsloth",
    "fsdp": "FSDP by transformers' arguments | a file of Accelerate: --from-config accelerate.yaml",
}

DIALECT = Dialect(
    name="llama-factory",
    summary="LLaMA-Factory's YAML: full or LoRA, ZeRO by DeepSpeed",
    version="LLaMA-Factory main (00577a8)",
    trainer=lambda recipe: "llama-factory" if recipe.storage == "replicated" else "deepspeed",
    format=YAML,
    file="llama_factory.yaml",
    table=(
        checkpoint("model_name_or_path"),
        *BATCHES,
        Same("cutoff_len", "sequence", 2048),
        Formula(("deepspeed",), _storage, _read_storage),
        Formula(("bf16", "fp16", "pure_bf16"), _precision, _read_precision),
        Formula(
            (
                *("finetuning_type", "lora_rank", "quantization_bit", "quantization_method"),
                *("quantization_type", "double_quantization", "freeze_trainable_layers"),
            ),
            _adapters,
            _read_adapters,
        ),
        variants(dora="use_dora", rslora="use_rslora"),
        targets("lora_target", "all", saved="additional_target", as_text=True),
        KeyChoice(
            "recompute",
            {"none": {"disable_gradient_checkpointing": True}, "block": {"disable_gradient_checkpointing": False}},
            default="block",
        ),
        COMPILED,
        liger("enable_liger_kernel"),
        optimizers("optim"),
        KeyChoice(
            "task",
            {"": {"stage": "sft"}, "dpo": {"stage": "dpo"}, "reward": {"stage": "rm"}, "ppo": {"stage": "ppo"}},
            default="",
        ),
    ),
    telling=("dataset", "template"),
    free=(*FREE.split(), *_FREE.split()),
    refused=_REFUSED,
    fixed=lambda recipe: {
        "do_train": True,
        "dataset": "dpo_en_demo" if recipe.task in ("dpo", "reward") else "alpaca_en_demo",
        "template": "default",
        "packing": not recipe.task,
    },
    own="llamafactory-cli train",
    command=lambda document, file: [shlex.quote(file)],
)
