"""Conditions on records, in the words of SQL: `plan like 'dp%' and step_seconds < 0.1`.

A condition is read once and then asked of rows here, or written as SQL for a database: the answers are the same. What a
record does not have is unknown, as in SQL: a comparison with it is neither true nor false, and the record is left out.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from foretell.errors import BadInput, unknown
from foretell.records.columns import COLUMNS, IDENTITY, Value, is_numeric

Known: TypeAlias = bool | None
"""True, false, or unknown."""

OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
SAME: Final = {"==": "=", "!=": "<>"}

EXAMPLE: Final = "plan like 'dp%' and step_seconds < 0.1"

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<text>'(?:[^']|'')*')"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,))"
)


@dataclass(frozen=True)
class Name:
    """A column."""

    name: str

    def value(self, row: Mapping[str, Value]) -> Value:
        return row[self.name]

    @property
    def numeric(self) -> bool:
        return is_numeric(self.name)

    def sql(self) -> str:
        return f'"{self.name}"'


@dataclass(frozen=True)
class Literal:
    """A number or a text."""

    said: str | float

    def value(self, row: Mapping[str, Value]) -> Value:
        return self.said

    @property
    def numeric(self) -> bool:
        return isinstance(self.said, float)

    def sql(self) -> str:
        return _quoted(self.said) if isinstance(self.said, str) else f"CAST({self.said!r} AS DOUBLE)"


Term: TypeAlias = Name | Literal


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class Compared:
    left: Term
    sign: str
    right: Term

    def holds(self, row: Mapping[str, Value]) -> Known:
        left, right = self.left.value(row), self.right.value(row)
        return None if left is None or right is None else OPERATORS[self.sign](left, right)

    def sql(self) -> str:
        return f"{self.left.sql()} {self.sign} {self.right.sql()}"


@dataclass(frozen=True)
class Like:
    """Texts of a form: % is any text, _ any letter."""

    term: Term
    form: str

    def holds(self, row: Mapping[str, Value]) -> Known:
        value = self.term.value(row)
        return None if value is None else re.fullmatch(self._pattern(), str(value), re.DOTALL) is not None

    def _pattern(self) -> str:
        return "".join({"%": ".*", "_": "."}.get(letter, re.escape(letter)) for letter in self.form)

    def sql(self) -> str:
        return f"{self.term.sql()} LIKE {_quoted(self.form)}"


@dataclass(frozen=True)
class Among:
    term: Term
    members: tuple[Literal, ...]

    def holds(self, row: Mapping[str, Value]) -> Known:
        value = self.term.value(row)
        return None if value is None else value in [member.said for member in self.members]

    def sql(self) -> str:
        return f"{self.term.sql()} IN ({', '.join(member.sql() for member in self.members)})"


@dataclass(frozen=True)
class Missing:
    term: Term

    def holds(self, row: Mapping[str, Value]) -> Known:
        return self.term.value(row) is None

    def sql(self) -> str:
        return f"{self.term.sql()} IS NULL"


@dataclass(frozen=True)
class Not:
    inner: Condition

    def holds(self, row: Mapping[str, Value]) -> Known:
        found = self.inner.holds(row)
        return None if found is None else not found

    def sql(self) -> str:
        return f"NOT ({self.inner.sql()})"


@dataclass(frozen=True)
class And:
    left: Condition
    right: Condition

    def holds(self, row: Mapping[str, Value]) -> Known:
        found = (self.left.holds(row), self.right.holds(row))
        return False if False in found else None if None in found else True

    def sql(self) -> str:
        return f"({self.left.sql()} AND {self.right.sql()})"


@dataclass(frozen=True)
class Or:
    left: Condition
    right: Condition

    def holds(self, row: Mapping[str, Value]) -> Known:
        found = (self.left.holds(row), self.right.holds(row))
        return True if True in found else None if None in found else False

    def sql(self) -> str:
        return f"({self.left.sql()} OR {self.right.sql()})"


@dataclass(frozen=True)
class Always:
    """No condition."""

    def holds(self, row: Mapping[str, Value]) -> Known:
        return True

    def sql(self) -> str:
        return "TRUE"


Condition: TypeAlias = Compared | Like | Among | Missing | Not | And | Or | Always


def condition(text: str) -> Condition:
    """The condition that a text says; an empty one says nothing."""
    return _Reader(text).whole() if text.strip() else Always()


def check_column(name: str, where: str) -> str:
    """A column's name, or what was probably meant."""
    if name != IDENTITY and name not in COLUMNS:
        problem = unknown("column", name, [IDENTITY, *COLUMNS])
        raise BadInput(problem.what, where=where, fix=problem.fix)
    return name


