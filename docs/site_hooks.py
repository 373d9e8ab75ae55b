"""Pages and files beside docs/ that its pages link to, for the site: mkdocs sees only what is inside.

What stands in ../ of the pages is taken in under the same path, and links to it lose their ../
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\]\(\.\./([^)#\s]+)")
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files: Any, config: Any) -> Any:
    """Take in what the pages link to."""
    from mkdocs.structure.files import File

    texts = [page.read_text() for page in (ROOT / "docs").glob("*.md")]
    linked = {name for text in texts for name in OUTSIDE.findall(text)} | set(PAGES)
    for name in sorted(linked):
        if (ROOT / name).is_file():
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as they are inside the site; on pages that came from outside, docs/ is gone and other folders are files."""
    if page.file.src_uri in PAGES:
        markdown = re.sub(r"\]\(docs/", "](", markdown)
        return re.sub(r"\]\((?:src|studies|examples|tests)/[^)]*\)", "]", markdown)
    if page.file.src_uri.startswith("studies/"):
        return re.sub(r"\]\((?!https?:|#)[^)]*\)", "]", markdown)
    return OUTSIDE.sub(r"](\1", markdown)
