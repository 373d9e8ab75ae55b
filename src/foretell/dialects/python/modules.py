"""Files of Python by their syntax trees: functions and constants, and those that are imported from files beside."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LARGEST = 4 * 1024 * 1024
"""Bytes of the largest file that is taken in."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

FARTHEST = 5
"""Files that a name is passed on through."""


class Imported(NamedTuple):
    """Where a name comes from: `from ..a.b import name` is (2, "a.b", "name")."""

    level: int
    module: str
    name: str


@dataclass
class PythonModule:
    """One file."""

    tree: ast.Module
    path: Path | None
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict[str, ast.FunctionDef])
    constants: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])
    imports: dict[str, Imported] = field(default_factory=dict[str, Imported])

    def __post_init__(self) -> None:
        several: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for one in node.names:
                    name, imported = one.asname or one.name, Imported(node.level, node.module or "", one.name)
                    if self.imports.setdefault(name, imported) != imported:
                        several.add(name)
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
                self.constants[node.target.id] = node.value
        for name in several:
            self.imports.pop(name)
        for name, times in Counter(_set_outside(self.tree)).items():
            if times > 1 or name in self.functions:
                self.constants.pop(name, None)
                self.functions.pop(name, None)


def _set_outside(tree: ast.Module) -> Iterator[str]:
    """Names outside of functions as often as they are set, or what they stand for may be changed."""
    inside = {id(one) for node in tree.body if isinstance(node, _SCOPES) for one in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del) and id(node) not in inside:
            yield node.id
        elif isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield from _root(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):  # X.append(...), f(X)
            for one in (node.value.func, *node.value.args):
                yield from _root(one) if isinstance(one, ast.Attribute | ast.Subscript) else ()


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


class ImportedModules:
    """Finds what a name is that a file imports, as far as files that lie beside it tell."""

    def __init__(self) -> None:
        self._read: dict[Path, PythonModule | None] = {}

    def found(self, module: PythonModule, name: str) -> tuple[PythonModule, str] | None:
        """The file that has a name as its own, and what it is called there."""
        for _ in range(FARTHEST):
            if name in module.functions or name in module.constants:
                return module, name
            imported = module.imports.get(name)
            other = self._file(module, imported) if imported else None
            if imported is None or other is None:
                return None
            module, name = other, imported.name
        return None

    def module(self, module: PythonModule, name: str) -> PythonModule | None:
        """The file that a name is, where a module itself is imported: `from recipes import llama3_8b`."""
        imported = module.imports.get(name)
        if imported is None:
            return None
        whole = f"{imported.module}.{imported.name}".strip(".")
        return self._file(module, imported._replace(module=whole))

    def _file(self, module: PythonModule, imported: Imported) -> PythonModule | None:
        if module.path is None:
            return None
        folder = module.path.parent
        parts = imported.module.split(".") if imported.module else []
        places = [folder, *folder.parents]
        places = places[imported.level - 1 : imported.level] if imported.level else places
        for place in places:
            whole = place.joinpath(*parts)
            for path in (whole.with_suffix(".py") if parts else whole, whole / "__init__.py"):
                if path != module.path and path.is_file():
                    return self._parsed(path)
        return None

    def _parsed(self, path: Path) -> PythonModule | None:
        if path not in self._read:
            self._read[path] = None
            try:
                if path.stat().st_size <= LARGEST:
                    self._read[path] = PythonModule(ast.parse(path.read_text(encoding="utf-8")), path)
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                pass  # a file that is no Python says nothing
        return self._read[path]
