"""The studies that ship: inside an installed package, or in the folder `studies` of the source tree."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from foretell.errors import BadInput, unknown


def studies(name: str) -> Path:
    """The folder of a study: a package has those that answers are compared with, the source tree all of them."""
    package = Path(__file__).parents[1]
    installed = package / "studies" / name
    return installed if installed.is_dir() else package.parents[1] / "studies" / name


FOLDER: Final = studies("published")
FILES: Final = (
    "vtrain_single.csv",
    "vtrain_multi.csv",
    "ultrascale_h100.csv",
    "llm_measured.csv",
    "finetune_measured.csv",
    "cnn_measured.csv",
    "paradl.csv",
)

OWN: Final = studies("h200_steps")
OWN_FILES: Final = ("measured.jsonl", "second.jsonl", "unseen.jsonl", "compiled.jsonl")

SANITY: Final = studies("sanity") / "sanity.csv"
RECIPES: Final = studies("recipes") / "recipes.csv"
"""Asked for by name only: nothing is learnt from them, and they are on no scoreboard. Recipes are for their memory."""


def own_files() -> list[Path]:
    """Our own training steps."""
    return [OWN / file for file in OWN_FILES if (OWN / file).is_file()]


def files(*wanted: str) -> list[Path]:
    """The files that ship, or those of these names, each once."""
    found = [FOLDER / file for file in FILES if (FOLDER / file).is_file()]
    if not found:
        fix = "pip install --force-reinstall foretell, or a FILE"
        raise BadInput("the published studies are not here", where=str(FOLDER), fix=fix)
    names = {path.stem: path for path in found}
    names |= {path.stem: path for path in (SANITY, RECIPES) if path.is_file()}
    for name in wanted:
        if name not in names:
            raise unknown("study", name, names)
    return [names[name] for name in dict.fromkeys(wanted)] if wanted else found
