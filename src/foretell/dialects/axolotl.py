"""Axolotl: the YAML of `axolotl train`.

Field names: Axolotl 00564c8, src/axolotl/utils/schemas/peft.py; those of batches, FSDP and precision are by published
configurations, and so is what follows, not looked up in its sources. Its loader takes weights in the type that `bf16`
or `fp16` says, so without adapters all of them are trained in 16 bits. ZeRO 1 is in a file of DeepSpeed that comes
with it; shares of gradients and weights are written as FSDP2.
"""

from __future__ import annotations

import difflib
import re
import shlex
from typing import Any, Final, cast

from foretell.dialects._adapters import checkpoint, optimizers, targets, variants
from foretell.dialects._arguments import CHECKPOINTING, COMPILED
from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import YAML
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import NOTES, Document, Figures, Formula, KeyChoice, Same
from foretell.errors import BadInput

_FSDP = "fsdp_config."
_CAST = "peft_autocast_adapter_dtype"


def _precision(recipe: Recipe) -> Document:
    return {"bf16": "bf16" in recipe.precision, "fp16": "fp16" in recipe.precision}


def _read_precision(document: Document) -> Figures:
    """Unless it is turned off, bf16 is taken where the device has it."""
    if document.get("fp16"):
        return {"precision": "fp16" if document.get("adapter") else "amp_fp16"}
    if document.get("bf16") is False:
        return {"precision": "fp32"}
    return {"precision": "bf16" if document.get("adapter") else "bf16:pure"}


def _adapters(recipe: Recipe) -> Document:
    if not recipe.adapter:
        return {}
    quantized = recipe.base in ("nf4", "nf4-dq")
    document: Document = {"adapter": "qlora" if quantized else "lora", "lora_r": recipe.adapter}
    document |= {"lora_alpha": 2 * recipe.adapter, "lora_dropout": 0.0, _CAST: recipe.wide_adapters}
    if quantized:
        document |= {"load_in_4bit": True, "bnb_config_kwargs.bnb_4bit_use_double_quant": recipe.base == "nf4-dq"}
    elif recipe.base == "int8":
        document["load_in_8bit"] = True
    return document


def _read_adapters(document: Document) -> Figures:
    kind = document.get("adapter")
    if not kind:
        return {"adapter": 0}
    if kind not in ("lora", "qlora"):
        raise BadInput(f"adapter is {kind}, which no plan has", fix="lora or qlora")
    if kind == "qlora" and not document.get("load_in_4bit"):
        said = [key for key in document if key not in ("load_in_4bit", "load_in_8bit")]
        close = difflib.get_close_matches("load_in_4bit", said, 1)
        what = "adapter is qlora, and no load_in_4bit says that its base is in 4 bits"
        raise BadInput(what, fix=f"load_in_4bit in place of {close[0]}" if close else "load_in_4bit: true, or lora")
    figures: Figures = {
        "adapter": document.get("lora_r", 8),
        "base": "int8" if document.get("load_in_8bit") else "",
        "wide_adapters": document.get(_CAST) is not False,
    }
    if document.get("load_in_4bit"):  # loaders/model.py asks bitsandbytes for it unless told otherwise
        double = document.get("bnb_config_kwargs.bnb_4bit_use_double_quant", True)
        figures["base"] = "nf4-dq" if double else "nf4"
    return figures


_TARGETS = targets("lora_target_modules", "all-linear", saved="lora_modules_to_save")


def _where(recipe: Recipe) -> Document:
    """A word of its own says all dense layers."""
    document = _TARGETS.write(recipe)
    if document.get("lora_target_modules") != "all-linear":
        return document
    del document["lora_target_modules"]
    return {"lora_target_linear": True, **document}


def _read_where(document: Document) -> Figures:
    if document.get("lora_target_linear"):
        document = {**document, "lora_target_modules": "all-linear"}
    return _TARGETS.read(document)


def _storage(recipe: Recipe) -> Document:
    if recipe.storage == "replicated":
        return {}
    if recipe.storage == "zero1":
        return {"deepspeed": "deepspeed_configs/zero1.json"}
    return {
        "fsdp_version": 2,
        f"{_FSDP}auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        f"{_FSDP}reshard_after_forward": recipe.storage == "zero3",
        f"{_FSDP}offload_params": "weights" in recipe.offload,
    }


def _read_storage(document: Document) -> Figures:
    figures: Figures = {"storage": "replicated", "offload": (), "tensor": 1, "context": 1, "pipeline": 1}
    said = document.get("deepspeed")
    if said:
        found = re.search(r"zero_?([1-3])", str(said))
        if found is None:
            raise BadInput(f"{said} does not say its stage by its name", fix=f"--from-config {said}")
        figures["storage"] = f"zero{found[1]}"
        if "offload" in str(said):
            figures["offload"] = ("optimizer", "weights") if "all" in str(said) else ("optimizer",)
        if found[1] != "1":
            figures[NOTES] = (f"{said} is DeepSpeed's: predicted with FSDP2, which keeps the same in shares",)
        return figures
    options = {key.removeprefix(_FSDP).removeprefix("fsdp_"): value for key, value in document.items()
               if key.startswith(_FSDP)}  # fmt: skip
    if not options and not document.get("fsdp"):
        return figures
    zero2 = options.get("reshard_after_forward") is False or options.get("sharding_strategy") == "SHARD_GRAD_OP"
    figures["storage"] = "zero2" if zero2 else "zero3"
    if options.get("offload_params"):
        figures["offload"] = ("optimizer", "weights")
    return figures


_FUSED: Final = "liger_fused_linear_cross_entropy"
_LIGER: Final = "axolotl.integrations.liger.LigerPlugin"


