"""The studies that ship: the folder `studies/published` of the source tree."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from foretell.errors import BadInput, unknown

FOLDER: Final = Path(__file__).parents[3] / "studies" / "published"
FILES: Final = (
    "vtrain_single.csv",
    "vtrain_multi.csv",
    "ultrascale_h100.csv",
    "llm_measured.csv",
    "finetune_measured.csv",
    "cnn_measured.csv",
    "paradl.csv",
)

OWN: Final = Path(__file__).parents[3] / "studies" / "h200_steps"
OWN_FILES: Final = ("measured.jsonl", "second.jsonl", "unseen.jsonl", "compiled.jsonl")

SANITY: Final = Path(__file__).parents[3] / "studies" / "sanity" / "sanity.csv"
"""Asked for by name only: nothing is learnt from it, and it is on no scoreboard."""


def own_files() -> list[Path]:
    """Our own training steps, where the source tree is."""
    return [OWN / file for file in OWN_FILES if (OWN / file).is_file()]


def files(*wanted: str) -> list[Path]:
    """The files that ship, or those of these names, each once."""
    found = [FOLDER / file for file in FILES if (FOLDER / file).is_file()]
    if not found:
        raise BadInput("the published studies are not here", where=str(FOLDER), fix="a FILE, or the source tree")
    names = {path.stem: path for path in found}
    if SANITY.is_file():
        names["sanity"] = SANITY
    for name in wanted:
        if name not in names:
            raise unknown("study", name, names)
    return [names[name] for name in dict.fromkeys(wanted)] if wanted else found
