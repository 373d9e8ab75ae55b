"""What people call a model, and which member of the zoo they mean.

Names are written in many ways: `Llama-3-8B`, `vit_b_16`, `meta-llama/Llama-3.1-8B`. Spelling does not count, and what a
model is called elsewhere is looked up in `aliases.toml`. A name that nobody knows is answered with those that could be
meant: of the same family and the same version, since Llama 4 is not a slip of the pen for Llama 3.
"""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from foretell.errors import UnknownName, first_of

LIKE: Final = 0.76
"""How alike two families are spelt, of 1, to be a slip of the pen: lama and llama are, bart and bert are not."""

MOST_NAMED: Final = 5
"""Names that are offered."""


SIZES: Final = 10.0
"""Numbers behind a family from which they are no versions but sizes: resnet50, vgg16."""

WEIGHTS_TAG: Final = re.compile(r"\.[a-z0-9_]+$")
"""How timm names the weights of a model: resnet50.a1_in1k."""


class Aliases(NamedTuple):
    """What members of the zoo are called elsewhere, by their spelling."""

    members: dict[str, str]
    endings: tuple[str, ...]
    talk: tuple[str, ...]  # those that are offered to a person


class ModelName(NamedTuple):
    """What a name says: `llama3.1-8b` is llama, 3.1; `gpt-neox-20b` is gpt, with the word neox."""

    family: str
    version: str  # the number behind the family; empty: none
    words: tuple[str, ...] = ()  # that follow

    def versions_from(self, other: ModelName) -> float:
        """How many versions lie between two of a family: 2 and 3 are neighbours, 50 and 5 are sizes."""
        ours, theirs = int(float(self.version or 0)), int(float(other.version or 0))
        return abs(ours - theirs) if 0 < ours < SIZES and 0 < theirs < SIZES else SIZES


@functools.cache
def aliases() -> Aliases:
    """The table."""
    found = tomllib.loads((Path(__file__).parent / "aliases.toml").read_text(encoding="utf-8"))
    endings = found.pop("endings")
    members = {spelling(alias): member for table in found.values() for alias, member in table.items()}
    return Aliases(members, tuple(sorted(endings, key=len, reverse=True)), tuple(found["talk"]))


def spelling(name: str) -> str:
    """A name without what people write in different ways: capitals, and what is between words, but for two numbers."""
    return re.sub(r"(?<![0-9])-|-(?![0-9])", "", re.sub(r"[_ ]", "-", name.strip().lower()))


def canonical(text: str, known: Iterable[str]) -> str:
    """The text of a model with the zoo's own name for it; as it was where the zoo has none."""
    name, colon, fields = text.partition(":")
    if name in known:
        return text
    member = _member(name, known)
    if not member:
        return text
    own, _, own_fields = member.partition(":")
    said = {item.partition("=")[0].strip() for item in fields.split(",")}
    kept = [item for item in own_fields.split(",") if item and item.partition("=")[0] not in said]
    both = ",".join([*kept, *([fields] if fields else [])])
    return f"{own}:{both}" if both else own + colon


def _member(name: str, known: Iterable[str]) -> str:
    """The member of the zoo that a name stands for; empty: none."""
    table = aliases()
    own = {spelling(member): member for member in known}
    ends = [name, *(name[: -len(ending)] for ending in table.endings if name.lower().endswith(ending))]
    ends += [WEIGHTS_TAG.sub("", name.lower())] if "_in" in name else []
    for text in dict.fromkeys(ends):
        found = own.get(spelling(text)) or table.members.get(spelling(text))
        if found:
            return found
    return ""


def meant(name: str, known: Iterable[str]) -> list[str]:
    """Names that a person may have meant, best first: of a family that is spelt alike, and of the same version."""
    asked = _parsed(name)
    same = [one for one in sorted({*known, *aliases().talk}) if _alike(asked, _parsed(one))]
    text = name.rpartition("/")[2].lower()
    return sorted(same, key=lambda one: (-_ratio(text, one), one))[:MOST_NAMED]


def unknown_model(name: str, known: Iterable[str]) -> UnknownName:
    """The error for a model that nobody knows: with names that could be meant, or others of its family."""
    names = list(known)
    close = meant(name, names)
    what = f"no model is called {name!r}"
    if close:
        return UnknownName(what, fix=", ".join(close))
    family = [one for one in names if _ratio(_parsed(one).family, _parsed(name).family) > LIKE]
    if family:
        asked = _parsed(name)
        nearest = sorted(family, key=lambda one: (asked.versions_from(_parsed(one)), -_ratio(one, name.lower())))
        return UnknownName(what, fix=f"others of that family: {first_of(nearest, 8)}")
    return UnknownName(what, fix="foretell list models")


def _parsed(name: str) -> ModelName:
    text = name.rpartition("/")[2].lower().removeprefix("meta-")
    form = re.match(r"([a-z]+)(?:[-_ ]?v?([0-9]+(?:\.[0-9]+)?)(?![0-9]*[bmx]))?", text)
    if form is None:
        return ModelName(text, "")
    return ModelName(form[1], form[2] or "", tuple(re.findall("[a-z]{3,}", text[form.end() :])))


def _alike(asked: ModelName, other: ModelName) -> bool:
    """Of one version where the name says which, and with every word of it: GPT-NeoX is no GPT-3."""
    if _ratio(asked.family, other.family) <= LIKE or asked.version not in ("", other.version):
        return False
    return all(any(_ratio(word, own) > LIKE for own in other.words) for word in asked.words)


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
