"""Columns of fine-tuning: adapters, what lies in host memory, the optimizer."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from foretell.model.adapters import TARGETS
from foretell.validation.studies._spelling import update_rule
from foretell.validation.study import Line, Unmapped, whole

OFFLOADS: Final = {"activations offloaded": "activations", "CPU offload": "optimizer+weights"}
"""What comments of sources mean (the second is that of FSDP)."""

BASES: Final = {r"nf4-dq": "nf4-dq", r"nf4": "nf4", r"fp4": "fp4", r"gptq": "gptq4"}
"""What columns call forms of frozen weights, the narrower first."""

FP8_PARAMS: Final = "base_quantization: fp8_params is on with fp8 (NVIDIA's llama2_70b_lora of the round before, v4.0)"
"""In v4.0 its conf/megatron_gpt_peft_tuning_config.yaml says so; that of v4.1 was not seen."""

FULL: Final = ("", "full", "sft", "pretraining")


class Adapters(NamedTuple):
    """The policy of a plan, and what was assumed about it."""

    policy: str = ""
    assumed: tuple[str, ...] = ()


def adapters(line: Line) -> Adapters:
    """Adapters beside frozen weights, from `method`, `lora_rank`, `lora_targets` and `base_quantization`."""
    method = line.get("method", "").lower()
    if method in FULL:
        return Adapters()
    if not re.match(r"q-?lora|lora", method):
        raise Unmapped(f"method {line['method']} is not known")
    where = [*_targets(line.get("lora_targets", "")), *(["embeddings"] if "emb" in method else [])]
    base, said = _base(line, method)
    words = (f"+lora{whole(line, 'lora_rank')}", f"+adapt:{','.join(where)}" if where else "", base)
    return Adapters(" ".join(filter(None, words)), said)


def _targets(text: str) -> list[str]:
    """Which layers have adapters: none said, or all, are all dense ones."""
    if re.search(r"all|^$", text):
        return []
    if re.search(r"qkv|attention", text):
        return ["attention"]
    found = [word for word, names in TARGETS.items() if {*re.findall(r"\w+", text)} & {*names}]
    if not found:
        raise Unmapped(f"lora_targets {text} are not known")
    return found


def _base(line: Line, method: str) -> tuple[str, tuple[str, ...]]:
    """The form of the frozen weights, and what was assumed about it."""
    text = line.get("base_quantization", "").lower()
    word = next((word for pattern, word in BASES.items() if re.search(pattern, text)), "")
    if text and not word:
        raise Unmapped(f"base_quantization {text} is not known")
    if not word and re.search(r"nemo.*mlperf", line.get("framework", "").lower()) and line.get("precision") == "fp8":
        return "+fp8-weights", () if "v4.0" in line.get("source", "") else (FP8_PARAMS,)
    if word or not method.startswith("q"):
        return f"+{word}" if word else "", ()
    return "+nf4-dq", ("base_quantization: nf4 with double quantisation (as in the paper of QLoRA)",)


def offload(line: Line) -> str:
    """What lies in host memory: words of the plan grammar joined by +, or 0."""
    word, comment = line.get("offload", ""), line.get("comment", "")
    if word in ("", "0", "none"):
        return ""
    if word == "1":
        word = next((meaning for said, meaning in OFFLOADS.items() if said in comment), "")
        if not word:
            raise Unmapped("offload does not say what: optimizer, activations, weights")
    unknown = [part for part in word.split("+") if part not in ("optimizer", "activations", "weights")]
    if unknown:
        raise Unmapped(f"offload {unknown[0]} is not known: optimizer, activations, weights")
    return f"+offload:{word.replace('+', ',')}"


def optimizer(line: Line) -> tuple[str, tuple[str, ...]]:
    """The optimizer's name (empty: the trainer's own), and what was assumed about it."""
    word = line.get("optimizer", "").lower()
    if "optimizer choice not in the table" in line.get("comment", ""):
        raise Unmapped("optimizer is not stated")
    if "muon" in word or "muon" in line.get("comment", "").lower():
        return "muon", ()
    return update_rule(word) or ("lamb" if "LAMB" in line.get("comment", "") else ""), ()
