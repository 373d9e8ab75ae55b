"""Follows statements from top to bottom. A function whose text is known is followed where it is called.

One branch is taken where a condition is known; else what both say holds, and what only one says is open. What a loop or
a `try` sets is open.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Final

from foretell.dialects.python.frame import Names, PythonFrame, truth_of
from foretell.dialects.python.modules import ImportedModules, PythonModule
from foretell.dialects.python.values import (
    NOTHING,
    OPEN,
    FunctionHere,
    Leaf,
    Listed,
    Made,
    PythonValue,
    TwoBranches,
    code_of,
    unknown,
)

MOST: Final = 20_000
"""Statements that are followed in all."""


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
        frame = _CallFrame(self, function.module, names)
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
        frame = _CallFrame(self, module, self.outside)
        frame.body([one for one in module.tree.body if not isinstance(one, ast.FunctionDef | ast.ClassDef)])


class _CallFrame(PythonFrame):
    """The statements of one function, or the outermost ones."""

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
        truth = truth_of(known)
        if truth is not None:
            returned = self.body(statement.body if truth else statement.orelse)
            return returned, returned is not None
        branches = [statement.body, statement.orelse]
        stops = [any(isinstance(one, ast.Raise) for one in body) for body in branches]
        if any(stops):  # a run that works does not come there
            returned = self.body(branches[stops.index(False)] if not all(stops) else [])
            return returned, returned is not None
        ways = TwoBranches(self.names)
        ends = any(isinstance(one, ast.Return) for one in ast.walk(statement)) and self.follower.left > 0
        results = [
            _CallFrame(self.follower, self.module, names).body([*body, *(rest if ends else ())])
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
