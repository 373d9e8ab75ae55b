"""What the expressions of one function are worth, by its names and by those that its file has or imports."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

from foretell.dialects.python.expressions import CannotKnow, asked, called, compared, computed
from foretell.dialects.python.modules import ImportedModules, PythonModule
from foretell.dialects.python.values import FunctionHere, Leaf, Listed, Made, PythonValue, code_of, plain, unknown

DEEPEST: Final = 24
"""Functions inside each other that are followed."""

Names = dict[str, PythonValue]

_WRAPPERS: Final = ("run.Config", "run.Partial", "partial", "functools.partial")
"""Calls that say what to call later: of NeMo-Run and of Python."""

_PROBLEMS = (CannotKnow, TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class Following(Protocol):
    """What all frames of one file share."""

    modules: ImportedModules | None
    main: PythonModule | None
    outside: Names
    stack: list[ast.AST]
    notes: list[str]
    left: int

    @property
    def whole(self) -> bool: ...

    def called(
        self, function: FunctionHere, given: Sequence[PythonValue] = (), named: Mapping[str, PythonValue] | None = None
    ) -> tuple[PythonValue, Names]: ...


class PythonFrame:
    """One function, or the outermost statements, with their names."""

    def __init__(self, follower: Following, module: PythonModule, names: Names) -> None:
        self.follower, self.module, self.names = follower, module, names

    def value(self, node: ast.expr) -> PythonValue:
        """What an expression is worth."""
        self.follower.left -= 1
        if self.follower.left < 0:
            return unknown("too long to follow")
        if isinstance(node, ast.Constant):
            return Leaf(ast.unparse(node), node.value)
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return Listed([self.value(one) for one in node.elts], self._filled(node))
        if isinstance(node, ast.Starred):
            return unknown(ast.unparse(node))
        if isinstance(node, ast.IfExp):
            truth = truth_of(self.value(node.test))
            if truth is not None:
                return self.value(node.body if truth else node.orelse)
        try:
            return Leaf(self._filled(node), self._worked_out(node))
        except _PROBLEMS:
            return unknown(self._filled(node))

    def _named(self, name: str) -> PythonValue:
        found = self.names.get(name)
        if found is not None:
            return found
        function = self._function(name)
        if function is not None:
            return function
        if self.module is self.follower.main and name in self.follower.outside:
            return self.follower.outside[name]
        place = self._found(name)
        if place is None or place[0] is self.follower.main:
            return unknown(name)
        module, other = place
        constant = module.constants[other]
        if constant in self.follower.stack:
            return unknown(name)
        self.follower.stack.append(constant)
        found = PythonFrame(self.follower, module, {}).value(constant)
        self.follower.stack.pop()
        return found

    def _found(self, name: str) -> tuple[PythonModule, str] | None:
        if name in self.module.functions:
            return self.module, name
        return self.follower.modules.found(self.module, name) if self.follower.modules is not None else None

    def _function(self, name: str) -> FunctionHere | None:
        found = self.names.get(name)
        if found is not None:
            return found if isinstance(found, FunctionHere) else None
        place = self._found(name)
        if place is None or place[1] not in place[0].functions:
            return None
        return FunctionHere(place[0], place[0].functions[place[1]], {})

    def _callee(self, node: ast.expr) -> FunctionHere | None:
        """A function by its name, or one of a module that is imported: `llama3_70b.pretrain_recipe`."""
        if isinstance(node, ast.Name):
            return self._function(node.id)
        modules = self.follower.modules
        if modules is None or not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return None
        module = modules.module(self.module, node.value.id) if node.value.id not in self.names else None
        found = modules.found(module, node.attr) if module is not None else None
        if found is None or found[1] not in found[0].functions:
            return None
        return FunctionHere(found[0], found[0].functions[found[1]], {})

    def _attribute(self, node: ast.Attribute) -> PythonValue:
        owner = self.value(node.value)
        if isinstance(owner, Made) and node.attr in owner.fields:
            return owner.fields[node.attr]
        return unknown(self._filled(node))

    def _call(self, node: ast.Call) -> PythonValue:
        name = self._filled(node.func) if self.follower.whole else ast.unparse(node.func)
        given = [self.value(one) for one in node.args]
        if name in ("cast", "copy.deepcopy", "deepcopy") and given:
            return given[-1] if name == "cast" else copy.deepcopy(given[-1])
        function = self._callee(node.func)
        named = {one.arg: self.value(one.value) for one in node.keywords if one.arg}
        if function is not None and function.node not in self.follower.stack and self._shallow():
            returned = self.follower.called(function, given, named)[0]
            if isinstance(returned, Made) and function.module is not self.follower.main:
                returned.asked |= {str(place): one for place, one in enumerate(given)} | named
            if not (isinstance(returned, Leaf) and not returned.known):
                return returned
        try:
            return self._simple(node, name, given)
        except _PROBLEMS:
            return self._made(node, name, given)

    def _shallow(self) -> bool:
        return len(self.follower.stack) < DEEPEST and self.follower.left > 0

    def _simple(self, node: ast.Call, name: str, given: Sequence[PythonValue]) -> PythonValue:
        values = [_literal(one) for one in given]
        if node.keywords:
            raise CannotKnow
        if isinstance(node.func, ast.Attribute):
            return Leaf(self._filled(node), asked(_literal(self.value(node.func.value)), node.func.attr, values))
        return Leaf(self._filled(node), called(name, values))

    def _made(self, node: ast.Call, name: str, given: Sequence[PythonValue]) -> Made:
        if self.follower.whole and given and self._for_later(name):
            name, given = code_of(given[0]), given[1:]
        elif isinstance(node.func, ast.Name) and isinstance(self.names.get(name), Leaf):
            name = code_of(self.names[name])
        made = Made(name)
        made.fields |= {str(place): value for place, value in enumerate(given)}
        for place, one in enumerate(node.keywords):
            value = self.value(one.value)
            if one.arg:
                made.fields[one.arg] = value
            elif self.follower.whole and isinstance(value, Leaf) and _table(value.value):
                made.fields |= {str(key): Leaf(repr(item), item) for key, item in value.value.items()}
            else:
                made.fields[f"**{place}"] = value
        return made

    def _for_later(self, name: str) -> bool:
        imported = self.module.imports.get(name)
        return name in _WRAPPERS or (imported is not None and imported.module.startswith("nemo_run"))

    def _worked_out(self, node: ast.expr) -> object:
        if isinstance(node, ast.BinOp):
            return computed(node.op, _literal(self.value(node.left)), _literal(self.value(node.right)))
        if isinstance(node, ast.UnaryOp):
            inner = _literal(self.value(node.operand))
            return not inner if isinstance(node.op, ast.Not) else computed(ast.Sub(), 0, inner)
        if isinstance(node, ast.Compare):
            return compared(node, [_literal(self.value(one)) for one in (node.left, *node.comparators)])
        if isinstance(node, ast.BoolOp):
            return self._both(node)
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.FormattedValue) else one for one in node.values]
            return "".join(str(_literal(self.value(one))) for one in parts)
        if isinstance(node, ast.ListComp):
            return self._each(node)
        if isinstance(node, ast.Subscript):
            return cast("Any", _literal(self.value(node.value)))[_literal(self.value(node.slice))]
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {_key(self.value(key) if key else None): _literal(self.value(one)) for key, one in pairs}
        raise CannotKnow

    def _each(self, node: ast.ListComp) -> object:
        """A list made of another, item by item."""
        (loop,) = node.generators
        items = self.value(loop.iter)
        if loop.ifs or not isinstance(loop.target, ast.Name) or not isinstance(items, Listed | Leaf):
            raise CannotKnow
        values = items.items if isinstance(items, Listed) else [Leaf(repr(one), one) for one in _sequence(items)]
        frames = [PythonFrame(self.follower, self.module, self.names | {loop.target.id: one}) for one in values]
        return [_literal(frame.value(node.elt)) for frame in frames]

    def _both(self, node: ast.BoolOp) -> object:
        """`and` and `or`: one value that decides is enough."""
        stop = isinstance(node.op, ast.Or)
        truths = [truth_of(self.value(one)) for one in node.values]
        if stop in truths:
            return stop
        if None in truths:
            raise CannotKnow
        return not stop

    def _filled(self, node: ast.expr) -> str:
        """An expression as it stands there, with what its names were given."""
        names = self.follower.outside | self.names if self.module is self.follower.main else self.names
        named = self._named if self.follower.whole else names.get

        class Fill(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                found = names.get(node.id) or (named(node.id) if node.id.isupper() else None)
                if not isinstance(found, Leaf) or not isinstance(node.ctx, ast.Load):
                    return node
                try:
                    return ast.parse(found.code, mode="eval").body
                except SyntaxError:  # a value that is told in words
                    return node

        return ast.unparse(Fill().visit(copy.deepcopy(node)))


def _key(value: PythonValue | None) -> object:
    if value is None:  # another table, unpacked
        raise CannotKnow
    return _literal(value)


def _literal(value: PythonValue) -> object:
    if isinstance(value, Listed):
        items = [_literal(one) for one in value.items]
        return tuple(items) if value.code.startswith("(") else items
    if not isinstance(value, Leaf) or not value.known:
        raise CannotKnow
    return value.value


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _sequence(value: Leaf) -> list[object]:
    if type(value.value) not in (list, tuple):
        raise CannotKnow
    return list(cast("list[object]", value.value))


def truth_of(value: PythonValue) -> bool | None:
    """Whether a condition holds; None where nobody knows."""
    if isinstance(value, Listed):
        return bool(value.items)
    if isinstance(value, Made):
        return True if value.made.split(".")[-1][:1].isupper() else None  # what a class makes
    if isinstance(value, FunctionHere):
        return True
    return bool(plain(value)) if value.known else None
