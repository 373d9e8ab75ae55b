"""Every constant that was chosen with measured runs in view, with its source: none belongs to one run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from foretell.hardware import members
from foretell.oracle.bands import anchored, bands
from foretell.plan.trainer import CONSTANTS, names, trainer

WORDS: Final = ("fit to", "fits to", "fitted", "one set of constants", "level that fits", "published runs", "chosen")
"""A source with one of these tells of measured runs; others are read off code, data sheets and single kernels."""


class Constant(msgspec.Struct, frozen=True):
    """A number (or a small table of them) and where it comes from."""

    owner: str  # trainer, kernels, bands
    name: str
    value: str
    source: str


def fitted() -> Iterator[Constant]:
    """All of them, by who has them."""
    for name in names():
        made = trainer(name)
        if made.name == name:  # other names for a trainer have nothing of their own
            sources = dict(made.sources)
            for key in CONSTANTS:
                source = sources[key]
                if not source.startswith("carried over") and _told(source):
                    yield Constant(f"trainer {name}", key, str(made.constant(key)), source)
    measured = [(name, members.architecture(name).reached) for name in members.names("architectures")]
    measured += [(name, members.device(name).reached) for name in members.names("devices")]
    for name, own in measured:
        for unit, reached in own.items():
            if _told(reached.source):
                yield Constant("kernels", f"{name} {unit}", f"{reached.products:g}", reached.source)
    for title, learnt in (("predicted", bands().predicted), ("anchored", anchored())):
        source = f"learnt from {learnt.runs:,} runs of {learnt.sources} sources"
        for reason, width in {**learnt.widths, "stretch": learnt.stretch}.items():
            yield Constant("bands", f"{title} {reason}", f"{width:g}", source)
    for effect, variance in msgspec.structs.asdict(bands().carried).items():
        yield Constant("bands", f"carried {effect}", f"{variance:g}", "learnt from pairs of runs, sources left out")


def _told(source: str) -> bool:
    return any(word in source.lower() for word in WORDS)
