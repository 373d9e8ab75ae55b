"""What a word means that answers are printed in."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path

import msgspec

from foretell.cli.members._page import MemberPage, PageFigure
from foretell.errors import UnknownName, near

FILE = Path(__file__).parents[1] / "terms.toml"


class ScreenTerm(msgspec.Struct, frozen=True, kw_only=True):
    """One word: what it means, its other forms, and how its figure is computed."""

    means: str
    also: tuple[str, ...] = ()
    formula: str = ""


@functools.cache
def terms() -> dict[str, ScreenTerm]:
    """All of them by their first form."""
    return msgspec.convert(tomllib.loads(FILE.read_text()), dict[str, ScreenTerm])


def names() -> list[str]:
    return list(terms())


def having(text: str) -> str:
    """The word that a text is a form of; empty where it is none."""
    wanted = _plain(text)
    if wanted.startswith("exposed "):  # along any axis
        return "exposed communication"
    forms = {_plain(form): name for name, term in terms().items() for form in (name, *term.also)}
    return forms.get(wanted, "")


def _plain(text: str) -> str:
    return re.sub(r"[\s._-]+", " ", text.lower()).strip()


def page(name: str) -> MemberPage:
    word = having(name)
    if not word:
        raise UnknownName(f"no term is called {name!r}", fix=", ".join(near(name, terms())) or ", ".join(terms()))
    term = terms()[word]
    figures = [PageFigure("computed", term.formula)] if term.formula else []
    figures += [PageFigure("also", ", ".join(term.also))] if term.also else []
    return MemberPage("term", word, term.means, tuple(figures), (), (), {"name": word, **msgspec.structs.asdict(term)})
