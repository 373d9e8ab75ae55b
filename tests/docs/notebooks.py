"""Notebooks run without Jupyter: the code cells one after the other in one namespace, what they show compared.

A cell that measures or draws has the tag `not-kept`: it is run, and what it shows is not in the file.
`python tests/docs/notebooks.py` writes what cells show now into the files.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
NOT_KEPT = "not-kept"


def executed(notebook: dict[str, Any], name: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each code cell with the outputs that it has now."""
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        printed, value = _run("".join(cell["source"]), names, f"{name}, cell {count}")
        kept = NOT_KEPT not in cell["metadata"].get("tags", [])
        yield cell, list(_outputs(printed, value, count)) if kept else []


def _run(source: str, names: dict[str, Any], place: str) -> tuple[str, Any]:
    """Run a cell; what it prints, and the value of an expression at its end."""
    tree = ast.parse(source, place)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, place, "exec"), names)
        value = eval(compile(ast.Expression(last.value), place, "eval"), names) if last else None
    return printed.getvalue(), value


def _outputs(printed: str, value: Any, count: int) -> Iterator[dict[str, Any]]:
    if printed:
        yield {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        yield {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}


def refresh(path: Path) -> None:
    """Write what the cells show now into a notebook."""
    notebook = json.loads(path.read_text())
    for count, (cell, outputs) in enumerate(executed(notebook, path.name), 1):
        cell |= {"outputs": outputs, "execution_count": count}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    os.chdir(ROOT)
    for path in NOTEBOOKS:
        refresh(path)
