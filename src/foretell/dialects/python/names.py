"""The names of one function, and what is open where something that is not followed may change what they stand for."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from foretell.dialects.python.modules import ImportedModules, PythonModule
from foretell.dialects.python.values import FunctionHere, Leaf, Made, PythonValue, changed, open_up, unknown

Names = dict[str, PythonValue]

_PYTHONS_OWN: Final = """
    int float str bool len min max list tuple dict set frozenset sum abs round any all sorted range zip enumerate divmod
    reversed print isinstance issubclass hasattr getattr type repr format id math.ceil math.floor math.log2
    copy.copy copy.deepcopy deepcopy cast os.getenv os.environ.get os.path.join replace dataclasses.replace
"""
HARMLESS: Final = frozenset(_PYTHONS_OWN.split())
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


class NamesFrame:
    """One function, or the outermost statements, with their names."""

    def __init__(self, follower: Following, module: PythonModule, names: Names) -> None:
        self.follower = follower
        self.module = module
        self.names: Names = names

    def value(self, node: ast.expr) -> PythonValue:
        """What an expression is worth."""
        raise NotImplementedError

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
