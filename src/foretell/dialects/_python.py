"""Configurations that are Python: read from the syntax tree, never imported.

    Trainer.Config(parallelism=ParallelismConfig(tensor_parallel_degree=8))   parallelism.tensor_parallel_degree = 8
    config.model.tensor_model_parallel_size = 8                               model.tensor_model_parallel_size = 8

What is called stands under the key with `()` after it: `activation_checkpoint.()` is `FullAC.Config`. A function that
begins with what another function of the file returns, and changes it, has the keys of both.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from foretell.dialects._formats import Code, Format
from foretell.dialects._table import Document
from foretell.errors import BadInput

CALLED = "()"


def read(text: str, function: str = "") -> Document:
    """The keys of the configuration that a file makes; `function` names the one that is meant of several."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise BadInput(f"not Python: {problem}") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if function and function not in functions:
        raise BadInput(f"no function is called {function!r}", fix=", ".join(functions) or "none is there")
    rest = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    if function:
        return _Reader(functions).of(functions[function].body)
    found = {name: _Reader(functions).of(node.body) for name, node in functions.items()}
    found = {name: document for name, document in found.items() if document}
    if len(found) > 1:
        names = list(found)
        raise BadInput(
            f"{len(found)} functions make configurations", fix=f"FILE.py:{names[0]}, or {', '.join(names[1:4])}"
        )
    only: Document = next(iter(found.values())) if found else {}
    return _Reader(functions).of(rest) | only


class _Reader:
    """Follows statements from top to bottom; a function that is called is read in place, once each."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef]) -> None:
        self._functions = dict(functions)
        self._names: dict[str, Any] = {}

    def of(self, body: Sequence[ast.stmt]) -> Document:
        found: Document = {}
        for statement in body:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                found |= self._assigned(statement.targets[0], statement.value, begun=CALLED in found)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                found |= self._assigned(statement.target, statement.value, begun=CALLED in found)
            elif isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call):
                found |= self._call(statement.value, "")
            elif isinstance(statement, ast.If):  # if __name__ == "__main__", mostly
                found |= self.of(statement.body)
        return found

    def _assigned(self, target: ast.expr, value: ast.expr, *, begun: bool) -> Document:
        """What an assignment says. The first thing that is made and named is the configuration."""
        if isinstance(target, ast.Name):
            if isinstance(value, ast.Call):
                return {} if begun else self._call(value, "")
            self._names[target.id] = self._value(value)
            return {}
        path = ast.unparse(target).split(".")[1:]
        return self._keys(".".join(path), value) if isinstance(target, ast.Attribute) else {}

    def _call(self, call: ast.Call, before: str) -> Document:
        name = ast.unparse(call.func)
        local = self._functions.pop(name, None)
        found = self.of(local.body) if local is not None and not before else {}
        found[f"{before}{CALLED}"] = name
        for place, argument in enumerate(call.args):
            found |= self._keys(f"{before}{place}", argument)
        for keyword in call.keywords:
            if keyword.arg is not None:
                found |= self._keys(f"{before}{keyword.arg}", keyword.value)
        return found

    def _keys(self, key: str, value: ast.expr) -> Document:
        if isinstance(value, ast.Call):
            return self._call(value, f"{key}.")
        return {key: self._value(value)}

    def _value(self, node: ast.expr) -> Any:
        """A literal, what a name was given, the name of what is called, or None: it cannot be known."""
        if isinstance(node, ast.List | ast.Tuple):
            return [self._value(one) for one in node.elts]
        if isinstance(node, ast.Call):
            return ast.unparse(node.func)
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return ast.unparse(node)
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            return None


# --- writing ------------------------------------------------------------------------------------


def assignments(
    name: str, before: Sequence[str], after: Sequence[str] = ()
) -> Callable[[Document, Sequence[str]], str]:
    """A writer of `name.key = value`, between these lines; `()` of the document fills in {made} of `before`."""

    def write(document: Document, head: Sequence[str]) -> str:
        made = document.get(CALLED, "make_config")
        lines = [f"# {line}".rstrip() for line in head]
        lines += [line.format(made=made, last=made.split(".")[-1]) for line in before]
        lines += [f"{name}.{key} = {_python(value)}" for key, value in document.items() if CALLED not in key]
        return "\n".join([*lines, *after]) + "\n"

    return write


def calls(frame: str, classes: Mapping[str, str]) -> Callable[[Document, Sequence[str]], str]:
    """A writer of one call inside others: `classes` says what is called for a table of keys, `frame` what is around.

    {calls} of the frame is the arguments of the outermost call.
    """

    def write(document: Document, head: Sequence[str]) -> str:
        lines: list[str] = []
        tables = dict.fromkeys(key.rpartition(".")[0] for key in document if "." in key)
        lines += [f"        {key}={_python(value)}," for key, value in document.items() if "." not in key]
        for table in tables:
            name = document.get(f"{table}.{CALLED}") or classes[table]
            inside = [
                f"            {key.rpartition('.')[2]}={_python(value)},"
                for key, value in document.items()
                if key.rpartition(".")[0] == table and CALLED not in key and not key.rpartition(".")[2].isdecimal()
            ]
            given = [_python(value) for key, value in document.items() if key == f"{table}.0"]
            opening = f"        {table}={name}("
            lines += [f"{opening}", *(f"            {one}," for one in given), *inside, "        ),"]
        comment = "".join(f"# {line}".rstrip() + "\n" for line in head)
        return comment + frame.replace("{calls}", "\n".join(lines))

    return write


def _python(value: Any) -> str:
    if isinstance(value, Code):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_python, cast('list[Any]', value)))}]"
    return f'"{value}"' if isinstance(value, str) and '"' not in value and "\\" not in value else repr(value)


def python(write: Callable[[Document, Sequence[str]], str]) -> Format:
    """Python of one dialect."""
    return Format("Python", (".py",), read, write)
