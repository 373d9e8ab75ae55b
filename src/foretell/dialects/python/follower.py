"""Follows statements from top to bottom. A function whose text is known is followed where it is called.

One branch is taken where a condition is known; else what both say holds, and what only one says is open. A loop over
items that are known is followed item by item. What another loop or a `try` sets, calls or returns is open.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from foretell.dialects.python.branches import TwoBranches
from foretell.dialects.python.calls import CallingFrame
from foretell.dialects.python.expressions import LONGEST
from foretell.dialects.python.frame import PROBLEMS
from foretell.dialects.python.literals import literal
from foretell.dialects.python.modules import ImportedModules, PythonModule
from foretell.dialects.python.names import Names
from foretell.dialects.python.values import (
    NOTHING,
    OPEN,
    SOMETIMES,
    FunctionHere,
    Leaf,
    Listed,
    Made,
    PythonValue,
    Tabled,
    lifted,
    open_up,
    unknown,
)
from foretell.errors import BadInput

MOST: Final = 200_000
"""Statements and expressions that are followed in all."""

TEXT: Final = 32_768
"""Characters of an expression, with what its names were given."""

TEXTS: Final = 2_000_000
"""Characters of all such expressions of a file."""

_ENDS = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom)


class PythonFollower:
    """`whole`: with what is imported from files beside, and with what is wrapped for later; else as it stands there."""

    def __init__(self, modules: ImportedModules | None) -> None:
        self.modules = modules
        self.main: PythonModule | None = None
        self.outside: Names = {}  # what stands outside of functions in the main file
        self.constants: dict[tuple[int, str], PythonValue] = {}  # of other files
        self.notes: list[str] = []
        self.stack: list[ast.AST] = []  # functions and constants that are being followed
        self.doubts = 0  # branches around that may not be taken
        self._steps = self._characters = 0

    @property
    def whole(self) -> bool:
        return self.modules is not None

    def step(self) -> None:
        """Count a statement or an expression."""
        self._steps += 1
        if self._steps > MOST:
            raise BadInput(f"more than {MOST:,} statements and expressions to follow", fix="a shorter file")

    def written(self, text: str) -> str:
        """Count an expression that was written out."""
        self._characters += len(text)
        if len(text) > TEXT:
            raise BadInput(
                f"an expression of {len(text):,} characters, with what its names stand for: at most {TEXT:,} are read",
                fix="a value in its place",
            )
        if self._characters > TEXTS:
            raise BadInput(f"expressions of more than {TEXTS:,} characters, with what their names stand for")
        return text

    def called(
        self,
        function: FunctionHere,
        given: Sequence[PythonValue] = (),
        named: Mapping[str, PythonValue] | None = None,
        unsure: str = "",
    ) -> tuple[PythonValue, Names]:
        """What a function returns, and the names that it leaves. `unsure`: what may say others of its arguments."""
        node, names = function.node, dict(function.around)
        frame = _CallFrame(self, function.module, names)
        places = [*node.args.posonlyargs, *node.args.args]
        usual = dict(zip((one.arg for one in reversed(places)), reversed(node.args.defaults), strict=False))
        usual |= {
            one.arg: value for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value
        }
        bound: Names = {name: unknown(unsure) if unsure else frame.value(value) for name, value in usual.items()}
        bound |= dict(zip((one.arg for one in places), given, strict=False)) | dict(named or {})
        for one in (*places, *node.args.kwonlyargs):
            names[one.arg] = bound.pop(one.arg, None) or unknown(one.arg)
        if node.args.vararg is not None:
            more = list(given[len(places) :])
            names[node.args.vararg.arg] = Listed(more, node.args.vararg.arg, fixed=True)
        if node.args.kwarg is not None:
            names[node.args.kwarg.arg] = unknown(unsure) if unsure else Tabled(dict(bound), node.args.kwarg.arg)
        self.stack.append(node)
        returned = frame.body(node.body, last=True)
        self.stack.pop()
        for one in ast.walk(node):  # names of others that it sets
            if isinstance(one, ast.Global | ast.Nonlocal):
                _CallFrame(self, function.module, function.around).set_outside(one, OPEN)
        return returned or NOTHING, names

    def script(self, module: PythonModule) -> None:
        """Follow what stands outside of functions."""
        self.main = module
        frame = _CallFrame(self, module, self.outside)
        frame.body([one for one in module.tree.body if not isinstance(one, ast.FunctionDef | ast.ClassDef)], last=True)


class _CallFrame(CallingFrame):
    """The statements of one function, or the outermost ones."""

    def body(self, statements: Sequence[ast.stmt], *, last: bool = False) -> PythonValue | None:
        """What is returned; None: nothing yet. `last`: nothing follows them."""
        for place, one in enumerate(statements):
            self.follower.step()
            rest = statements[place + 1 :]
            if isinstance(one, ast.Return):
                return self.value(one.value) if one.value is not None else NOTHING
            if isinstance(one, ast.Raise):
                return unknown(ast.unparse(one))
            if isinstance(one, ast.If):
                returned, ended = self._branch(one, rest, last)
                if ended:
                    return returned
            elif isinstance(one, ast.With):
                return self._with(one, rest, last)
            elif isinstance(one, ast.For) and (items := self._items(one)) is not None:
                self._loop(one, items)
            elif isinstance(one, ast.For | ast.While | ast.Try) and _has(one, ast.Return, ast.Yield):
                self._perhaps_all([one, *rest])  # what follows may not be reached
                return unknown(f"what a {type(one).__name__.lower()} statement returns")
            else:
                self._one(one, last and not rest)
        return None

    def _with(self, statement: ast.With, rest: Sequence[ast.stmt], last: bool) -> PythonValue | None:
        for item in statement.items:
            self.value(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, unknown(self.filled(item.context_expr)))
        return self.body([*statement.body, *rest], last=last)

    def _loop(self, loop: ast.For, items: Listed) -> None:
        """Item by item, with those that the loop itself adds."""
        place = 0
        while items.whole and place < len(items.items):
            self._assign(loop.target, items.items[place])
            self.body(loop.body)
            place += 1
        if items.whole:
            self.body(loop.orelse)
        else:
            self._perhaps_all([loop])

    def _items(self, loop: ast.For) -> Listed | None:
        """What a loop goes through, if it can be followed item by item."""
        if _has(loop, *_ENDS):
            return None
        found = self._range(loop.iter) or self.value(loop.iter)
        return found if isinstance(found, Listed) and found.whole else None

    def _range(self, node: ast.expr) -> PythonValue | None:
        """`range(...)` of numbers that are known."""
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "range" or node.keywords:
            return None
        if "range" in self.names or "range" in self.module.imports or self.function("range") is not None:
            return None
        try:
            numbers = range(*(literal(self.value(one)) for one in node.args))
        except PROBLEMS:
            return None
        if len(numbers) > LONGEST:
            raise BadInput(f"a loop over {len(numbers):,} numbers: more than {LONGEST:,} are not followed")
        return lifted(list(numbers))

    def _one(self, statement: ast.stmt, last: bool) -> None:
        if isinstance(statement, ast.Assign):
            value = self.value(statement.value)
            for target in statement.targets:
                self._assign(target, value)
        elif isinstance(statement, ast.AnnAssign):
            if statement.value is not None:
                self._assign(statement.target, self.value(statement.value))
        elif isinstance(statement, ast.AugAssign):
            self._in_place(statement)
        elif isinstance(statement, ast.FunctionDef):
            self.names[statement.name] = FunctionHere(self.module, statement, self.names)
        elif isinstance(statement, ast.Expr):
            self._effect(statement.value, last)
        elif isinstance(statement, ast.Assert):
            self.value(statement.test)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for one in statement.names:
                self.names.pop((one.asname or one.name).split(".")[0], None)
        elif isinstance(statement, ast.ClassDef):
            self.names[statement.name] = unknown(statement.name)
        elif not isinstance(statement, ast.Pass):
            self._perhaps_all([statement])

    def _branch(self, statement: ast.If, rest: Sequence[ast.stmt], last: bool) -> tuple[PythonValue | None, bool]:
        """What a condition comes to, and whether it returned. With a return in a branch the rest belongs to both."""
        test = ast.unparse(statement.test)
        main = test in ("__name__ == '__main__'", "'__main__' == __name__")
        truth = True if main else self.truth(statement.test)
        ends = _has(statement, ast.Return, ast.Raise)
        after = rest if ends else ()
        last = last and (ends or not rest)
        if truth is not None:
            returned = self.body([*(statement.body if truth else statement.orelse), *after], last=last)
            return returned, ends
        branches = [statement.body, statement.orelse]
        stops = [any(isinstance(one, ast.Raise) for one in body) for body in branches]
        if any(stops):  # a run that works does not come there
            taken = branches[stops.index(False)] if not all(stops) else []
            return self.body([*taken, *after], last=last), ends
        ways = TwoBranches(self.names)
        self.follower.doubts += 1
        results = [
            _CallFrame(self.follower, self.module, names).body([*body, *after], last=last)
            for body, names in zip(branches, ways.copies, strict=True)
        ]
        self.follower.doubts -= 1
        ways.settle(test)
        if not ends:
            return None, False
        return ways.either(results[0] or NOTHING, results[1] or NOTHING, test), True

    def _perhaps_all(self, statements: Iterable[ast.stmt]) -> None:
        """What statements that are not followed set or call is open afterwards."""
        for statement in statements:
            by = f"a {type(statement).__name__.lower()} statement"
            self.perhaps(statement, "" if isinstance(statement, ast.Expr) else by)
            for one in ast.walk(statement):
                if isinstance(one, ast.AugAssign):
                    self.touch(one.target, by)
                if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign):
                    for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                        self._assign(target, OPEN)
                elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store | ast.Del):
                    self.names[one.id] = OPEN
                elif isinstance(one, ast.Attribute | ast.Subscript) and not isinstance(one.ctx, ast.Load):
                    self._assign(one, OPEN)
                elif isinstance(one, ast.FunctionDef | ast.ClassDef):
                    self.names[one.name] = OPEN

    def _in_place(self, statement: ast.AugAssign) -> None:
        """`x += y`: a list is changed where it is, of all else there is a new one."""
        before = copy.deepcopy(statement.target)
        before.ctx = ast.Load()
        node = ast.BinOp(before, statement.op, statement.value)
        one, other = self.value(before), self.value(statement.value)
        try:
            value = self.summed(node, one, other)
        except PROBLEMS:
            value = unknown(self.filled(node))
        if not isinstance(one, Leaf) and not (isinstance(one, Listed) and one.fixed):
            if isinstance(one, Listed) and isinstance(value, Listed) and self.alone(one):
                one.items, one.whole = value.items, value.whole
                self.rewritten(one)
            else:
                open_up([one], ast.unparse(statement))
            value = one
        elif isinstance(one, Leaf) and not one.known:
            self.touch(before, ast.unparse(statement))
        self._assign(statement.target, value)

    def _assign(self, target: ast.expr, value: PythonValue) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            starred = any(isinstance(one, ast.Starred) for one in target.elts)
            known = isinstance(value, Listed) and value.whole and len(value.items) == len(target.elts) and not starred
            values = value.items if known and isinstance(value, Listed) else [OPEN] * len(target.elts)
            for one, other in zip(target.elts, values, strict=True):
                self._assign(one, other)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, OPEN)
        elif isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self._owner(target.value)
            if owner is not None:
                owner.put(target.attr, value if self.alone(owner) else OPEN)
            else:
                self.touch(target.value, ast.unparse(target))
        elif isinstance(target, ast.Subscript):
            self._put(target, value)

    def _put(self, target: ast.Subscript, value: PythonValue) -> None:
        """`l[0] = value`, `d["key"] = value`."""
        found = self.value(target.value)
        try:
            key: Any = literal(self.value(target.slice))
            if not isinstance(found, Listed | Tabled) or not found.whole or not self.alone(found):
                raise TypeError
            if isinstance(found, Listed):
                found.items[key] = value
            else:
                found.items[key] = value
            self.rewritten(found)
        except PROBLEMS:
            open_up([found], f"{ast.unparse(target)} = ...")
            self.touch(target.value, f"{ast.unparse(target)} = ...")

    def _owner(self, node: ast.expr) -> Made | None:
        """What has a field that is set; it is there from now on, if nobody has seen it being made."""
        if isinstance(node, ast.Name):
            found = self.named(node.id)
            if isinstance(found, Leaf) and (not found.known or found.value is None):
                found = self.names[node.id] = Made("", {"**": found} if found.code == SOMETIMES else {})
            return found if isinstance(found, Made) else None
        if not isinstance(node, ast.Attribute):
            found = self.value(node)
            return found if isinstance(found, Made) else None
        owner = self._owner(node.value)
        if owner is None:
            return None
        found = owner.fields.get(node.attr)
        if not isinstance(found, Made):
            unseen = isinstance(found, Leaf) and not found.known
            owner.put(node.attr, Made("", {"**": found} if unseen and isinstance(found, Leaf) else {}))
            owner.later.discard(node.attr)
        inner = owner.fields[node.attr]
        return inner if isinstance(inner, Made) else None

    def _runs(self, node: ast.expr) -> bool:
        """Whether a function is of elsewhere: `pretrain`, `run.run`; and no method of what is configured."""
        module = node.value if isinstance(node, ast.Attribute) else node
        return isinstance(module, ast.Name) and module.id not in self.names and self.callee(node) is None

    def _effect(self, node: ast.expr, last: bool) -> None:
        """A call that stands alone. The last one is taken to run what was configured."""
        if isinstance(node, ast.Call) and last and self._runs(node.func):
            for one in (*node.args, *(one.value for one in node.keywords)):
                self.value(one.value if isinstance(one, ast.Starred) else one)
        elif isinstance(node, ast.Call):
            self.follower.step()
            self.call(node, for_effect=True)
        else:
            self.value(node)


def _has(node: ast.AST, *kinds: type[ast.AST]) -> bool:
    return any(isinstance(one, kinds) for one in ast.walk(node))
