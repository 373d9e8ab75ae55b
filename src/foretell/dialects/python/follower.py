"""Follows statements from top to bottom. A function whose text is known is followed where it is called.

One branch is taken where a condition is known; else what both say holds, and what only one says is open. What a loop or
a `try` sets is open.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Final

from foretell.dialects.python.expressions import CannotKnow, asked, called, compared, computed
from foretell.dialects.python.modules import ImportedModules, PythonModule
from foretell.dialects.python.values import (
    NOTHING,
    OPEN,
    BothWays,
    FunctionHere,
    Leaf,
    Listed,
    Made,
    PythonValue,
    code_of,
    plain,
    unknown,
)

DEEPEST: Final = 24
"""Functions inside each other that are followed."""

MOST: Final = 20_000
"""Statements that are followed in all."""

Names = dict[str, PythonValue]

_WRAPPERS: Final = ("run.Config", "run.Partial", "partial", "functools.partial")
"""Calls that say what to call later: of NeMo-Run and of Python."""

_PROBLEMS = (CannotKnow, TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class PythonFollower:
    """`whole`: with what is imported from files beside, and with what is wrapped for later; else as it stands there."""

    def __init__(self, modules: ImportedModules | None) -> None:
        self.modules = modules
        self.main: PythonModule | None = None
        self.outside: Names = {}  # what stands outside of functions in the main file
        self.notes: list[str] = []
        self.stack: list[ast.AST] = []  # functions and constants that are being followed
        self.left = MOST

    @property
    def whole(self) -> bool:
        return self.modules is not None

    def called(
        self, function: FunctionHere, given: Sequence[PythonValue] = (), named: Mapping[str, PythonValue] | None = None
    ) -> tuple[PythonValue, Names]:
        """What a function returns, and the names that it leaves."""
        node, names = function.node, dict(function.around)
        frame = _Frame(self, function.module, names)
        places = [*node.args.posonlyargs, *node.args.args]
        usual = dict(zip((one.arg for one in reversed(places)), reversed(node.args.defaults), strict=False))
        usual |= {
            one.arg: value for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value
        }
        bound: Names = {name: frame.value(value) for name, value in usual.items()}
        bound |= dict(zip((one.arg for one in places), given, strict=False)) | dict(named or {})
        for one in (*places, *node.args.kwonlyargs):
            names[one.arg] = bound.get(one.arg) or unknown(one.arg)
        self.stack.append(node)
        returned = frame.body(node.body)
        self.stack.pop()
        return returned or NOTHING, names

    def script(self, module: PythonModule) -> None:
        """Follow what stands outside of functions."""
        self.main = module
        frame = _Frame(self, module, self.outside)
        frame.body([one for one in module.tree.body if not isinstance(one, ast.FunctionDef | ast.ClassDef)])


class _Frame:
    """One function, or the outermost statements, with their names."""

    def __init__(self, follower: PythonFollower, module: PythonModule, names: Names) -> None:
        self.follower, self.module, self.names = follower, module, names

    # --- statements

    def body(self, statements: Sequence[ast.stmt]) -> PythonValue | None:
        """What is returned; None: nothing yet."""
        for place, one in enumerate(statements):
            self.follower.left -= 1
            if isinstance(one, ast.Return):
                return self.value(one.value) if one.value is not None else NOTHING
            if isinstance(one, ast.If):
                returned, ended = self._branch(one, statements[place + 1 :])
                if ended:
                    return returned
            elif isinstance(one, ast.With):
                returned = self.body(one.body)
                if returned is not None:
                    return returned
            else:
                self._one(one, last=place + 1 == len(statements))
        return None

    def _one(self, statement: ast.stmt, last: bool) -> None:
        if isinstance(statement, ast.Assign):
            value = self.value(statement.value)
            for target in statement.targets:
                self._assign(target, value)
        elif isinstance(statement, ast.AnnAssign):
            if statement.value is not None:
                self._assign(statement.target, self.value(statement.value))
        elif isinstance(statement, ast.FunctionDef):
            self.names[statement.name] = FunctionHere(self.module, statement, self.names)
        elif isinstance(statement, ast.Expr):
            self._effect(statement.value, last)
        elif not isinstance(statement, ast.Assert | ast.Import | ast.ImportFrom | ast.Pass | ast.ClassDef):
            self._perhaps(statement)

    def _branch(self, statement: ast.If, rest: Sequence[ast.stmt]) -> tuple[PythonValue | None, bool]:
        """What a condition comes to, and whether it returned. With a return in a branch the rest belongs to both."""
        test = ast.unparse(statement.test)
        main = test in ("__name__ == '__main__'", "'__main__' == __name__")
        known = Leaf("True", True) if main else self.value(statement.test)
        truth = _truth(known)
        if truth is not None:
            returned = self.body(statement.body if truth else statement.orelse)
            return returned, returned is not None
        branches = [statement.body, statement.orelse]
        stops = [any(isinstance(one, ast.Raise) for one in body) for body in branches]
        if any(stops):  # a run that works does not come there
            returned = self.body(branches[stops.index(False)] if not all(stops) else [])
            return returned, returned is not None
        ways = BothWays(self.names)
        ends = any(isinstance(one, ast.Return) for one in ast.walk(statement)) and self.follower.left > 0
        results = [
            _Frame(self.follower, self.module, names).body([*body, *(rest if ends else ())])
            for body, names in zip(branches, ways.copies, strict=True)
        ]
        ways.settle(test)
        if not ends:
            return None, False
        return ways.either(results[0] or NOTHING, results[1] or NOTHING, test), True

    def _perhaps(self, statement: ast.stmt) -> None:
        """What a loop, a `try` or a sum in place sets is open afterwards."""
        for one in ast.walk(statement):
            if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign):
                for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                    self._assign(target, OPEN)
            elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                self.names[one.id] = OPEN

    def _assign(self, target: ast.expr, value: PythonValue) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            known = isinstance(value, Listed) and len(value.items) == len(target.elts)
            values = value.items if known and isinstance(value, Listed) else [OPEN] * len(target.elts)
            for one, other in zip(target.elts, values, strict=True):
                self._assign(one, other)
        elif isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self._owner(target.value)
            if owner is not None:
                owner.put(target.attr, value)

    def _owner(self, node: ast.expr) -> Made | None:
        """What has a field that is set; it is there from now on, if nobody has seen it being made."""
        if isinstance(node, ast.Name):
            found = self.names.get(node.id)
            if found is None or (isinstance(found, Leaf) and (not found.known or found.value is None)):
                found = self.names[node.id] = Made("")
            return found if isinstance(found, Made) else None
        if not isinstance(node, ast.Attribute):
            return None
        owner = self._owner(node.value)
        if owner is None:
            return None
        found = owner.fields.get(node.attr)
        if not isinstance(found, Made):
            owner.put(node.attr, Made(""))
            owner.later.discard(node.attr)
        inner = owner.fields[node.attr]
        return inner if isinstance(inner, Made) else None

    def _effect(self, node: ast.expr, last: bool) -> None:
        """A call that stands alone: what it does to a list, or to a configuration that it is given."""
        if not isinstance(node, ast.Call):
            return
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend"):
            owner = self.value(node.func.value)
            given = [self.value(one) for one in node.args]
            if isinstance(owner, Listed) and len(given) == 1:
                more = given[0].items if node.func.attr == "extend" and isinstance(given[0], Listed) else given
                owner.items += more
                owner.code = f"[{', '.join(map(code_of, owner.items))}]"
            return
        name = ast.unparse(node.func)
        given = [self.value(one) for one in node.args]
        followed = isinstance(node.func, ast.Name) and self._function(node.func.id) is not None
        if not followed and not last and any(isinstance(one, Made) and one.touched for one in given):
            self.follower.notes.append(f"{name}(...) may change the configuration: its text is not beside the file")
        self.value(node)

    # --- expressions

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
            truth = _truth(self.value(node.test))
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
        found = _Frame(self.follower, module, {}).value(constant)
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
            elif self.follower.whole and isinstance(value, Leaf) and isinstance(value.value, dict):
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
            return _literal(self.value(node.value))[_literal(self.value(node.slice))]
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
        frames = [_Frame(self.follower, self.module, self.names | {loop.target.id: one}) for one in values]
        return [_literal(frame.value(node.elt)) for frame in frames]

    def _both(self, node: ast.BoolOp) -> object:
        """`and` and `or`: one value that decides is enough."""
        stop = isinstance(node.op, ast.Or)
        truths = [_truth(self.value(one)) for one in node.values]
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


def _sequence(value: Leaf) -> list[object]:
    if not isinstance(value.value, list | tuple):
        raise CannotKnow
    return list(value.value)


def _truth(value: PythonValue) -> bool | None:
    """Whether a condition holds; None where nobody knows."""
    if isinstance(value, Listed):
        return bool(value.items)
    if isinstance(value, Made):
        return True if value.made.split(".")[-1][:1].isupper() else None  # what a class makes
    if isinstance(value, FunctionHere):
        return True
    return bool(plain(value)) if value.known else None
