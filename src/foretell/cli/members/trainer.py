"""What is said of a trainer: the constants that are its own, with their sources."""

from __future__ import annotations

from foretell.cli.members._page import MemberPage, PageFigure
from foretell.cli.table import folded


def names() -> list[str]:
    from foretell.plan import trainer

    return list(trainer.names())


def page(name: str) -> MemberPage:
    from foretell.plan.trainer import CONSTANTS, trainer
    from foretell.plan.trainer_table import show as shown

    found = trainer(name.lower() if not name.endswith(".toml") else name)
    own = [key for key in CONSTANTS if not found.source(key).startswith("carried over from ")]
    lines = [PageFigure(key, shown(found, key), found.source(key)) for key in own]
    carried = len(CONSTANTS) - len(own)
    texts: tuple[str, ...] = ()
    if found.based_on:
        said = f"Based on {found.based_on}: {carried} more constants are carried over (all of them: --json)."
        texts = (folded(said, 0),)
    constants = {key: {"value": found.constant(key), "source": found.source(key)} for key in CONSTANTS}
    data = {"name": found.name, "based_on": found.based_on, "constants": constants}
    return MemberPage("trainer", found.name, found.summary, tuple(lines), texts, (), data)
