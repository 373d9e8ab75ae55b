"""Pictures of the pages are drawn by the tool: each again, by the command that stands on a page."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from docs.pages import PAGES, ROOT, blocks, commands, run

OPTION = "--picture"
DRAWN = {
    Path(shlex.split(command)[shlex.split(command).index(OPTION) + 1]).name: command
    for page in PAGES
    for _, block in blocks("console", page)
    for command, _ in commands(block)
    if OPTION in command
}
IMAGES = sorted((ROOT / "docs" / "images").glob("*"))


def test_every_picture_has_its_command() -> None:
    assert {file.name for file in IMAGES} == set(DRAWN)


@pytest.mark.parametrize("file", IMAGES, ids=lambda file: file.name)
def test_a_picture_is_what_its_command_draws(file: Path, tmp_path: Path) -> None:
    """`cp /tmp/NAME docs/images/` after the command, where a prediction was meant to move."""
    words = shlex.split(DRAWN[file.name])
    for option, name in (("--html", "report.html"), (OPTION, file.name)):
        if option in words:  # a study's script draws a picture alone
            words[words.index(option) + 1] = str(tmp_path / name)
    code, printed = run(shlex.join(words))
    assert code == 0, printed
    assert (tmp_path / file.name).read_text() == file.read_text()
