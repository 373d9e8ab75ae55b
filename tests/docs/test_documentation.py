"""Everything the documentation shows is run: commands are typed in, their output compared.

In a ```console block a line that begins with `$ ` is a command, the lines after it are what it
prints; a line `...` stands for any lines. A ```python block is executed, and `>>>` lines compared.
`python tests/docs/pages.py` writes what the commands print now into the pages.
"""

from __future__ import annotations

import contextlib
import doctest
import functools
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import foretell
from docs.forks import Forks
from docs.generated import made, marked
from docs.json_page import anchor
from docs.pages import FILE, PAGES, ROOT, SET_UP, blocks, commands, run, run_forked, with_files

CONSOLE = [
    (f"{place} {command}", page, command, out)
    for page in PAGES
    for place, block in blocks("console", page)
    for command, out in commands(block)
]


@pytest.fixture(scope="module")
def added() -> Iterator[Callable[[Path], Path | None]]:
    """The package with the files that a page adds to it, made when its first command is run."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda page: stack.enter_context(with_files(page)))


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as started:
        yield started


STARTED = ("README.md", "adding.md", "json.md")
"""Pages whose commands are really typed into a shell: the script that is installed, pipes, exit codes."""


RAN: set[str] = set()
"""Commands that this process has run."""

KEPT = re.compile(r"/tmp/[\w.-]+")


def _written_before(page: Path, command: str) -> list[str]:
    """Earlier commands of a page that name the same files as this one, and were not run here."""
    own = [one for _, place, one, _ in CONSOLE if place == page]
    files = set(KEPT.findall(command))
    return [one for one in own[: own.index(command)] if one not in RAN and files & set(KEPT.findall(one))]


@pytest.mark.parametrize(("page", "command", "expected"), [c[1:] for c in CONSOLE], ids=[c[0] for c in CONSOLE])
def test_command(page: Path, command: str, expected: str, added: Callable[[Path], Path | None], forks: Forks) -> None:
    if command.startswith(SET_UP):
        assert not expected
        return
    for earlier in _written_before(page, command):  # by another process of the tests, perhaps later
        run(earlier, added(page) if page.name in STARTED else None)
    code, printed = run(command, added(page)) if page.name in STARTED else run_forked(command, forks)
    RAN.add(command)
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


def test_no_block_of_commands_is_passed_over() -> None:
    written = sum(page.read_text().count("\n```console\n") for page in PAGES)
    found = [block for page in PAGES for _, block in blocks("console", page)]
    assert len(found) == written and all(map(commands, found))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """To a file that is there, and to a heading that it has."""
    for target, place in LINK.findall(CODE.sub("", page.read_text())):
        file = page.parent / target if target else page
        assert file.exists(), target
        if place:
            assert place in anchors(file), f"{file.name}#{place}"


LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(map(anchor, HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S))))


@pytest.mark.parametrize("page", marked(), ids=lambda page: page.name)
def test_made_parts_are_as_they_would_be_made_now(page: Path) -> None:
    text = page.read_text()
    assert made(text) == text, "python tests/docs/generated.py"


def test_every_page_is_in_the_reading_order_once() -> None:
    """The index of the pages and the site's navigation name the same pages in the same order."""
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    order = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text())
    assert sorted(order) == sorted(pages)
    site = re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert [name for name in site if name not in ("index.md", "CHANGELOG.md", "CONTRIBUTING.md")] == order


def test_what_a_page_adds_is_new() -> None:
    files = [(page, name) for page in PAGES for name, _ in FILE.findall(page.read_text())]
    sets = {
        "devices",
        "architectures",
        "attentions",
        "topologies",
        "recomputations",
        "zoo",
        "strategies",
        "optimizers",
        "libraries",
        "clusters",
        "trainers",
        "dialects",
    }
    assert {Path(name).parent.name for _, name in files} >= sets
    assert [name for _, name in files if (ROOT / name).exists()] == []


def test_the_changelog_knows_this_version() -> None:
    assert f"## {foretell.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_site_has_all_that_its_pages_lead_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("staged", ROOT / "docs" / "staged.py")
    assert spec is not None and spec.loader is not None
    staged = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(staged)
    monkeypatch.setattr(staged, "STAGE", tmp_path)
    pages = staged.stage()
    assert len(pages) > len(list((ROOT / "docs").glob("*.md")))
    for page in pages:
        for target, place in LINK.findall(CODE.sub("", page.read_text())):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name}: {target}"
            assert not place or place in anchors(file), f"{page.name}: {target}#{place}"
    named = re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert [name for name in named if not (tmp_path / name).exists()] == []


def test_every_command_of_the_papers_is_run_on_some_page() -> None:
    """The tables of `papers.md` name commands; what they print is compared where a block has them."""
    ran = {command.partition(" | ")[0].strip() for _, _, command, _ in CONSOLE}
    page = next(page for page in PAGES if page.name == "papers.md")
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    named = {one for line in rows for one in re.findall(r"`((?:foretell|python) [^`]+)`", line)}
    assert len(named) > 12
    assert not sorted(named - ran)
