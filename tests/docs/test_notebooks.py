"""The notebooks do what they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.notebooks import NOTEBOOKS, ROOT, executed


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for cell, outputs in executed(json.loads(path.read_text()), path.name):
        assert cell["outputs"] == outputs, f"{''.join(cell['source'])}\n(python tests/docs/notebooks.py)"
