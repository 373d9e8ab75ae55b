"""What the expressions of one function are worth, by its names and by those that its file has or imports."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from foretell.dialects.python.expressions import (
    LONGEST,
    CannotKnow,
    compared,
    computed,
    joined,
    put_in_words,
    signed,
)
from foretell.dialects.python.literals import literal, part, to_compare, truth_of
from foretell.dialects.python.modules import ImportedModules, PythonModule
from foretell.dialects.python.values import (
    SOMETIMES,
    FunctionHere,
    Leaf,
    Listed,
    Made,
    PythonValue,
    Tabled,
    changed,
    open_up,
    unknown,
)
from foretell.errors import BadInput

Names = dict[str, PythonValue]

PROBLEMS: Final = (CannotKnow, TypeError, ValueError, LookupError, ArithmeticError, AttributeError)

HARMLESS: Final = frozenset(
    [
        "int",
        "float",
        "str",
        "bool",
        "len",
        "min",
        "max",
        "list",
        "tuple",
        "dict",
        "set",
        "frozenset",
        "sum",
        "abs",
        "round",
        "any",
        "all",
        "sorted",
        "range",
        "zip",
        "enumerate",
        "reversed",
        "print",
        "isinstance",
        "issubclass",
        "hasattr",
        "getattr",
        "type",
        "repr",
        "format",
        "id",
        "math.ceil",
        "math.floor",
        "math.log2",
        "copy.copy",
        "copy.deepcopy",
        "deepcopy",
        "cast",
        "os.getenv",
        "os.environ.get",
        "os.path.join",
        "replace",
        "dataclasses.replace",
    ]
)
"""Functions that change nothing of what they are given."""

_QUIET: Final = ("logger", "logging", "log", "warnings", "_logger")
"""What is only told something."""


class Following(Protocol):
    """What all frames of one file share."""

    modules: ImportedModules | None
    main: PythonModule | None
    outside: Names
    constants: dict[tuple[int, str], PythonValue]
    stack: list[ast.AST]
    notes: list[str]
    doubts: int

    @property
    def whole(self) -> bool: ...

    def step(self) -> None: ...

    def written(self, text: str) -> str: ...

    def called(
        self,
        function: FunctionHere,
        given: Sequence[PythonValue] = (),
        named: Mapping[str, PythonValue] | None = None,
        unsure: str = "",
    ) -> tuple[PythonValue, Names]: ...


class PythonFrame:
    """One function, or the outermost statements, with their names."""

    def __init__(self, follower: Following, module: PythonModule, names: Names) -> None:
        self.follower = follower
        self.module = module
        self.names: Names = names

    def value(self, node: ast.expr) -> PythonValue:
        """What an expression is worth."""
        self.follower.step()
        if isinstance(node, ast.Constant):
            return Leaf(ast.unparse(node), node.value)
        if isinstance(node, ast.Name):
            return self.named(node.id)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.List | ast.Tuple):
            items, whole = self.items(node.elts)
            return Listed(items, self.filled(node), isinstance(node, ast.Tuple), whole)
        if isinstance(node, ast.NamedExpr):
            found = self.names[node.target.id] = self.value(node.value)
            return found
        try:
            return self._worked_out(node)
        except PROBLEMS:
            return unknown(self.filled(node))

    def call(self, node: ast.Call, *, for_effect: bool = False) -> PythonValue:
        """What a call returns; `for_effect`: it stands alone, and what it returns is not used."""
        raise NotImplementedError

    def items(self, nodes: Sequence[ast.expr]) -> tuple[list[PythonValue], bool]:
        """Values one after the other, and whether that is all of them: `*more` may be of any length."""
        found: list[PythonValue] = []
        whole = True
        for node in nodes:
            value = self.value(node.value if isinstance(node, ast.Starred) else node)
            if not isinstance(node, ast.Starred):
                found.append(value)
            elif isinstance(value, Listed) and value.whole:
                found += value.items
            else:
                found.append(unknown(self.filled(node.value)))
                whole = False
        if len(found) > LONGEST:
            raise BadInput(f"a list of {len(found):,} items: more than {LONGEST:,} are not put together")
        return found, whole

    def named(self, name: str) -> PythonValue:
        found = self.names.get(name)
        if found is not None:
            return found
        function = self.function(name)
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
        key = (id(module), other)
        if key not in self.follower.constants:
            self.follower.stack.append(constant)
            self.follower.constants[key] = type(self)(self.follower, module, {}).value(constant)
            self.follower.stack.pop()
        return self.follower.constants[key]

    def _found(self, name: str) -> tuple[PythonModule, str] | None:
        if name in self.module.functions:
            return self.module, name
        return self.follower.modules.found(self.module, name) if self.follower.modules is not None else None

    def function(self, name: str) -> FunctionHere | None:
        found = self.names.get(name)
        if found is not None:
            return found if isinstance(found, FunctionHere) else None
        place = self._found(name)
        if place is None or place[1] not in place[0].functions:
            return None
        return FunctionHere(place[0], place[0].functions[place[1]], {})

    def callee(self, node: ast.expr) -> FunctionHere | None:
        """A function by its name, or one of a module that is imported: `llama3_70b.pretrain_recipe`."""
        if isinstance(node, ast.Name):
            return self.function(node.id)
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
        return unknown(self.filled(node))

    def _worked_out(self, node: ast.expr) -> PythonValue:
        if isinstance(node, ast.IfExp):
            truth = self.truth(node.test)
            if truth is None:
                self.perhaps(node.body)
                self.perhaps(node.orelse)
                raise CannotKnow
            return self.value(node.body if truth else node.orelse)
        if isinstance(node, ast.BoolOp):
            return self._decided(node)
        if isinstance(node, ast.ListComp):
            return self._each(node)
        if isinstance(node, ast.Subscript):
            return part(self.value(node.value), literal(self.value(node.slice)))
        if isinstance(node, ast.Dict):
            return self._table(node)
        if isinstance(node, ast.BinOp):
            return self.summed(node, self.value(node.left), self.value(node.right))
        return Leaf(self.filled(node), self._scalar(node))

    def _scalar(self, node: ast.expr) -> object:
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                truth = self.truth(node.operand)
                if truth is None:
                    raise CannotKnow
                return not truth
            return signed(node.op, literal(self.value(node.operand)))
        if isinstance(node, ast.Compare):
            values = [self.value(one) for one in (node.left, *node.comparators)]
            return compared(node, [to_compare(node, one) for one in values])
        if isinstance(node, ast.JoinedStr):
            values = [self.value(one.value if isinstance(one, ast.FormattedValue) else one) for one in node.values]
            return joined([self._words(one, value) for one, value in zip(node.values, values, strict=True)])
        if isinstance(node, ast.Set):
            values, whole = self.items(node.elts)
            if whole:
                return frozenset(literal(one) for one in values)
        else:
            self.perhaps(node)
        raise CannotKnow

    def summed(self, node: ast.BinOp, one: PythonValue, other: PythonValue) -> PythonValue:
        """Two values with a sign between them; the items of lists stay what they are."""
        if isinstance(one, Listed):
            if isinstance(node.op, ast.Add) and isinstance(other, Listed) and one.fixed == other.fixed:
                items = one.items + other.items
            elif isinstance(node.op, ast.Mult) and isinstance(times := literal(other), int):
                items = one.items * min(times, LONGEST + 1)
            else:
                raise CannotKnow
            if len(items) > LONGEST:
                raise BadInput(f"a list of {len(items):,} items: more than {LONGEST:,} are not put together")
            return Listed(
                items, self.filled(node), one.fixed, one.whole and (not isinstance(other, Listed) or other.whole)
            )
        return Leaf(self.filled(node), computed(node.op, literal(one), literal(other)))

    def _words(self, node: ast.expr, value: PythonValue) -> str:
        if not isinstance(node, ast.FormattedValue):
            return str(literal(value))
        form = self.value(node.format_spec) if node.format_spec is not None else Leaf("''", "")
        return put_in_words(literal(value), node.conversion, str(literal(form)))

    def _table(self, node: ast.Dict) -> Tabled:
        found = Tabled({}, self.filled(node))
        keys = [self.value(key) if key is not None else None for key in node.keys]
        for key, value in zip(keys, [self.value(one) for one in node.values], strict=True):
            if key is not None:
                found.items[literal(key)] = value
            elif isinstance(value, Tabled) and value.whole:  # another table, unpacked
                found.items |= value.items
            else:
                raise CannotKnow
        return found

    def _each(self, node: ast.ListComp) -> PythonValue:
        """A list made of another, item by item."""
        if len(node.generators) != 1:
            self.perhaps(node)
            raise CannotKnow
        loop = node.generators[0]
        items = self.value(loop.iter)
        if loop.ifs or not isinstance(loop.target, ast.Name) or not isinstance(items, Listed) or not items.whole:
            self.perhaps(node)
            raise CannotKnow
        frames = [type(self)(self.follower, self.module, self.names | {loop.target.id: one}) for one in items.items]
        return Listed([frame.value(node.elt) for frame in frames], self.filled(node))

    def _decided(self, node: ast.BoolOp) -> PythonValue:
        """`and` and `or`: the first operand that decides, else the last one."""
        value: PythonValue | None = None
        for place, one in enumerate(node.values, 1):
            value = self.value(one)
            truth = truth_of(value)
            if place < len(node.values) and truth is None:
                for other in node.values[place:]:
                    self.perhaps(other)
                raise CannotKnow
            if truth is isinstance(node.op, ast.Or):
                break
        assert value is not None
        return value

    def truth(self, node: ast.expr) -> bool | None:
        """Whether a condition holds: of `and` and `or` one operand that decides is enough. None: nobody knows."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand)
            return None if inner is None else not inner
        if not isinstance(node, ast.BoolOp):
            return truth_of(self.value(node))
        stop = isinstance(node.op, ast.Or)
        sure = True
        for place, one in enumerate(node.values):
            if not sure and any(isinstance(inner, ast.Call | ast.NamedExpr) for inner in ast.walk(one)):
                for other in node.values[place:]:
                    self.perhaps(other)
                return None
            truth = self.truth(one)
            if truth is stop:
                return stop
            sure = sure and truth is not None
        return (not stop) if sure else None

    def filled(self, node: ast.expr) -> str:
        """An expression as it stands there, with what its names were given."""
        names = self.follower.outside | self.names if self.module is self.follower.main else self.names
        named = self.named if self.follower.whole else names.get
        written = self.follower.written
        some = False

        class Fill(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                nonlocal some
                found = names.get(node.id) or (named(node.id) if node.id.isupper() else None)
                if not isinstance(found, Leaf) or not isinstance(node.ctx, ast.Load):
                    return node
                some = some or found.code == SOMETIMES
                try:
                    return ast.parse(written(found.code), mode="eval").body
                except SyntaxError:  # a value that is told in words
                    return node

        text = ast.unparse(Fill().visit(copy.deepcopy(node)))
        return SOMETIMES if some else written(text)

    # --- what is not followed -------------------------------------------------------------------

    def perhaps(self, node: ast.AST, by: str = "") -> None:
        """What a loop, a `try` or a part of an expression sets or calls, that is not followed, is open afterwards."""
        for one in ast.walk(node):
            if isinstance(one, ast.NamedExpr):
                self.names[one.target.id] = changed(by or ast.unparse(one))
            elif isinstance(one, ast.Call):
                self.reached(one, by or f"{ast.unparse(one.func)}(...)")

    def reached(self, node: ast.Call, by: str, *, asks: bool = False) -> None:
        """Open what a call reaches: what it is given, what it is a method of, and what its function speaks of.

        One that `asks` is there for what it returns: a note tells which configuration it was given.
        """
        name = ast.unparse(node.func)
        if name in HARMLESS or name.split(".")[0] in _QUIET or name.split(".")[-1][:1].isupper():
            return
        if isinstance(node.func, ast.Attribute):
            self.touch(node.func.value, by)
        for one in (*node.args, *(one.value for one in node.keywords)):
            if asks and isinstance(self._seen(one), Made):
                self.follower.notes.append(f"{by} may change the configuration: its text is not beside the file")
            else:
                self.touch(one, by, given=True)
        function = self.callee(node.func)
        if function is not None:
            self._spoken_of(function, by, set())

    def touch(self, node: ast.expr, by: str, *, given: bool = False) -> None:
        """What an expression is may have been changed: no call in it is followed for that.

        A field that nobody has seen is open, unless it was only `given` to a call: most of those are numbers.
        """
        if isinstance(node, ast.Name):
            found = self.named(node.id)
            if isinstance(found, FunctionHere):
                self._spoken_of(found, by, set())
            if isinstance(found, Leaf) and not found.known and found.code != node.id:  # another name of any of them
                open_up(self.names.values(), by)
            open_up([found], by)
        elif isinstance(node, ast.Attribute):
            owner = self._seen(node.value)
            found = owner.fields.get(node.attr) if isinstance(owner, Made) else None
            if found is not None:
                open_up([found], by)
            elif isinstance(owner, Made) and node.attr.startswith("__"):  # c.__dict__
                open_up([owner], by)
            elif isinstance(owner, Made) and not given:
                owner.put(node.attr, changed(by))
        elif isinstance(node, ast.Subscript | ast.Starred):
            self.touch(node.value, by, given=given)
        else:
            for one in ast.iter_child_nodes(node):
                if isinstance(one, ast.expr):
                    self.touch(one, by, given=given)

    def _seen(self, node: ast.expr) -> PythonValue | None:
        """What names and fields lead to, without following anything."""
        if isinstance(node, ast.Name):
            return self.named(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._seen(node.value)
            return owner.fields.get(node.attr) if isinstance(owner, Made) else None
        return None

    def _spoken_of(self, function: FunctionHere, by: str, seen: set[ast.AST]) -> None:
        """Open the names from outside that a function speaks of, and those that it sets there."""
        if function.node in seen:
            return
        seen.add(function.node)
        frame = type(self)(self.follower, function.module, function.around)
        for one in ast.walk(function.node):
            if isinstance(one, ast.Global | ast.Nonlocal):
                frame.set_outside(one, changed(by))
            elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
                found = frame.named(one.id)
                open_up([found], by)
                if isinstance(found, FunctionHere):
                    self._spoken_of(found, by, seen)

    def set_outside(self, node: ast.Global | ast.Nonlocal, value: PythonValue) -> None:
        """Names outside of a function that it sets itself."""
        for name in node.names:
            self.names[name] = value
            if isinstance(node, ast.Global) and self.module is self.follower.main:
                self.follower.outside[name] = value
