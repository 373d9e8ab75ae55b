"""transformers' training arguments, as files of TRL and LLaMA-Factory have them too: batches, FSDP, checkpointing.

Field names: transformers 5.22, training_args.py; keys of `fsdp_config` as trainer.py reads them (a leading `fsdp_` may
be there or not).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from foretell.dialects._recipe import Recipe
from foretell.dialects._table import NOTES, Correspondence, Document, Figures, Formula, KeyChoice, Same
from foretell.errors import BadInput

_FSDP: Final = "fsdp_config."

BATCHES: Final[tuple[Correspondence, ...]] = (
    Same("per_device_train_batch_size", "micro_batch", 8),
    Same("gradient_accumulation_steps", "microbatches", 1),
)
"""Eight samples and no accumulation, where a file does not say it: TrainingArguments' own defaults."""

CHECKPOINTING: Final = KeyChoice(
    "recompute",
    {"block": {"gradient_checkpointing": True}, "none": {"gradient_checkpointing": False}},
    default="none",
)

COMPILED: Final = KeyChoice(
    "execution",
    {"compiled": {"torch_compile": True}},
    default="trainer",
    also=(("trainer", {"torch_compile": False}),),
)


def liger(key: str) -> Formula:
    """Liger's kernels, all by one key: of these the plan has the loss.

    Liger-Kernel (00eba63), src/liger_kernel/transformers/monkey_patch.py: `fused_linear_cross_entropy` is on unless it
    is turned off, and so are its rotary positions, norms and SwiGLU.
    """

    def read(document: Document) -> Figures:
        if not document.get(key):
            return {"loss": ""}
        told = f"{key} is read as +loss:chunks; Liger's norms, rotary positions and SwiGLU are in no plan"
        return {"loss": "chunks", NOTES: (told,)}

    return Formula((key,), lambda recipe: {key: True} if recipe.loss == "chunks" else {}, read)


def _write(recipe: Recipe) -> Document:
    if recipe.storage == "replicated":
        return {}
    whole = "full_shard" if recipe.storage == "zero3" else "shard_grad_op"
    return {
        "fsdp": f"{whole} {'offload ' if 'weights' in recipe.offload else ''}auto_wrap",
        f"{_FSDP}version": 2,
        f"{_FSDP}reshard_after_forward": recipe.storage == "zero3",
        f"{_FSDP}auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    }


def _read(document: Document) -> Figures:
    said = document.get("fsdp")
    options = str(said).replace(",", " ").split() if said not in (None, False, "") else []
    figures: Figures = {"storage": "replicated", "offload": (), "tensor": 1, "context": 1, "pipeline": 1}
    if not options:
        return figures
    strange = sorted(set(options) - {"full_shard", "shard_grad_op", "offload", "auto_wrap", "True", "no_shard"})
    if strange:
        raise BadInput(f"fsdp is {said}", fix="full_shard auto_wrap, or shard_grad_op auto_wrap")
    if "no_shard" in options:
        return figures
    reshard = _option(document, "reshard_after_forward")
    zero2 = "shard_grad_op" in options or reshard in (False, "SHARD_GRAD_OP")
    figures["storage"] = "zero2" if zero2 else "zero3"
    if "offload" in options or _option(document, "cpu_offload"):
        figures["offload"] = ("optimizer", "weights")
    if _option(document, "activation_checkpointing"):
        figures |= {
            "recompute": "block",
            NOTES: ("fsdp_config has activation_checkpointing: read as +recompute:block",),
        }
    return figures


def _option(document: Document, name: str) -> Any:
    return document.get(f"{_FSDP}{name}", document.get(f"{_FSDP}fsdp_{name}"))


_OPTIONS = ("version", "reshard_after_forward", "auto_wrap_policy", "cpu_offload", "activation_checkpointing")

SHARDED: Final = Formula(
    ("fsdp", *(f"{_FSDP}{before}{name}" for name in _OPTIONS for before in ("", "fsdp_"))), _write, _read
)
"""FSDP2 among all ranks, or a copy on each. What DeepSpeed does is in a file of its own."""


def checkpointing(default: str) -> Formula:
    """`default` where a file does not say it; where FSDP runs blocks again, that is already read."""
    choice = dataclasses.replace(CHECKPOINTING, default=default)

    def read(document: Document) -> Figures:
        return {} if _option(document, "activation_checkpointing") else choice.read(document)

    return Formula(choice.keys, choice.write, read)


DEEPSPEED: Final = {
    "deepspeed": "a file of DeepSpeed's own says how states are kept | --from-config with that file",
}

FREE: Final = """
    accelerator_config adam_* average_tokens_across_devices batch_eval_metrics bf16_full_eval data_seed dataloader_*
    dataset* ddp_* debug disable_tqdm do_* eval_* enable_jit_checkpoint fp16_full_eval full_determinism
    fsdp_config.*cpu_ram_efficient_loading fsdp_config.*transformer_layer_cls_to_wrap fsdp_config.*sync_module_states
    fsdp_config.*use_orig_params fsdp_config.*state_dict_type fsdp_config.*backward_prefetch*
    fsdp_config.*min_num_params fsdp_config.*forward_prefetch
    gradient_checkpointing_kwargs* greater_is_better hub_* ignore_data_skip include_* label_names
    label_smoothing_factor learning_rate load_best_model_at_end local_rank log_* logging_* lr_scheduler_* max_grad_norm
    max_steps metric_for_best_model num_train_epochs output_dir overwrite_output_dir per_device_eval_batch_size
    prediction_loss_only project push_to_hub remove_unused_columns report_to resume_from_checkpoint run_name save_* seed
    skip_memory_metrics tf32 torch_compile_* trackio_* use_cache=False warmup_* weight_decay
"""
"""Keys that change no cost of a step, or too little to tell."""
