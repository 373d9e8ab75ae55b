"""Which trainer a published run of a language model ran under, from its framework and year.

A framework that no trainer describes is taken for the one that runs such plans, and that is said: what is wrong with
it is what other people's software has in common.
"""

from __future__ import annotations

import re
from typing import Final

from foretell.plan.trainer import Trainer, trainer
from foretell.validation.study import Line, whole_or

NEWEST: Final = 9999
"""A blank year is the newest software."""

FRAMEWORKS: Final[tuple[tuple[str, str], ...]] = (
    (r"fsdp.*torchtune", "fsdp"),
    (r"torchtune, logits whole", "pytorch"),  # without the loss in chunks that its recipes have
    (r"torchtune", "torchtune"),
    (r"litgpt.*fsdp", "litgpt"),
    (r"automodel", "fsdp"),  # NeMo AutoModel runs models of Hugging Face under FSDP2, not under Megatron-Core
    (r"maxtext", "maxtext"),
    (r"paddle", "paddlenlp"),
    (r"jax|xla|paxml|levanter", ""),
    (r"zero.?bubble|megatron-lm fork", "zero-bubble"),
    (r"metaseq|megascale|colossal", ""),
    (r"composer|llm-foundry|llm foundry", "llm-foundry"),
    (r"torchtitan", "torchtitan"),
    (r"nanotron", "nanotron"),
    (r"neox|megatron-deepspeed|megatron\+deepspeed", "megatron-deepspeed"),
    (r"deepspeed", "deepspeed"),
    (r"nemo megatron", "megatron-lm-2023"),
    (r"nemo|bridge", "nemo"),
    (r"megatron-core|\bte \d", "megatron-core"),
    (r"megatron", "megatron-lm"),
    (r"fsdp", "fsdp"),
    (r"internevo", "internevo"),
    (r"apex", "nvidia-bert"),  # NVIDIA's own scripts of BERT
    (r"nvfuser", "pytorch-1"),
    (r"pytorch|ddp", "pytorch"),
)
"""Pattern to trainer, the first that is found; empty for those that no trainer describes, whatever else they name."""


def trainer_of(line: Line) -> tuple[Trainer, tuple[str, ...]]:
    """The trainer of a line, and what is assumed about it."""
    framework = line.get("framework", "")
    found = next((name for pattern, name in FRAMEWORKS if re.search(pattern, framework.lower())), "")
    made = trainer(_of_its_time(found or _nearest(line), whole_or(line, "year", NEWEST), line))
    said = f"framework: {made.name} (no trainer describes {framework or 'a blank'}; it runs such plans)"
    return made, () if found else (said,)


def _nearest(line: Line) -> str:
    if re.search(r"jax|xla|paxml|levanter", line.get("framework", "").lower()):
        return "maxtext"
    if whole_or(line, "tp", 1) > 1 or whole_or(line, "pp", 1) > 1:
        return "megatron-lm"
    return "fsdp" if whole_or(line, "zero_stage", 0) > 1 else "pytorch"


def _of_its_time(found: str, year: int, line: Line) -> str:
    if found == "nvidia-bert" and year <= 2020:
        return "nvidia-bert-2020"
    if line.get("source") == "qwen-readme" and line.get("method", "").startswith("LoRA") and line.get("dp") == "1":
        return "pytorch"  # finetune/finetune_lora_single_gpu.sh: no DeepSpeed, as in all its others
    if found == "deepspeed" and year <= 2021:
        return "deepspeed-2021"
    if found == "megatron-deepspeed" and year <= 2022:
        return "megatron-deepspeed-2022"
    if found == "torchtitan" and (year <= 2024 or " 0.0." in line.get("framework", "")):
        return "torchtitan-2024"
    if found == "torchtitan" and year <= 2025:
        return "torchtitan-2025"
    if found == "nemo" and whole_or(line, "zero_stage", 0) > 1:
        return "megatron-core"  # its recipes with Megatron-FSDP
    if found != "megatron-lm":
        return found
    if year >= 2024:
        return "megatron-core"
    newer = line.get("sequence_parallel") == "1" or (whole_or(line, "zero_stage", 0) > 0)
    if year >= 2023 or newer:
        return "megatron-lm-2023"
    return "megatron-lm-2021" if year >= 2021 or whole_or(line, "pp", 1) > 1 else "megatron-lm-2019"
