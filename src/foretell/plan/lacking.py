"""Kernels that a container has not built, as words behind a trainer's name: `megatron-core:without=norms+attention`.

What runs in their place is counted from the code that does, byte by byte, and not fitted. Attention with its scores
stored is a word of the model too (`:attention=math`), which also says what is saved of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from foretell.errors import BadInput, unknown

if TYPE_CHECKING:
    from foretell.plan.trainer import Trainer

MARK: Final = ":without="

WRITTEN_OUT: Final = 40.0
"""Passes over the hidden tensor in 16 bits of a layer whose two RMS norms are written out: 8 of Megatron-LM's layers,
and 32 more, since a norm reads and writes 36 bytes of each element (to fp32 6, square 8, mean 4, scaled 8, back 6,
times the weight 4) and a fused one 4."""

SOFTMAX: Final = 28.0
"""Bytes of a score in 16 bits whose softmax is written out: to fp32 6, mask 8, softmax 8, back 6."""


class LackingKernel(NamedTuple):
    """What is without it."""

    what: str
    source: str
    keys: tuple[str, ...]  # constants that it changes
    change: Callable[[Trainer], Trainer]


def _norms(made: Trainer) -> Trainer:
    if made.kept.norms == "written":  # the program has their lines
        return made
    passes = tuple((word, max(own, WRITTEN_OUT)) for word, own in made.fusion.hidden_passes)
    return msgspec.structs.replace(made, fusion=msgspec.structs.replace(made.fusion, hidden_passes=passes))


def _attention(made: Trainer) -> Trainer:
    return msgspec.structs.replace(made, attention=msgspec.structs.replace(made.attention, kernel="unfused"))


def _softmax(made: Trainer) -> Trainer:
    score = max(made.attention.score_bytes, SOFTMAX)
    attention = msgspec.structs.replace(made.attention, kernel="unfused", score_bytes=score)
    return msgspec.structs.replace(made, attention=attention)


LACKING: Final = {
    "norms": LackingKernel(
        "RMS norms are written out in fp32, one small kernel after the other",
        "counted: RMSNorm of meta-llama/llama, llama/model.py (_norm, forward)",
        ("fusion.hidden_passes",),
        _norms,
    ),
    "attention": LackingKernel(
        "attention stores its scores; scale, mask and softmax are one kernel",
        "Megatron-LM, megatron/fused_kernels: scaled_upper_triang_masked_softmax",
        ("attention.kernel",),
        _attention,
    ),
    "softmax": LackingKernel(
        "attention stores its scores; cast, mask and softmax are written out",
        "counted: Megatron-LM, megatron/model/fused_softmax.py, forward_torch_softmax",
        ("attention.kernel", "attention.score_bytes"),
        _softmax,
    ),
}


def split(name: str) -> tuple[str, tuple[str, ...]]:
    """The trainer's name, and the kernels that are not built."""
    base, mark, words = name.partition(MARK)
    lacks = tuple(words.split("+")) if mark else ()
    for word in lacks:
        if word not in LACKING:
            raise unknown("kernel", word, LACKING).within("--trainer")
    once = "+".join(dict.fromkeys(lacks))
    if mark and once != words:
        raise BadInput(f"a kernel stands twice in {words}", where="--trainer", fix=f"{base}{MARK}{once}")
    return base, lacks


def without(made: Trainer, lacks: tuple[str, ...]) -> Trainer:
    """The trainer in a container that has not built these kernels."""
    sources = dict(made.sources)
    found = made
    for word in lacks:
        lack = LACKING[word]
        before, found = found, lack.change(found)
        sources |= {key: lack.source for key in lack.keys if found.constant(key) != before.constant(key)}
    told = "; ".join(LACKING[word].what for word in lacks)
    return msgspec.structs.replace(
        found,
        name=f"{made.name}{MARK}{'+'.join(lacks)}",
        summary=f"{made.summary}; {told}",
        based_on=made.name,
        sources=tuple(sources.items()),
    )
