"""Reading the pages: what they show, and what really comes out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


def run(command: str) -> tuple[int, str]:
    """Type a command in at the root of the project; its exit code and all it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    ran = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        text=True,
        timeout=300,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return ran.returncode, ran.stdout.rstrip("\n")


def refresh(*pages: Path) -> None:
    """Write what the commands print now into these pages, or all (blocks with `...` are left alone)."""
    for page in pages or PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            if match[1] != "console" or "\n...\n" in match[2]:
                continue
            pairs = [
                (command, output if command.startswith(SET_UP) else run(command)[1])
                for command, output in commands(match[2])
            ]
            fresh = "".join(f"$ {command}\n{output}\n" if output else f"$ {command}\n" for command, output in pairs)
            page.write_text(page.read_text().replace(match[2], fresh))


if __name__ == "__main__":
    refresh(*(Path(page).resolve() for page in sys.argv[1:]))
