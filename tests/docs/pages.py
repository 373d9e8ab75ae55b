"""Reading the pages: what they show, and what really comes out."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])] * (__name__ == "__main__")  # as pytest has it

from docs.forks import Forks  # noqa: E402

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r'^```\w+ title="(src/[^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
"""A file of the package that a page shows how to add."""

SET_UP = ("make ", "git ", "pip ", "cd ")
"""Commands that set the environment up; they are the test run itself."""


def blocks(kind: str, *pages: Path) -> list[tuple[str, str]]:
    """The blocks of a kind, with their places, of these pages (of all of them)."""
    found: list[tuple[str, str]] = []
    for page in pages or PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            if match[1] == kind:
                line = text[: match.start()].count("\n") + 1
                found.append((f"{page.name}:{line}", match[2]))
    return found


def commands(block: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command[:-1]} {more.strip()}"
        pairs.append((command, output.rstrip("\n")))
    return pairs


def run(command: str, added: Path | None = None, given: str = "") -> tuple[int, str]:
    """Type a command in at the root of the project; its exit code and all it prints. `added`: see `with_files`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "FORETELL_PROGRESS": "none",
        "FORETELL_SECONDS": "0",
    }  # a slow machine prints no more
    environment |= {"PYTHONPATH": str(added)} if added else {}
    ran = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        text=True,
        input=given,
        timeout=300,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return ran.returncode, ran.stdout.rstrip("\n")


FORKED = re.compile(r"""foretell ((?:[^|'"<>&;$`]|'[^']*'|"[^"$`]*")*?)(2>/dev/null )?(?:\|(.*))?""")
"""A command that can do without a shell, but for what stands behind a pipe."""


def run_forked(command: str, forks: Forks) -> tuple[int, str]:
    """The same, with foretell itself in a fork; what stands behind a pipe then reads what it printed."""
    match = FORKED.fullmatch(command)
    if match is None:
        return run(command)
    words, silent, reader = match.groups()
    ended = forks.run(shlex.split(words), ROOT, apart=bool(silent or reader))
    if reader is None:
        return ended.code, ended.printed.rstrip("\n")
    code, printed = run(reader, given=ended.printed)
    return code, printed if silent else ended.errors + printed


@contextlib.contextmanager
def with_files(page: Path) -> Iterator[Path | None]:
    """A copy of the package with the files that a page adds, for its commands; None where it adds none."""
    files = FILE.findall(page.read_text())
    if not files:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="foretell-adding-") as folder:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src", Path(folder) / "src", ignore=ignored)
        for name, content in files:
            (Path(folder) / name).write_text(content)
        yield Path(folder) / "src"


def refresh(*pages: Path) -> None:
    """Write what the commands print now into these pages, or all (blocks with `...` are left alone)."""
    for page in pages or PAGES:
        with with_files(page) as added:
            _refresh(page, added)


def _refresh(page: Path, added: Path | None) -> None:
    for match in BLOCK.finditer(page.read_text()):
        if match[1] != "console" or "\n...\n" in match[2]:
            continue
        pairs = [
            (command, output if command.startswith(SET_UP) else run(command, added)[1])
            for command, output in commands(match[2])
        ]
        fresh = "".join(f"$ {command}\n{output}\n" if output else f"$ {command}\n" for command, output in pairs)
        page.write_text(page.read_text().replace(match[2], fresh))


if __name__ == "__main__":
    refresh(*(Path(page).resolve() for page in sys.argv[1:]))
