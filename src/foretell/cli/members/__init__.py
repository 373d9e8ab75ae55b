"""One page about any member of a set: a file for each kind of member, with its names and its pages.

What a page shows is what the member itself says; nothing is written here about any member in particular.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from foretell.cli.members._page import MemberPage
from foretell.errors import BadInput, ForetellError, UnknownName, near
from foretell.registry import OpenSet

KINDS = OpenSet("foretell.cli.members", "kind of member")


def names(kind: str) -> list[str]:
    """The members of a set."""
    found: list[str] = KINDS[kind].names()
    return found


def page(name: str, kind: str = "") -> MemberPage:
    """The page about what a name means: in one set, or in the only one that has it."""
    if kind:
        return _in_set(kind, name)
    holding = [one for one in KINDS if name.lower() in map(str.lower, names(one))]
    if len(holding) > 1:
        fix = " or ".join(f"foretell describe {one} {name}" for one in holding)
        raise BadInput(f"{name} is a {' and a '.join(holding)}", where="describe", fix=fix)
    return _in_set(holding[0], name) if holding else _by_text(name)


def _in_set(kind: str, name: str) -> MemberPage:
    found: MemberPage = KINDS[kind].page(name)
    return found


def _by_text(text: str) -> MemberPage:
    """What is no name but means something: `dp8:zero3`, `+bf16`, `64xh100`, `llama3-8b:layers=16`, a file."""
    problems: list[ForetellError] = []
    for kind in _meant(text):
        try:
            return _in_set(kind, text)
        except ForetellError as problem:
            problems.append(problem)
    raise next((problem for problem in problems if not isinstance(problem, UnknownName)), None) or _unknown(text)


def _meant(text: str) -> Iterator[str]:
    """Kinds that a text may be of, by its form."""
    if text.startswith("+"):
        yield "policy"
        return
    axis = re.match(r"([a-z]+)[0-9]", text.lower())
    if axis and axis[1] in names("strategy"):
        yield "strategy"
    if re.match(r"[0-9]+x", text) or text.endswith(".toml") or re.fullmatch(r".+:[0-9]+", text):
        yield "cluster"
    if _is_model(text) or "/" in text or text.endswith((".json", ".net")) or ".py:" in text:
        yield "model"
    if KINDS["policy"].having(text):
        yield "policy"
    if KINDS["term"].having(text):
        yield "term"


def _is_model(text: str) -> bool:
    from foretell.model import zoo

    return zoo.canonical(text).partition(":")[0] in zoo.names()


def _unknown(text: str) -> UnknownName:
    """Near names of all sets, each with its set."""
    homes = {name.lower(): kind for kind in KINDS for name in names(kind)}
    close = near(text, homes)
    listed = "foretell list {models, devices, links, clusters, strategies, policies, schedules, optimizers, trainers}"
    return UnknownName(
        f"nothing is called {text!r}", fix=", ".join(f"{name} ({homes[name]})" for name in close) or listed
    )
