"""What the expressions of one function are worth, by its names and by those that its file has or imports."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Final

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
from foretell.dialects.python.names import NamesFrame
from foretell.dialects.python.values import (
    SOMETIMES,
    Leaf,
    Listed,
    Made,
    PythonValue,
    Tabled,
    unknown,
)
from foretell.errors import BadInput

PROBLEMS: Final = (CannotKnow, TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class PythonFrame(NamesFrame):
    """One function, or the outermost statements, with what its expressions are worth."""

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
