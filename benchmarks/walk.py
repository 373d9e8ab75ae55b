"""How far a question walks through the code, and how much code there is.

python benchmarks/walk.py           the walk of `predict` and of `plan`, and the code by package
python benchmarks/walk.py --code    the code alone

The walk is traced (`sys.setprofile`), without numba, in a process of its own:

  files entered        files of which a function was called (that they are imported is not enough)
  functions called     different ones, comprehensions and lambdas among them
  calls between files  calls of a function whose caller is in another file
  deepest stack        frames of foretell, one inside the other
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "foretell"
WALKS = {
    "predict": [
        "predict", "llama3-8b", "--on", "64xh100", "--plan", "dp8:zero1 tp8:sp +m8 +bf16", "--batch", "64",
        "--trainer", "megatron-core",
    ],
    "plan": ["plan", "llama3.2-1b", "--on", "8xh100", "--batch", "32", "--only", "dp,tp,recompute", "--top", "4"],
}  # fmt: skip
"""The questions that the README begins with."""

LONG_FILE, LONG_FUNCTION, MANY_PARAMETERS = 400, 60, 8


# the walk


class Walk:
    """What is counted while a question is answered."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[CodeType] = set()
        self.between = self.depth = self.deepest = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Called by the interpreter whenever a function begins or ends."""
        code = frame.f_code
        if (
            event not in ("call", "return")
            or not code.co_filename.startswith(str(SOURCE))
            or code.co_name == "<module>"
        ):
            return
        if event == "return":
            self.depth -= 1
            return
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        self.files.add(code.co_filename)
        self.functions.add(code)
        if frame.f_back is None or frame.f_back.f_code.co_filename != code.co_filename:
            self.between += 1


def walked(words: list[str]) -> dict[str, int]:
    """The walk of one command, in this process."""
    walk, sys.argv = Walk(), ["foretell", *words]
    with contextlib.redirect_stdout(io.StringIO()):
        sys.setprofile(walk)
        from foretell.cli.main import main

        main()
        sys.setprofile(None)
    return {
        "foretell modules imported": sum(name.partition(".")[0] == "foretell" for name in sys.modules),
        "files entered": len(walk.files),
        "functions called": len(walk.functions),
        "calls between files": walk.between,
        "deepest stack": walk.deepest,
    }


def print_walks() -> None:
    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(prefix="walk-") as folder:
        alone = {"PYTHONPATH": str(SOURCE.parent), "FORETELL_RECORDS": folder, "FORETELL_PROGRESS": "none"}
        for name in WALKS:
            asked = [sys.executable, __file__, "--traced", name]
            done = subprocess.run(asked, env={**os.environ, **alone}, check=True, capture_output=True, text=True)
            found[name] = json.loads(done.stdout)
    print(f"{'':<28}" + "".join(f"{name:>10}" for name in found))
    for what in next(iter(found.values())):
        print(f"{what:<28}" + "".join(f"{own[what]:>10,}" for own in found.values()))


# the code


class Lines(NamedTuple):
    code: int = 0
    docstrings: int = 0
    comments: int = 0
    blank: int = 0

    def __add__(self, other: tuple[int, ...]) -> Lines:  # type: ignore[override]
        return Lines(*(one + two for one, two in zip(self, other, strict=True)))


class Function(NamedTuple):
    where: str
    lines: int
    parameters: int


def lines_of(text: str) -> Lines:
    """Each line of a file once: code, docstring, comment or blank."""
    documented = {line for node in _docstrings(ast.parse(text)) for line in range(node.lineno, node.end_lineno + 1)}
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.string.strip():
            code.update(range(token.start[0], token.end[0] + 1))
    code -= documented
    comments -= code
    total = len(text.splitlines())
    return Lines(len(code), len(documented), len(comments), total - len(code | documented | comments))


def _docstrings(tree: ast.Module) -> list[Any]:
    """Texts that stand alone: the docstrings of modules, classes and functions, and those under a constant."""
    return [
        node for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]  # fmt: skip


def functions_of(tree: ast.AST, where: str) -> list[Function]:
    """Every function with its lines, from `def` to its end, and its parameters, `self` and `cls` left out."""
    found: list[Function] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{where}{'.' if '.py:' in where else ':'}{node.name}"
            if not isinstance(node, ast.ClassDef):
                found.append(Function(name, (node.end_lineno or 0) - node.lineno + 1, len(_parameters(node.args))))
            found += functions_of(node, name)
        else:
            found += functions_of(node, where)
    return found


def _parameters(given: ast.arguments) -> list[str]:
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def shared_names(trees: Iterable[ast.Module]) -> dict[str, int]:
    """Names that several classes have, with how many do."""
    classes = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {name: count for name, count in classes.items() if count > 1}


def print_code() -> None:
    packages: dict[str, Lines] = defaultdict(Lines)
    trees: list[ast.Module] = []
    functions: list[Function] = []
    long_files: list[tuple[str, int]] = []
    for path in sorted(SOURCE.rglob("*.py")):
        text, where = path.read_text(), str(path.relative_to(SOURCE))
        tree = ast.parse(text)
        packages[where.partition("/")[0] if "/" in where else "(top)"] += lines_of(text)
        functions += functions_of(tree, where)
        trees.append(tree)
        if len(text.splitlines()) > LONG_FILE:
            long_files.append((where, len(text.splitlines())))
    _print_packages(packages)
    shared = shared_names(trees)
    most = ", ".join(f"{name} x{count}" for name, count in Counter(shared).most_common(8))
    print(f"\n{sum(shared.values())} classes share {len(shared)} names: {most}, ...")
    _print_some(f"files over {LONG_FILE} lines", long_files)
    _print_some(
        f"functions over {LONG_FUNCTION} lines",
        [(one.where, one.lines) for one in functions if one.lines > LONG_FUNCTION],
    )
    _print_some(
        f"functions of more than {MANY_PARAMETERS} parameters",
        [(one.where, one.parameters) for one in functions if one.parameters > MANY_PARAMETERS],
    )


def _print_packages(packages: dict[str, Lines]) -> None:
    print(f"{'lines':<14}{'all':>8}" + "".join(f"{name:>12}" for name in Lines._fields))
    ordered = sorted(packages.items(), key=lambda item: -sum(item[1]))
    for name, own in (*ordered, ("all", sum(packages.values(), Lines()))):
        print(f"{name:<14}{sum(own):>8,}" + "".join(f"{count:>12,}" for count in own))


def _print_some(what: str, found: list[tuple[str, int]]) -> None:
    print(f"\n{what}: {len(found)}")
    for where, size in sorted(found, key=lambda item: -item[1]):
        print(f"  {size:>5}  {where}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", action="store_true", help="the code alone")
    parser.add_argument("--traced", choices=WALKS, help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.traced:
        sys.modules["numba"] = None  # type: ignore[assignment]
        print(json.dumps(walked(WALKS[said.traced])))
    else:
        if not said.code:
            print_walks()
            print()
        print_code()