def _loss(recipe: Recipe) -> Document:
    return {"plugins": [_LIGER], _FUSED: True} if recipe.loss == "chunks" else {}


def _read_loss(document: Document) -> Figures:
    """Keys of a plugin mean nothing without it (Axolotl main, src/axolotl/integrations/liger/args.py)."""
    said: Any = document.get("plugins") or []
    plugins = [str(one) for one in cast("list[Any]", said if isinstance(said, list) else [said])]
    others = ", ".join(one for one in plugins if one != _LIGER)
    notes = (f"plugins has {others}, which may change the cost",) if others else ()
    fused = bool(document.get(_FUSED))
    if fused and _LIGER not in plugins:
        notes += (f"{_FUSED} is not read: plugins has no {_LIGER}",)
    return {"loss": "chunks" if fused and _LIGER in plugins else "", NOTES: notes}


def _answers(recipe: Recipe) -> Document:
    return {"trl.num_generations": recipe.answers} if recipe.task == "grpo" else {}


def _read_answers(document: Document) -> Figures:
    """Eight, where a file does not say it: TRL 1.16.0, trl/trainer/grpo_config.py."""
    return {"answers": document.get("trl.num_generations") or 8} if document.get("rl") == "grpo" else {"answers": 0}


_OPTIONS = ("auto_wrap_policy", "reshard_after_forward", "offload_params")

_FREE = """
    adam_* auto_resume_from_checkpoints chat_template* cosine_* curriculum_sampling dataloader_* dataset* datasets ddp_*
    debug early_stopping_patience eval* evals_per_epoch flash_attention* fsdp_config.*state_dict_type
    fsdp_config.*cpu_ram_efficient_loading fsdp_config.*transformer_layer_cls_to_wrap fsdp_config.*sync_module_states
    fsdp_config.*use_orig_params fsdp_config.*limit_all_gathers gradient_checkpointing_kwargs* group_by_length=False
    hub_* learning_rate local_rank logging_steps lora_alpha lora_dropout lora_fan_in_fan_out
    lora_model_dir loss_watchdog_* lr_scheduler* max_grad_norm max_steps mlflow_* model_type num_epochs output_dir
    pad_to_sequence_len resume_from_checkpoint sample_packing=True eval_sample_packing
    save_* saves_per_epoch sdp_attention seed shuffle_merged_datasets special_tokens* strict test_datasets tf32
    tokenizer_* tokens torchdistx_path train_on_inputs trust_remote_code val_set_size wandb_* warmup_* weight_decay
    xformers_attention eager_attention=False is_*_derived_model dataset_prepared_path
"""

_REFUSED = {
    "peft.weight_dtype": "weights that torchao or bitsandbytes is told by `peft` | load_in_4bit: true",
    "lora_target_parameters": "adapters beside weights that are no layers, which no plan names | lora_target_linear",
    "relora": "adapters that are merged on the way, which no plan has | without relora",
    "gptq": "a base of GPTQ, which the plan says: +gptq4 | load_in_4bit: true",
    "context_parallel_size=[2-9]*": "ranks that share a sequence | a plan on the command line: cp2",
    "tensor_parallel_size=[2-9]*": "ranks that share a layer | a plan on the command line: tp2",
    "unfrozen_parameters": "weights by patterns of their names | all of them, or --plan '... +train:last4'",
}

_PAIRS = {"path": "Intel/orca_dpo_pairs", "split": "train", "type": "chatml.intel"}

DIALECT = Dialect(
    name="axolotl",
    summary="Axolotl's YAML: full, LoRA or QLoRA, with FSDP2",
    version="Axolotl main (00564c8)",
    trainer=lambda recipe: {"replicated": "axolotl", "zero1": "deepspeed"}.get(recipe.storage, "fsdp"),
    format=YAML,
    file="axolotl.yaml",
    table=(
        checkpoint("base_model"),
        Same("micro_batch_size", "micro_batch", 1),
        Same("gradient_accumulation_steps", "microbatches", 1),
        Same("sequence_len", "sequence", 512),
        Formula(("deepspeed", "fsdp", "fsdp_version", *(f"{_FSDP}{one}" for one in _OPTIONS)), _storage, _read_storage),
        Formula(("bf16", "fp16"), _precision, _read_precision),
        Formula(
            ("adapter", "lora_r", _CAST, "load_in_8bit", "load_in_4bit", "bnb_config_kwargs.bnb_4bit_use_double_quant"),
            _adapters,
            _read_adapters,
        ),
        variants(dora="peft_use_dora", rslora="peft_use_rslora"),
        Formula((*_TARGETS.keys, "lora_target_linear"), _where, _read_where),
        CHECKPOINTING,
        COMPILED,
        Formula(("plugins", _FUSED), _loss, _read_loss),
        optimizers("optimizer"),
        KeyChoice(
            "task",
            {"dpo": {"rl": "dpo"}, "grpo": {"rl": "grpo"}, "reward": {"reward_model": True}},
            default="",
            near=(("dpo", {"rl": "ipo"}, "rl: ipo is read as dpo, whose phases it has"),),
        ),
        Formula(("trl.num_generations",), _answers, _read_answers),
    ),
    free=tuple(_FREE.split()),
    refused=_REFUSED,
    fixed=lambda recipe: {
        "datasets": [_PAIRS if recipe.task else {"path": "tatsu-lab/alpaca", "type": "alpaca"}],
        "output_dir": "outputs",
        "sample_packing": not recipe.task,
        "flash_attention": True,
        "num_epochs": 1,
        "learning_rate": 2.0e-4,
    },
    own="axolotl train",
    command=lambda document, file: [shlex.quote(file)],
)
