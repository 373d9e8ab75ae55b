"""Which trainer a published run of a language model ran under, from its framework and year."""

from __future__ import annotations

import re
from typing import Final

from foretell.plan.trainer import Trainer, trainer
from foretell.validation.study import Line, Unmapped, stated, whole_or

NEWEST: Final = 9999
"""A blank year is the newest software."""

FRAMEWORKS: Final[tuple[tuple[str, str], ...]] = (
    (r"automodel", "fsdp"),  # NeMo AutoModel runs models of Hugging Face under FSDP2, not under Megatron-Core
    (r"maxtext", "maxtext"),
    (r"paddle", "paddlepaddle"),
    (r"jax|xla", ""),
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
    (r"pytorch|ddp", "pytorch"),
)
"""Pattern to trainer, the first that is found; empty for frameworks that no trainer describes."""


def trainer_of(line: Line) -> Trainer:
    """The trainer of a line."""
    framework = stated(line, "framework").lower()
    found = next((name for pattern, name in FRAMEWORKS if re.search(pattern, framework)), "")
    if not found:
        raise Unmapped(f"no trainer describes {line['framework']}")
    return trainer(_of_its_time(found, whole_or(line, "year", NEWEST), line))


def _of_its_time(found: str, year: int, line: Line) -> str:
    if found == "deepspeed" and year <= 2021:
        return "deepspeed-2021"
    if found == "megatron-deepspeed" and year <= 2022:
        return "megatron-deepspeed-2022"
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
