"""Everything the documentation shows is run: commands are typed in, their output compared.

In a ```console block a line that begins with `$ ` is a command, the lines after it are what it
prints; a line `...` stands for any lines. A ```python block is executed, and `>>>` lines compared.
`python tests/docs/pages.py` writes what the commands print now into the pages.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import foretell
from docs.pages import PAGES, ROOT, SET_UP, blocks, commands, run

CONSOLE = [
    (f"{place} {command}", command, out) for place, block in blocks("console") for command, out in commands(block)
]


@pytest.mark.parametrize(("command", "expected"), [c[1:] for c in CONSOLE], ids=[c[0] for c in CONSOLE])
def test_command(command: str, expected: str) -> None:
    if command.startswith(SET_UP):
        assert not expected
        return
    code, printed = run(command)
    assert code in (0, 1, 2), printed
    pattern = r"\n".join(".*" if line == "..." else re.escape(line) for line in expected.split("\n"))
    assert re.fullmatch(pattern, printed, re.DOTALL), f"the page says\n{expected}\n\nbut it prints\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of one page, its blocks one after the other in one namespace."""
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {"__name__": "documentation"}
    for place, code in blocks("python", page):
        if ">>>" not in code:
            exec(compile(code, place, "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(code, names, place, place, 0)
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
        names = test.globs
        assert result.failed == 0


def test_pages_show_something() -> None:
    assert len(CONSOLE) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_changelog_knows_this_version() -> None:
    assert f"## {foretell.__version__}" in (ROOT / "CHANGELOG.md").read_text()
