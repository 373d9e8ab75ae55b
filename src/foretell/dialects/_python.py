"""Configurations that are Python: read from the syntax tree, never imported.

    Trainer.Config(parallelism=ParallelismConfig(tensor_parallel_degree=8))   parallelism.tensor_parallel_degree = 8
    config.model.tensor_model_parallel_size = 8                               model.tensor_model_parallel_size = 8

What is called stands under the key with `()` after it: `activation_checkpoint.()` is `FullAC.Config`. A function that
begins with what another function of the file returns, and changes it, has the keys of both. Names that the file gives
values, and sums of numbers, are filled in. What depends on a condition or a loop is not known.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from foretell.dialects._formats import Code, FileFormat
from foretell.dialects._table import Document, Source, UnknownValue
from foretell.errors import BadInput

CALLED = "()"
GIVEN = "()."
"""How keys begin that were given to the outermost call, where it matters: in what is kept."""

IMPORTS = "import"
"""Where the imports of a file are kept: no field has this name."""

OPEN = ast.Constant(...)
"""A value that is set in some cases only."""

Nodes: TypeAlias = dict[str, ast.expr]


def read(text: str, function: str = "") -> Source:
    """The keys of the configuration that a file makes; `function` names the one that is meant of several."""
    try:
        tree = ast.parse(text)
        return _source(tree, _nodes(tree, function))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise BadInput(f"not Python: {problem}") from None


def _nodes(tree: ast.Module, function: str) -> Nodes:
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if function and function not in functions:
        raise BadInput(f"no function is called {function!r}", fix=", ".join(functions) or "none is there")
    outside = _Reader(functions)
    rest = outside.of([node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)])
    if function:
        return _Reader(functions, outside.names).inside(functions[function])
    found = {name: _Reader(functions, outside.names).inside(node) for name, node in functions.items()}
    found = {name: document for name, document in found.items() if document}
    if len(found) > 1:
        names = list(found)
        raise BadInput(
            f"{len(found)} functions make configurations", fix=f"FILE.py:{names[0]}, or {', '.join(names[1:4])}"
        )
    return rest | (next(iter(found.values())) if found else {})


def _source(tree: ast.Module, nodes: Nodes) -> Source:
    understood: Document = {}
    for key, node in nodes.items():
        understood[_plain(key)] = ast.unparse(node) if key.endswith(CALLED) else _value(node)
    raw: Document = {key: Code(ast.unparse(node)) for key, node in nodes.items()}
    imports = [Code(ast.unparse(node)) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return Source(understood, raw | ({IMPORTS: imports} if imports else {}))


def _plain(key: str) -> str:
    return key.removeprefix(GIVEN)


class _Reader:
    """Follows statements from top to bottom; a function that is called is read in place, once each."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef], names: Mapping[str, ast.expr] | None = None) -> None:
        self._functions = dict(functions)
        self.names: Nodes = dict(names or {})

    def inside(self, function: ast.FunctionDef, call: ast.Call | None = None) -> Nodes:
        """What a function makes, its parameters being what a call gives, or their defaults."""
        given, before = function.args, dict(self.names)
        places = [*given.posonlyargs, *given.args]
        bound = dict(zip((one.arg for one in reversed(places)), reversed(given.defaults), strict=False))
        bound |= {one.arg: value for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value}
        if call is not None:
            bound |= {one.arg: self._filled(value) for one, value in zip(places, call.args, strict=False)}
            bound |= {one.arg: self._filled(one.value) for one in call.keywords if one.arg}
        for one in (*places, *given.kwonlyargs):
            self.names.pop(one.arg, None)
        self.names |= bound
        found = self.of(function.body)
        self.names = before
        return found

    def of(self, body: Sequence[ast.stmt]) -> Nodes:
        found: Nodes = {}
        for statement in body:
            self._follow(statement, found)
        return found

    def _follow(self, statement: ast.stmt, found: Nodes) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                found |= self._assigned(target, statement.value, begun=CALLED in found)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            found |= self._assigned(statement.target, statement.value, begun=CALLED in found)
        elif isinstance(statement, ast.AugAssign):
            found |= self._assigned(statement.target, OPEN, begun=True)
        elif isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call):
            found |= self._call(statement.value, "")
        elif isinstance(statement, ast.If):
            self._branch(statement, found)
        elif isinstance(statement, ast.With):
            for one in statement.body:
                self._follow(one, found)
        else:
            self._perhaps(statement, found)

    def _branch(self, statement: ast.If, found: Nodes) -> None:
        """One branch where the condition is known; else what both say, and what only one says is open."""
        main = ast.unparse(statement.test) in ("__name__ == '__main__'", "'__main__' == __name__")
        known = True if main else _value(self._filled(statement.test))
        if not isinstance(known, UnknownValue):
            for one in statement.body if known else statement.orelse:
                self._follow(one, found)
            return
        names, results = self.names, list[tuple[Nodes, Nodes]]()
        for body in (statement.body, statement.orelse):
            self.names, keys = dict(names), dict(found)
            for one in body:
                self._follow(one, keys)
            results.append((keys, self.names))
        (yes, yes_names), (no, no_names) = results
        found |= _either(statement.test, yes, no)
        self.names = _either(statement.test, yes_names, no_names)

    def _perhaps(self, statement: ast.stmt, found: Nodes) -> None:
        """What a loop, or another statement with statements in it, sets is open afterwards."""
        inner = [one for one in ast.walk(statement) if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign)]
        for one in inner:
            for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                found |= self._assigned(target, OPEN, begun=True)
        for one in ast.walk(statement):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                self.names[one.id] = OPEN

    def _assigned(self, target: ast.expr, value: ast.expr, *, begun: bool) -> Nodes:
        """What an assignment says. The first thing that is made and named is the configuration."""
        if isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            values = values if len(values) == len(target.elts) else [OPEN] * len(target.elts)
            pairs = zip(target.elts, values, strict=True)
            return {key: node for one, other in pairs for key, node in self._assigned(one, other, begun=True).items()}
        if isinstance(target, ast.Name):
            if isinstance(value, ast.Call):
                self.names.pop(target.id, None)
                return {} if begun else self._call(value, "")
            self.names[target.id] = self._filled(value)
            return {}
        path = ast.unparse(target).split(".")[1:]
        return self._keys(".".join(path), value) if isinstance(target, ast.Attribute) else {}

    def _call(self, call: ast.Call, before: str) -> Nodes:
        local = self._functions.pop(ast.unparse(call.func), None)
        if local is not None:
            found = self.inside(local, call)
            return found if not before else {f"{before}{_plain(key)}": node for key, node in found.items()}
        inside = before or GIVEN
        found: Nodes = {f"{before}{CALLED}": call.func}
        for place, argument in enumerate(call.args):
            found |= self._keys(f"{inside}{place}", argument)
        for place, keyword in enumerate(call.keywords):
            found |= self._keys(f"{inside}{keyword.arg or f'**{place}'}", keyword.value)
        return found

    def _keys(self, key: str, value: ast.expr) -> Nodes:
        if isinstance(value, ast.Call):
            return self._call(value, f"{key}.")
        return {key: self._filled(value)}

    def _filled(self, node: ast.expr) -> ast.expr:
        """An expression with what its names were given."""
        names = self.names

        class Fill(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                return names.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

        return Fill().visit(ast.parse(ast.unparse(node), mode="eval").body)


def _open(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _either(test: ast.expr, yes: Nodes, no: Nodes) -> Nodes:
    def one(key: str) -> ast.expr:
        if key not in yes or key not in no or _open(yes[key]) or _open(no[key]):
            return OPEN
        if ast.unparse(yes[key]) == ast.unparse(no[key]):
            return yes[key]
        return ast.IfExp(test, yes[key], no[key])

    return {key: one(key) for key in yes | no}


_SIGNS: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.Div: lambda one, other: one / other,
    ast.FloorDiv: lambda one, other: one // other,
    ast.Mod: lambda one, other: one % other,
}


def _value(node: ast.expr) -> Any:
    """A literal, a sum of numbers, the name of what is called in a list, or the text of what cannot be known."""
    if isinstance(node, ast.List | ast.Tuple):
        return [ast.unparse(one.func) if isinstance(one, ast.Call) else _value(one) for one in node.elts]
    if _open(node):
        return UnknownValue("set in some cases only")
    try:
        return _number(node) if isinstance(node, ast.BinOp) else ast.literal_eval(node)
    except (ValueError, TypeError, ArithmeticError):
        return UnknownValue(ast.unparse(node))


def _number(node: ast.expr) -> float:
    found: Any
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        found = _SIGNS[type(node.op)](_number(node.left), _number(node.right))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        found = math.pow(_number(node.left), _number(node.right))
        found = int(found) if found.is_integer() else found
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = -_number(node.operand)
    else:
        found = ast.literal_eval(node)
    if not isinstance(found, int | float) or abs(found) > LARGEST:
        raise ValueError(found)
    return found


LARGEST = 2**53
"""Of the numbers that are computed."""


# --- writing ------------------------------------------------------------------------------------


def assignments(
    name: str, before: Sequence[str], after: Sequence[str] = ()
) -> Callable[[Document, Sequence[str]], str]:
    """A writer of `name.key = value`, between these lines. Of `before`, the document's outermost call fills in {made},
    {last} without what stands before its last dot, and {given} with its arguments.
    """

    def write(document: Document, head: Sequence[str]) -> str:
        made = str(document.get(CALLED, "make_config"))
        given = ", ".join(_arguments(document, GIVEN, {}))
        lines = [f"# {line}".rstrip() for line in head]
        lines += _imports(document, before)
        lines += [line.format(made=made, last=made.split(".")[-1], given=given) for line in before]
        own = {key: value for key, value in document.items() if not key.startswith(CALLED) and key != IMPORTS}
        for key in dict.fromkeys(_whole(key, own) for key in own):
            lines.append(f"{name}.{key} = {_expression(own, key, {})}")
        return "\n".join([*lines, *after]) + "\n"

    return write


def _whole(key: str, document: Document) -> str:
    """The outermost call that a key is an argument of, or the key."""
    parts = key.split(".")
    starts = (".".join(parts[:count]) for count in range(1, len(parts)))
    return next((one for one in starts if f"{one}.{CALLED}" in document), key)


def _imports(document: Document, known: Sequence[str]) -> list[str]:
    return [line for line in document.get(IMPORTS, []) if line not in known]


def calls(frame: str, classes: Mapping[str, str]) -> Callable[[Document, Sequence[str]], str]:
    """A writer of one call inside others: `classes` says what is called for a table of keys, `frame` what is around.

    {calls} of the frame is the arguments of the outermost call.
    """

    def write(document: Document, head: Sequence[str]) -> str:
        plain = {_plain(key): value for key, value in document.items() if key != CALLED}
        own = dict.fromkeys(key.partition(".")[0] for key in plain if key != IMPORTS)
        lines = [f"        {key}={_python(plain[key])}," for key in own if key in plain]
        for table in own:
            if table not in plain:
                inside = [f"            {one}," for one in _arguments(plain, f"{table}.", classes)]
                lines += [f"        {table}={_made(plain, table, classes)}(", *inside, "        ),"]
        comment = "".join(f"# {line}".rstrip() + "\n" for line in head)
        imports = "".join(f"\n{line}" for line in _imports(document, frame.splitlines()))
        return comment + imports + frame.replace("{calls}", "\n".join(lines))

    return write


def _arguments(document: Document, before: str, classes: Mapping[str, str]) -> list[str]:
    """What is given to the call whose keys begin so: first what has no name, last what is unpacked."""
    keys = [key.removeprefix(before) for key in document if key.startswith(before)]
    parts = [part for part in dict.fromkeys(key.partition(".")[0] for key in keys) if part != CALLED]
    parts.sort(key=lambda part: (not part.isdecimal(), part.startswith("**")))
    labels = {part: "" if part.isdecimal() else "**" if part.startswith("**") else f"{part}=" for part in parts}
    return [f"{label}{_expression(document, f'{before}{part}', classes)}" for part, label in labels.items()]


def _expression(document: Document, key: str, classes: Mapping[str, str]) -> str:
    if key in document:
        return _python(document[key])
    return f"{_made(document, key, classes)}({', '.join(_arguments(document, f'{key}.', classes))})"


def _made(document: Document, key: str, classes: Mapping[str, str]) -> str:
    made = document.get(f"{key}.{CALLED}") or classes.get(key)
    if not made:
        raise BadInput(f"the file does not say what makes {key}", fix=f"{key}=...(...) where the configuration is made")
    return str(made)


def _python(value: Any) -> str:
    if isinstance(value, Code):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_python, cast('list[Any]', value)))}]"
    return f'"{value}"' if isinstance(value, str) and '"' not in value and "\\" not in value else repr(value)


def python(write: Callable[[Document, Sequence[str]], str]) -> FileFormat:
    """Python of one dialect."""
    return FileFormat("Python", (".py",), read, write)
