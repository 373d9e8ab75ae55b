"""Options that name several things: lists with commas, where names may have commas of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from foretell.errors import BadInput

MOST_DOUBLINGS = 24
"""Numbers that a range like 8..1024 stands for, at most."""


def models(texts: Sequence[str]) -> list[str]:
    """Models: what has a `=` and no `:` before it is a field of the model before it."""
    return _joined(texts, lambda part: "=" in part.partition(":")[0])


def clusters(texts: Sequence[str]) -> list[str]:
    """Clusters: what names a link belongs to the cluster before it."""
    from foretell.hardware import members

    known = members.names("links")

    def is_link(part: str) -> bool:
        return re.sub(r"^[0-9]+x", "", part.lower()) in known

    return _joined(texts, is_link)


def words(texts: Sequence[str]) -> list[str]:
    """Plain names."""
    return _joined(texts, lambda part: False)


def _joined(texts: Sequence[str], belongs: Callable[[str], bool]) -> list[str]:
    found: list[str] = []
    for text in texts:
        for at, part in enumerate(part.strip() for part in text.split(",")):
            if at and belongs(part):
                found[-1] += f",{part}"
            elif part:
                found.append(part)
    return list(dict.fromkeys(found))


def numbers(text: str, where: str, what: str, example: str) -> list[int]:
    """The numbers that a text says: 8..64 are 8, 16, 32, 64; 8,24 are these two."""
    form = re.fullmatch(r"\s*([0-9]{1,18})\s*\.\.\s*([0-9]{1,18})\s*", text)
    if form is None:
        parts = [part.strip() for part in text.split(",")]
        found = [int(part) for part in parts if part.isdecimal() and len(part) < 9]
        if len(found) < len(parts) or 0 in found:
            raise BadInput(f"{text!r} are no {what}", where=where, fix=example)
        return sorted(set(found))
    low, high = int(form[1]), int(form[2])
    if low < 1:
        raise BadInput(f"{text!r} are no {what}: they begin at 1", where=where, fix=example)
    if low > high:
        fix = f"from the lower number to the higher: {example}"
        raise BadInput(f"{low} to {high} {what}", where=where, fix=fix)
    doubled = [low * 2**times for times in range(MOST_DOUBLINGS)]
    return [count for count in doubled if count <= high]
