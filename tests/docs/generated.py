"""Parts of the documentation that are made, not written: they stand between two marks, and tests compare them.

    <!-- made: json -->
    ...
    <!-- until here -->

`python tests/docs/generated.py` makes them all again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs import api_page, json_page, sanity_table
from docs.pages import PAGES, ROOT

MARKED = re.compile(r"(<!-- made: (\w+) -->\n)(.*?)(<!-- until here -->)", re.DOTALL)


def scoreboard() -> str:
    """What `make scoreboard` wrote, as it is."""
    return f"```text\n{(ROOT / 'studies' / 'published' / 'scoreboard.txt').read_text().rstrip()}\n```"


MAKERS: dict[str, Callable[[], str]] = {
    "json": json_page.text,
    "api": api_page.text,
    "scoreboard": scoreboard,
    "sanity": sanity_table.text,
}


def made(text: str) -> str:
    """A page with its marked parts made again."""
    return MARKED.sub(lambda match: f"{match[1]}\n{MAKERS[match[2]]()}\n\n{match[4]}", text)


def marked() -> list[Path]:
    """Pages that have such parts."""
    return [page for page in PAGES if MARKED.search(page.read_text())]


if __name__ == "__main__":
    for page in marked():
        page.write_text(made(page.read_text()))
