"""Answers as people read them: a few lines at a prompt, a small table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

import msgspec

from foretell.units import show_bytes, show_count, show_rate, show_seconds

SHOWN = 5
"""Lines of a table within an answer that are shown."""


class Summarized(msgspec.Struct, frozen=True):
    """A frozen value with all figures in SI units; its `repr` has the few that matter, in people's units."""

    def summary(self) -> Iterable[tuple[str, str]]:
        """What matters, as name and text."""
        return ((name, repr(getattr(self, name))) for name in self.__struct_fields__)

    def __repr__(self) -> str:
        lines = list(self.summary())
        width = max((len(name) for name, _ in lines), default=0)
        return "\n".join([type(self).__name__, *(f"  {name:<{width}}  {text}".rstrip() for name, text in lines)])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self.summary())
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def priced(seconds: float, memory: float, plan: str = "") -> str:
    """A step and its memory, with the plan that has them."""
    return f"{show_seconds(seconds)}, {show_bytes(memory)}  {plan}".rstrip()


def rates(samples: float, tokens: float, ranks: int) -> Iterator[tuple[str, str]]:
    """Samples or tokens a second, of all ranks and of one."""
    count, what = (tokens, "tokens") if tokens else (samples, "samples")
    each = show_count if tokens else show_rate
    yield "rate", f"{each(count)} {what}/s, {each(count / ranks)} {what}/s/GPU"


def plans(found: Iterable[tuple[str, float, float]]) -> Iterator[tuple[str, str]]:
    """Plans with their step and memory, the first ones."""
    for number, (plan, seconds, memory) in enumerate(found, 1):
        if number > SHOWN:
            return
        yield str(number), priced(seconds, memory, plan)
