"""What is said of a policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretell.cli.members._choice import choice, explained, options
from foretell.cli.members._page import MemberPage, PageFigure, written
from foretell.errors import ForetellError, unknown

if TYPE_CHECKING:
    from foretell.plan.policy import Policy


def names() -> list[str]:
    from foretell.plan.members import policies

    return list(policies())


def having(option: str) -> str:
    """The policy that has an option of this name, such as `threshold`; empty where none has, or several do."""
    from foretell.plan.members import policies

    forms = {
        word: {form.rstrip("NF") for one in kind.syntax for form in one.forms} for word, kind in policies().items()
    }
    found = [word for word, own in forms.items() if option.lower() in own]
    return found[0] if len(found) == 1 else ""


def page(text: str) -> MemberPage:
    from foretell.plan.members import policies
    from foretell.plan.text import parse

    word = text.lower().removeprefix("+").partition(":")[0]
    said: tuple[Policy, ...] = ()
    if word not in policies():
        try:
            said = parse(f"dp1 {text if text.startswith('+') else f'+{text}'}").policies
        except ForetellError:
            if text.startswith("+") or not having(text):
                raise
            return page(having(text))  # the name of an option, without what else it needs in a plan
        if not said:
            raise unknown("policy", text, names())
        word = said[0].word
    kind = policies()[word]
    lines = [PageFigure("written", f"such as {kind.example}"), *options(kind), *_meant(said)]
    if kind.inside:
        inside = ", ".join(f"{axis}N:..." for axis in kind.inside)
        lines.append(PageFigure("also in", inside))
    data = choice(kind)
    return MemberPage("policy", kind.word, kind.summary, tuple(lines), explained(kind), kind.references, data)


def _meant(said: tuple[Policy, ...]) -> Iterator[PageFigure]:
    """What the table of a policy says about the word that was asked for, if it has one."""
    import msgspec

    for form in (getattr(policy, "format", None) for policy in said):
        if form is not None:
            values = msgspec.structs.asdict(form)
            source = values.pop("source")
            yield from (PageFigure(name.replace("_", " "), written(value), source) for name, value in values.items())
