"""What other tools call the things of a plan. Only suggestions use it: plans have one word for each thing.

Words are listed without - _ = and :, and without a number at their end; `{n}` is that number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from foretell.errors import UnknownName, unknown

POLICIES: Final = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "single": "fp32",
    "amp": "amp_bf16",
    "ampbf": "amp_bf16",
    "autocast": "amp_bf16",
    "mixedprecision": "amp_bf16",
    "accumulate": "m{n}",
    "accumulation": "m{n}",
    "gradaccum": "m{n}",
    "gradientaccumulation": "m{n}",
    "gradientaccumulationsteps": "m{n}",
    "microbatches": "m{n}",
    "ac": "recompute:block",
    "activationcheckpointing": "recompute:block",
    "checkpoint": "recompute:block",
    "checkpointing": "recompute:block",
    "gradientcheckpointing": "recompute:block",
    "recomputation": "recompute:block",
}
"""Another word, and the policy."""

OPTIONS: Final = {
    "fsdp": ("dp", "zero3"),
    "zero": ("dp", "zero3"),
    "zero1": ("dp", "zero1"),
    "zero2": ("dp", "zero2"),
    "zero3": ("dp", "zero3"),
    "ep": ("dp", "ep{n}"),
    "expertparallel": ("dp", "ep{n}"),
    "sp": ("tp", "sp"),
    "sequenceparallel": ("tp", "sp"),
    "ulysses": ("cp", "alltoall"),
    "ringattention": ("cp", "ring"),
    "vpp": ("pp", "interleaved,v{n}"),
    "virtualpipeline": ("pp", "interleaved,v{n}"),
}
"""Another word, the axis it belongs to, and its option there."""


class Meant(NamedTuple):
    """An option of an axis, and the ranks that were written with it ("" if none were)."""

    axis: str
    option: str
    ranks: str


def policy(text: str) -> str:
    """The policy that a word from elsewhere means, without its +; nothing if it is none."""
    word, number = _parts(text, POLICIES)
    return POLICIES[word].replace("{n}", number or "2") if word else ""


def option(text: str) -> Meant | None:
    """The option that a word from elsewhere means, with the options that are written after it."""
    first, comma, more = text.partition(",")
    word, number = _parts(first, OPTIONS)
    if not word:
        return None
    axis, said = OPTIONS[word]
    ranks = number if "{n}" not in said or axis == "dp" else ""  # ep64 is among 64 ranks of dp at least
    return Meant(axis, said.replace("{n}", number or "2") + comma + more, ranks)


def _parts(text: str, known: dict[str, str] | dict[str, tuple[str, str]]) -> tuple[str, str]:
    """The word of a text and the number at its end; a word that ends in digits goes first."""
    plain = re.sub("[-_=:+]", "", text.lower())
    if plain in known:
        return plain, ""
    form = re.fullmatch("([a-z]+)([1-9][0-9]{0,5})", plain)
    return (form[1], form[2]) if form and form[1] in known else ("", "")


def unknown_part(word: str, known: Iterable[str], axes: Iterable[str] = ()) -> UnknownName:
    """The error for a word that names no strategy or policy; an option of one is for --fix, with its ranks."""
    meant, chosen = option(word), policy(word)
    if meant is not None:
        fix = f"{meant.axis}; of its options one is fixed, with the ranks: --fix '{meant.axis}8:{meant.option}'"
    elif chosen:
        fix = f"{chosen.partition(':')[0]}; or fixed: --fix '+{chosen}'"
    elif ":" in word or word.startswith("+"):
        axis, _, said = word.partition(":")
        plan = f"{axis}8:{said}" if axis in axes else f"+{word}" if re.match("[a-z]+:", word) else word
        fix = f"{re.split('[+0-9:]', word.lstrip('+'))[0]}; or fixed: --fix '{plan}'"
    else:
        return unknown("strategy or policy", word, known)
    return UnknownName(f"no strategy or policy is called {word!r}", fix=fix)
