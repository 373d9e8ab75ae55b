"""The pages as the site takes them, in build/docs: with what they link to outside docs/, and links that lead there.

A site has one folder of pages; ours link to ../CONTRIBUTING.md and to the studies beside them, so that they can also be
read where they lie. `make site` runs this first.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAGE = ROOT / "build" / "docs"
TOP = ("CONTRIBUTING.md", "CHANGELOG.md")
"""Pages of the project that the site has too."""

LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def stage() -> list[Path]:
    """Write all of it anew; the pages that were written."""
    shutil.rmtree(STAGE, ignore_errors=True)
    STAGE.mkdir(parents=True)
    pages = [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / name for name in TOP)]
    written: list[Path] = []
    while pages:
        page = pages.pop()
        target = placed(page)
        if target in written:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        text, linked = relinked(page)
        target.write_text(text)
        written.append(target)
        pages += [file for file in linked if file.suffix == ".md"]
    return written


def relinked(page: Path) -> tuple[str, list[Path]]:
    """A page with its links as they are on the site, and the files that they lead to."""
    linked: list[Path] = []

    def one(match: re.Match[str]) -> str:
        file = (page.parent / match[1]).resolve()
        if not file.is_file() or ROOT not in file.parents:
            return "]"  # a folder, which a site does not list
        if file.suffix == ".md":
            linked.append(file)
        else:
            copied = placed(file)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copied)
        way = os.path.relpath(placed(file), placed(page).parent)
        return f"]({way}{match[2] or ''})"

    return LINK.sub(one, page.read_text()), linked


def placed(file: Path) -> Path:
    """Where a file of the project lies on the site: pages of docs/ at its top, all others under their own path."""
    own = file.relative_to(ROOT)
    if own == Path("docs/README.md"):
        return STAGE / "index.md"
    return STAGE / (own.relative_to("docs") if own.parts[0] == "docs" else own)


if __name__ == "__main__":
    print(f"{len(stage())} pages in {STAGE.relative_to(ROOT)}")
