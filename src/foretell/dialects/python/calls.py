"""What a call returns, and what it changes: followed where the text of its function is known."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Final

from foretell.dialects.python.expressions import LONGEST, CannotKnow, asked, called
from foretell.dialects.python.frame import PROBLEMS, PythonFrame
from foretell.dialects.python.literals import literal
from foretell.dialects.python.values import (
    NOTHING,
    FunctionHere,
    Leaf,
    Listed,
    Made,
    PythonValue,
    Tabled,
    code_of,
    lifted,
    open_up,
    reachable,
    unknown,
)
from foretell.errors import BadInput

DEEPEST: Final = 24
"""Functions inside each other that are followed."""

_WRAPPERS: Final = ("run.Config", "run.Partial", "partial", "functools.partial")
"""Calls that say what to call later: of NeMo-Run and of Python."""

_ANYTHING: Final = ("exec", "eval", "globals", "locals", "vars")
"""Calls that may set any name."""


class CallingFrame(PythonFrame):
    """One function, or the outermost statements, with what its calls return and change."""

    def call(self, node: ast.Call, *, for_effect: bool = False) -> PythonValue:
        name = self.filled(node.func) if self.follower.whole else ast.unparse(node.func)
        owner = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else None
        given, whole = self.items(node.args)
        named = [(one.arg, self.value(one.value)) for one in node.keywords]
        function = self.callee(node.func)
        if function is None and name in ("cast", "copy.deepcopy", "deepcopy") and given and whole:
            return given[-1] if name == "cast" else copy.deepcopy(given[-1])
        if function is not None and whole and self._can_follow(function):
            returned = self._followed(function, given, named)
            if not (isinstance(returned, Leaf) and not returned.known):
                return returned
            return self._made(node, name, given, named)
        if not named and whole and function is None:
            try:
                return self._simple(node, name, owner, given)
            except PROBLEMS:
                pass
        if name in _ANYTHING:
            open_up(self.names.values(), f"{name}(...)")
            self.names |= {one: unknown(f"what {name}(...) may have set") for one in self.names}
        if not self._for_later(name):
            self.reached(node, f"{ast.unparse(node.func)}(...)", asks=not for_effect)
        return self._made(node, name, given if whole else [unknown(code_of(one)) for one in given], named)

    def _can_follow(self, function: FunctionHere) -> bool:
        return (
            function.node not in self.follower.stack
            and len(self.follower.stack) < DEEPEST
            and not any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(function.node))
        )

    def _followed(
        self, function: FunctionHere, given: Sequence[PythonValue], named: Sequence[tuple[str | None, PythonValue]]
    ) -> PythonValue:
        by_name: dict[str, PythonValue] = {}
        unsure = ""
        for name, value in named:
            if name:
                by_name[name] = value
            elif isinstance(value, Tabled) and value.whole:
                by_name |= {str(key): one for key, one in value.items.items()}
            else:
                unsure = f"**{code_of(value)}"
        returned = self.follower.called(function, given, by_name, unsure)[0]
        if isinstance(returned, Made) and function.module is not self.follower.main:
            returned.asked |= {str(place): one for place, one in enumerate(given)} | by_name
        return returned

    def _simple(
        self, node: ast.Call, name: str, owner: PythonValue | None, given: Sequence[PythonValue]
    ) -> PythonValue:
        """A function of Python itself, or a method of a text, a list or a table."""
        if name == "setattr" and len(given) == 3 and isinstance(given[0], Made) and self.alone(given[0]):
            given[0].put(str(literal(given[1])), given[2])
            return NOTHING
        if owner is not None and name != "math.ceil":
            assert isinstance(node.func, ast.Attribute)
            if isinstance(owner, Listed | Tabled):
                return self._of_container(owner, node.func.attr, given)
            return Leaf(self.filled(node), asked(literal(owner), node.func.attr, [literal(one) for one in given]))
        if name in self.names or name in self.module.imports:
            raise CannotKnow
        if name == "list" and len(given) == 1 and isinstance(given[0], Listed) and given[0].whole:
            return Listed([*given[0].items], self.filled(node))
        found = called(name, [literal(one) for one in given])
        if isinstance(found, list | dict) and name != "list":  # one of those given, and no copy
            raise CannotKnow
        return Leaf(self.filled(node), found) if not isinstance(found, list | tuple) else lifted(found)

    def _of_container(self, owner: Listed | Tabled, method: str, given: Sequence[PythonValue]) -> PythonValue:
        if not owner.whole:
            raise CannotKnow
        if isinstance(owner, Tabled) and method == "get" and given:
            return owner.items.get(literal(given[0]), given[1] if len(given) > 1 else NOTHING)
        if len(given) != 1 or not self.alone(owner):
            raise CannotKnow
        if isinstance(owner, Tabled) and method == "update" and isinstance(given[0], Tabled) and given[0].whole:
            owner.items |= given[0].items
        elif isinstance(owner, Listed) and not owner.fixed and method == "append":
            owner.items.append(given[0])
        elif isinstance(owner, Listed) and not owner.fixed and method == "extend" and isinstance(given[0], Listed):
            if not given[0].whole:
                raise CannotKnow
            owner.items += [*given[0].items]
        else:
            raise CannotKnow
        self.rewritten(owner)
        return NOTHING

    def alone(self, value: PythonValue) -> bool:
        """Whether a change can be followed: what stands outside has no copy for a branch that may not be taken."""
        if not self.follower.doubts:
            return True
        shared = reachable([*self.follower.outside.values(), *self.follower.constants.values()])
        return all(one is not value for one in shared)

    def rewritten(self, value: Listed | Tabled) -> None:
        """How a list or a table is written that was changed."""
        if len(value.items) > LONGEST:
            raise BadInput(f"a list of {len(value.items):,} items: more than {LONGEST:,} are not put together")
        if isinstance(value, Listed):
            value.code = self.follower.written(f"[{', '.join(map(code_of, value.items))}]")
        else:
            pairs = (f"{key!r}: {code_of(one)}" for key, one in value.items.items())
            value.code = self.follower.written(f"{{{', '.join(pairs)}}}")

    def _made(
        self,
        node: ast.Call,
        name: str,
        given: Sequence[PythonValue],
        named: Sequence[tuple[str | None, PythonValue]],
    ) -> Made:
        if self.follower.whole and given and self._for_later(name):
            name, given = code_of(given[0]), given[1:]
        elif isinstance(node.func, ast.Name) and isinstance(self.names.get(name), Leaf):
            name = code_of(self.names[name])
        made = Made(name)
        made.fields |= {str(place): value for place, value in enumerate(given)}
        for place, (key, value) in enumerate(named):
            if key:
                made.fields[key] = value
            elif self.follower.whole and isinstance(value, Tabled) and value.whole:
                made.fields |= {str(one): item for one, item in value.items.items()}
            else:
                made.fields[f"**{place}"] = value
        return made

    def _for_later(self, name: str) -> bool:
        imported = self.module.imports.get(name)
        return name in _WRAPPERS or (imported is not None and imported.module.startswith("nemo_run"))