class _Reader:
    """Reads a condition from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.tokens = list(self._split())
        self.next = 0

    def _split(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        end = len(self.text.rstrip())
        while self.at < end:
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                self._wrong(f"cannot be read from {self.text[self.at : end].strip()[:20]!r} on")
            assert match.lastgroup is not None
            found.append((match.lastgroup, match[match.lastgroup]))
            self.at = match.end()
        return found

    def _wrong(self, what: str) -> NoReturn:
        raise BadInput(f"{self.text!r} is no condition: {what}", where="--where", fix=EXAMPLE)

    def _ahead(self, *words: str) -> bool:
        return self.next < len(self.tokens) and self.tokens[self.next][1].lower() in words

    def _took(self, *words: str) -> bool:
        """Take the next token if it is one of these."""
        found = self._ahead(*words)
        self.next += found
        return found

    def _must(self, word: str) -> None:
        if not self._took(word):
            self._wrong(f"{word!r} is missing {self._place()}")

    def _place(self) -> str:
        return f"before {self.tokens[self.next][1]!r}" if self.next < len(self.tokens) else "at the end"

    def whole(self) -> Condition:
        found = self._or()
        if self.next < len(self.tokens):
            self._wrong(f"'and' or 'or' is missing {self._place()}")
        return found

    def _or(self) -> Condition:
        found = self._and()
        while self._took("or"):
            found = Or(found, self._and())
        return found

    def _and(self) -> Condition:
        found = self._not()
        while self._took("and"):
            found = And(found, self._not())
        return found

    def _not(self) -> Condition:
        if self._took("not"):
            return Not(self._not())
        if self._took("("):
            found = self._or()
            self._must(")")
            return found
        return self._predicate()

    def _predicate(self) -> Condition:
        term = self._term()
        if self._took("is"):
            negated = self._took("not")
            self._must("null")
            return Not(Missing(term)) if negated else Missing(term)
        negated = self._took("not")
        found = self._membership(term)
        if found is None and not negated:
            return self._comparison(term)
        if found is None:
            self._wrong(f"'like', 'in' or 'between' is missing {self._place()}")
        return Not(found) if negated else found

    def _membership(self, term: Term) -> Condition | None:
        if self._took("like"):
            form = self._literal(term)
            if term.numeric:
                self._wrong("'like' is about texts")
            return Like(term, str(form.said))
        if self._took("in"):
            self._must("(")
            members = [self._literal(term)]
            while self._took(","):
                members.append(self._literal(term))
            self._must(")")
            return Among(term, tuple(members))
        if self._took("between"):
            low = self._literal(term)
            self._must("and")
            return And(Compared(term, ">=", low), Compared(term, "<=", self._literal(term)))
        return None

    def _comparison(self, left: Term) -> Condition:
        if not self._ahead(*OPERATORS, *SAME):
            self._wrong(f"a comparison is missing {self._place()}")
        sign = self.tokens[self.next][1]
        self.next += 1
        right = self._term()
        self._alike(left, right)
        return Compared(left, SAME.get(sign, sign), right)

    def _literal(self, term: Term) -> Literal:
        found = self._term()
        if not isinstance(found, Literal):
            self._wrong(f"{found.name} stands where a number or a 'text' should")
        self._alike(term, found)
        return found

    def _alike(self, left: Term, right: Term) -> None:
        if left.numeric != right.numeric:
            name = next((term.name for term in (left, right) if isinstance(term, Name)), "")
            kind = "a number" if name and is_numeric(name) else "a text"
            self._wrong(f"{name} is {kind}" if name else "a number and a text are compared")

    def _term(self) -> Term:
        if self.next >= len(self.tokens):
            self._wrong("something is missing at the end")
        kind, said = self.tokens[self.next]
        self.next += 1
        if kind == "number":
            return Literal(float(said))
        if kind == "text":
            return Literal(said[1:-1].replace("''", "'"))
        if kind != "word":
            self._wrong(f"{said!r} stands where a column should")
        return Name(check_column(said.lower(), "--where"))
