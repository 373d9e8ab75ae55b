"""Numbers as people write them: 15T tokens, a batch of 4M, $2 an hour."""

from __future__ import annotations

import re
from typing import Final

import click

from foretell.errors import BadInput

SIZES: Final = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
"""Thousands, millions, billions (or giga) and trillions."""

_AMOUNT = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?) *([kmbgt]?)(?: *(tokens|samples))?", re.IGNORECASE)
_PRICE = re.compile(r"[$€£¥]? *([0-9][0-9_,]*(?:\.[0-9]+)?) *[$€£¥]?(?: *(?:/|an?|per) *(?:h|hr|hour|gpu-hour))?")


def amount(text: str) -> float | None:
    """15T as a number; None for what is none."""
    form = _AMOUNT.fullmatch(text.strip())
    return float(re.sub("[_,]", "", form[1])) * SIZES.get(form[2].lower(), 1.0) if form else None


def read_amount(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """A number, with K, M, B or T behind it if wished."""
    if text is None:
        return None
    found = amount(text)
    found = _plain(text) if found is None else found
    if found is None:
        raise BadInput(f"{text!r} is no number", where=f"--{option.name}", fix="15T, 300B, 1.5e13")
    return found


def read_price(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """A price, with or without the sign of a currency."""
    if text is None:
        return None
    form = _PRICE.fullmatch(text.strip())
    found = float(re.sub("[_,]", "", form[1])) if form else _plain(text)
    if found is None:
        raise BadInput(f"{text!r} is no price", where="--price", fix="2.5, or '$2.5': per GPU-hour")
    return found


def _plain(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_batch(context: click.Context, option: click.Parameter, text: str | None) -> int | str | None:
    """A whole number of samples; or of tokens, `4M`, which is left as it was typed until the sequence is known."""
    if text is None:
        return None
    if re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text):
        return int(text)
    if of_tokens(text):
        return text.strip()
    fix = "64: samples of all ranks together; 4M: tokens"
    raise BadInput(f"{text!r} is no number of samples", where="--batch", fix=fix)


def of_tokens(text: str) -> bool:
    """Whether a text says tokens and not samples: 4M, 512k, 4194304 tokens."""
    form = _AMOUNT.fullmatch(text.strip())
    return form is not None and (form[3] or "").lower() != "samples" and bool(form[2] or form[3])


def in_samples(text: str, model: str, seq: int | None) -> tuple[int, str]:
    """The number of sequences that people mean by so many tokens, and what it became in words.

    4M tokens in sequences of 8,192 are 512 of them, 4,194,304 tokens, and not 488: a batch has to divide among ranks.
    """
    from foretell.oracle.batches import sequence_of

    tokens, length = amount(text) or 0.0, sequence_of(model, seq or 0)
    if not length:
        what = f"a batch of {text} tokens, and {model} has no sequences"
        raise BadInput(what, where="--batch", fix="a number of samples: --batch 256")
    count = round(tokens / length)
    if count < 1:
        what = f"a batch of {text} tokens is less than one sequence of {length:,}"
        raise BadInput(what, where="--batch", fix=f"--batch 1, or --seq {max(1, int(tokens))}")
    even = count if count * length == tokens else _even(count)
    said = f"--batch {text}: {even:,} sequences of {length:,} tokens, {even * length:,} in all"
    return even, said if even == count else f"{said}; --batch {count} is nearer and divides among fewer ranks"


NEAR: Final = 0.05
"""How far an even number may be from the one that was asked for to be offered."""


def _even(count: int) -> int:
    """The number near this one with the most factors of two: what people mean by 4M tokens is mostly 512 x 8,192."""
    for power in range(count.bit_length(), 0, -1):
        near = round(count / 2**power) * 2**power
        if abs(near - count) <= NEAR * count:
            return near
    return count
