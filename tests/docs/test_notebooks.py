"""The notebooks do what they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.notebooks import NOTEBOOKS, ROOT, executed


def test_there_is_a_notebook_of_each_thing_that_the_pages_promise() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare_with_a_run", "predict_and_plan", "simulate"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for cell, outputs in executed(json.loads(path.read_text()), path.name):
        assert cell["outputs"] == outputs, f"{''.join(cell['source'])}\n(python tests/docs/notebooks.py)"
