"""Columns of fine-tuning: adapters, what lies in host memory, the optimizer."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from foretell.validation.study import Line, Unmapped, whole

OFFLOADS: Final = {"activations offloaded": "activations", "CPU offload": "optimizer+weights"}
"""What comments of sources mean (the second is that of FSDP)."""

FULL: Final = ("", "full", "sft", "pretraining")


class Adapters(NamedTuple):
    """The policy of a plan, and what was assumed about it."""

    policy: str = ""
    assumed: tuple[str, ...] = ()


def adapters(line: Line) -> Adapters:
    """Adapters beside frozen weights, from `method`, `lora_rank` and `lora_targets`."""
    method = line.get("method", "").lower()
    if method in FULL:
        return Adapters()
    if re.match(r"q-?lora", method) or line.get("base_quantization"):
        raise Unmapped("frozen weights in 4 bits (QLoRA) cannot be written in the plan grammar")
    if "emb" in method:
        raise Unmapped("adapters with trained embeddings cannot be written in the plan grammar")
    if not method.startswith("lora"):
        raise Unmapped(f"method {line['method']} is not known")
    targets = line.get("lora_targets", "")
    everywhere = re.search(r"all|^$", targets)
    said = () if everywhere else (f"lora_targets: all dense layers ({targets} have adapters, which are small)",)
    return Adapters(f"+lora{whole(line, 'lora_rank')}", said)


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
    if re.search(r"[48]-bit", word):
        raise Unmapped(f"states of {line['optimizer']} cannot be written")
    if "muon" in word or "muon" in line.get("comment", "").lower():
        return "momentum", ("optimizer: momentum (Muon keeps as much; its own products are left out)",)
    return word or ("lamb" if "LAMB" in line.get("comment", "") else ""), ()
