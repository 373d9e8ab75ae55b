"""What is read of a Python file is what Python would make of it, or nobody knows: never another value."""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from typing import Any, cast

import pytest

from foretell.dialects._python import read
from foretell.dialects._table import UnknownValue
from foretell.errors import BadInput

BEFORE = "def f(u):\n    c = Config(tp=1, pp=2)\n"


def key(lines: str, name: str = "tp") -> Any:
    """What a key of `c` is after these lines, in a function whose argument `u` nobody knows."""
    text = BEFORE + "".join(f"    {line}\n" for line in lines.splitlines()) + "    return c\n"
    return said_of(read(text, "f"), name)


def said_of(document: dict[str, Any], name: str) -> Any:
    """What a document says of a key. Dialects refuse one that a call makes, or whose table has more than is known."""
    if name in document:
        return document[name]
    tables = [".".join(name.split(".")[:count]) for count in range(name.count(".") + 1)]
    open_tables = [one for one in document if "**" in one and one.rpartition(".")[0] in tables]
    unknown = [one for one in tables if isinstance(document.get(one), UnknownValue)]
    assert f"{name}.()" in document or open_tables or unknown or "()" not in document, (name, document)
    return UnknownValue("")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("+5", 5),
        ("~3", -4),
        ("-(-3)", 3),
        ("None or 8", 8),
        ("0 or None", None),
        ("2 and 4", 4),
        ("0 and 4", 0),
        ("f'{3:02d}'", "03"),
        ("f'{3!r:>4}'", "   3"),
        ("f'{2.5:.{2}f}'", "2.50"),
        ("2 ** 3", 8),
        ("2 ** -1", 0.5),
        ("f'{2.0 ** 2}'", "4.0"),
        ("len({1, 1})", 1),
        ("[1, *[2, 3]][2]", 3),
        ("{'a': [1, 2]}['a'][1]", 2),
        ("{**{'a': 1}, 'b': 2}['a']", 1),
        ("[] is not None", True),
        ("(lambda: 3)()", ...),
        ("3 if u else 4", ...),
        ("u or 8", ...),
        ("[1, 2] is [1, 2]", ...),
        ("f'{u:02d}'", ...),
        ("len([*u])", ...),
    ],
)
def test_expressions(expression: str, value: Any) -> None:
    found = key(f"c.tp = {expression}")
    if value is ...:
        assert isinstance(found, UnknownValue)
    else:
        assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("d = {'tp': 1}\nd['tp'] = 8\nc.tp = d['tp']", 8),
        ("d = {'tp': 1}\nd.update({'tp': 8})\nc.tp = d['tp']", 8),
        ("d = {'tp': 1}\ne = {'d': d}\ne['d']['tp'] = 8\nc.tp = d['tp']", 8),
        ("l = [1]\nl[0] = 8\nc.tp = l[0]", 8),
        ("l = [1]\nk = l\nk += [8]\nc.tp = l[1]", 8),
        ("l = []\nfor x in [4, 8]:\n    l.append(x)\nc.tp = l[1]", 8),
        ("for x in range(1, 9):\n    c.tp = x", 8),
        ("c.tp += 7", 8),
        ("setattr(c, 'tp', 8)", 8),
        ("def g(x):\n    x.tp = 8\ng(c)", 8),
        ("def g(**more):\n    return more['a']\nc.tp = g(**{'a': 8})", 8),
        ("c.tp = 8 if (n := 3) and n else 4", 8),
        ("with u as v:\n    c.tp = 8", 8),
        ("d = {'tp': 1}\nd[u] = 8\nc.tp = d['tp']", ...),
        ("d = {'tp': 1}\nd.update(u)\nc.tp = d['tp']", ...),
        ("l = [1]\nl[u] = 8\nc.tp = l[0]", ...),
        ("l = [1]\nl.insert(0, 8)\nc.tp = l[0]", ...),
        ("l = [1]\nu(l)\nc.tp = l[0]", ...),
        ("setattr(c, u, 8)", ...),
        ("c.set_tp(8)", ...),
        ("u(c)", ...),
        ("u(x=[c])", ...),
        ("vars(c)['tp'] = 8", ...),
        ("c.__dict__.update(tp=8)", ...),
        ("c['tp'] = 8", ...),
        ("for x in u:\n    c.set_tp(x)", ...),
        ("for x in u:\n    c.tp = x", ...),
        ("while u:\n    setattr(c, 'tp', 8)", ...),
        ("try:\n    setattr(c, 'tp', 8)\nexcept E:\n    pass", ...),
        ("def g():\n    c.tp = 8\nfor x in u:\n    g()", ...),
        ("l = [1]\nfor x in u:\n    l.append(x)\nc.tp = len(l)", ...),
        ("l = [1]\nif u:\n    l.append(2)\nc.tp = len(l)", ...),
        ("def g(l):\n    if u:\n        l.append(2)\nl = [1]\ng(l)\nc.tp = len(l)", ...),
        ("def g():\n    for x in u:\n        return 8\n    return 1\nc.tp = g()", ...),
        ("def g():\n    if True:\n        if u:\n            return 1\n    return 2\nc.tp = g()", ...),
        ("def g(tp=1):\n    return tp\nc.tp = g(**u)", ...),
        ("def g(tp=1, pp=2):\n    return tp\nc.tp = g(*u)", ...),
        ("tp = 1\ndef g():\n    nonlocal tp\n    tp = 8\ng()\nc.tp = tp", ...),
        ("tp = 1\n[tp := x for x in u]\nc.tp = tp", ...),
        ("with u as c.tp:\n    pass", ...),
        ("tp = 1\ndel tp\nc.tp = tp", ...),
        ("a, *b = [1, 2]\nc.tp = b", ...),
    ],
)
def test_statements(lines: str, value: Any) -> None:
    found = key(lines)
    assert isinstance(found, UnknownValue) if value is ... else found == value, found


def test_a_call_that_is_not_beside_the_file_leaves_nothing_known() -> None:
    document = read(BEFORE + "    u(c)\n    c.pp = 4\n    return c\n", "f")
    assert (document["tp"], document["pp"]) == ("what u(...) may have changed", 4)
    assert isinstance(document["**"], UnknownValue)


def test_a_call_that_asks_is_told() -> None:
    document = read(BEFORE + "    x = size(c)\n    return c\n", "f")
    assert document["tp"] == 1
    assert document.notes == ("size(...) may change the configuration: its text is not beside the file",)


@pytest.mark.parametrize(
    ("first", "line", "what"),
    [
        ("a = u", "a = a + a", "an expression of .* characters"),
        ("a = u", "a = C(x=a, y=a)", "a value of .* parts"),
        ("a = u", "a = [a, a]", "a value of .* parts|an expression of .* characters"),
        ("a = [1]", "a.extend(a)", "a list of .* items"),
        ("a = [1]", "a = a + a", "a list of .* items"),
        ("a = 'xy'", "a = a + a", "a value of .* characters"),
        ("a = 'xy'", "a = f'{a}{a}'", "(a text|an expression) of .* characters"),
        ("a = {}", "a = {'x': a, 'y': a}", "a value of .* parts|an expression of .* characters"),
        ("a = C()", "a.x = a", "itself"),
    ],
)
def test_what_doubles_ends(first: str, line: str, what: str) -> None:
    text = "\n".join(["def f(u):", f"    {first}", *[f"    {line}"] * 40, "    c = Config(x=a)", "    return c", ""])
    with pytest.raises(BadInput, match=what):
        read(text, "f")


def test_texts_of_texts_end() -> None:
    """Before Python 3.12 texts in texts run out of quotes, and are not known; since then they grow until they end."""
    text = "\n".join(["def f(u):", "    a = u", *["    a = f'{a}{a}'"] * 40, "    return Config(x=a)", ""])
    if sys.version_info < (3, 12):
        assert isinstance(read(text, "f")["x"], UnknownValue)
    else:
        with pytest.raises(BadInput, match=r"an expression of .* characters"):
            read(text, "f")


def test_many_statements_end() -> None:
    loops = "".join(f"{'    ' * depth}for x{depth} in [1, 2, 3, 4, 5, 6, 7, 8]:\n" for depth in range(1, 9))
    with pytest.raises(BadInput, match=r"more than .* statements and expressions"):
        read(f"def f(u):\n{loops}{'    ' * 9}c.tp = 8\n    return c\n", "f")


# --- against Python itself ----------------------------------------------------------------------

NUMBERS, TEXTS, LISTS, TABLES = ("n", "m", "k"), ("s", "t"), ("l", "p"), ("d", "e")
FIRST = "n = 3\nm = 0\nk = None\ns = 'a'\nt = ''\nl = [1, 2]\np = l\nd = {'a': 1, 'b': [5]}\ne = {'a': d}\n"


FAILURES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""Of programs that say nothing, because Python ends them."""


class Programs:
    """Random programs of a few lines; `u` is what only the running program knows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, deep: int = 2) -> str:
        pick = self.random.choice
        leaves = [str(self.random.randint(-3, 9)), pick(NUMBERS), "c.tp", "c.pp", "len(l)", "d['a']", "l[0]", "l[-1]"]
        if not deep or self.random.random() < 0.3:
            return pick([*leaves, *leaves, *leaves, *leaves, "u"])
        one, other = self.number(deep - 1), self.number(deep - 1)
        sign = pick(["+", "-", "*", "//", "%", "/", "and", "or", "<", "==", ">="])
        return pick([
            f"({one} {sign} {other})", f"({one} {sign} {other})", f"(+{one})", f"(-{one})", f"(~{one})",
            f"(not {one})", f"({one} if {other} else {self.number(deep - 1)})", f"max({one}, {other})",
        ])  # fmt: skip

    def text(self) -> str:
        form = self.random.choice(["", ":03d", ":>5", "!r", ":.2f", "!s:>4"])
        return self.random.choice([
            f"f\"x{{{self.number(1)}{form}}}\"", f"s + {self.random.choice(TEXTS)}", "str(l)", "s.upper()", "str(d)",
            f"('q' or {self.random.choice(TEXTS)})", f"f'{{l}}{{d}}{{{self.random.choice(TEXTS)}:>4}}'",
        ])  # fmt: skip

    def statement(self, deep: int = 2) -> list[str]:
        pick, number = self.random.choice, self.number
        simple = [
            f"{pick(NUMBERS)} = {number()}", f"c.{pick(['tp', 'pp'])} = {number()}", f"{pick(TEXTS)} = {self.text()}",
            f"{pick(NUMBERS)} += {number(1)}", f"{pick(LISTS)} = [{number(1)}, {number(1)}]", "l = p", "e = {'a': d}",
            f"{pick(LISTS)}.append({number(1)})", f"{pick(LISTS)}[{pick(['0', '-1', 'u'])}] = {number(1)}",
            f"{pick(LISTS)} += [{number(1)}]", f"l.extend({pick(LISTS)})", f"d['{pick('ab')}'] = {number(1)}",
            f"d.update({{'a': {number(1)}}})", f"e['a']['a'] = {number(1)}", "d = {'a': n, 'b': l}", "touch(l, n)",
            f"setattr(c, 'pp', {number(1)})", "c.grow()", f"n = put(c, {number(1)})",
            f"l = [x + {number(0)} for x in p]",
            "m = e['a']['a']", "d['b'].append(n)", "n, m = m, n", "c.sub.x = n", "n = c.sub.x", "c.other = c.sub",
        ]  # fmt: skip
        if not deep or self.random.random() < 0.7:
            return [pick(simple)]
        inside = [f"    {line}" for _ in range(2) for line in self.statement(deep - 1)]
        other = [f"    {line}" for line in self.statement(deep - 1)]
        return pick([
            [f"if {number(1)}:", *inside, "else:", *other],
            [f"if u > {number(0)}:", *inside],
            [f"for n in [{number(0)}, {number(0)}]:", *inside],
            ["for m in range(2):", *inside],
            ["for n in range(u):", *inside],
            ["try:", *inside, "except ValueError:", *other],
            [f"if {number(1)}:", "    result = n", "    return c"],
            ["for n in list(p):", *inside, "    if n > 5: return c"],
        ])  # fmt: skip

    def whole(self) -> str:
        lines = [*FIRST.splitlines(), *(line for _ in range(self.random.randint(2, 9)) for line in self.statement())]
        lines += [f"c.{name} = {name}" for name in (*NUMBERS, *TEXTS, *LISTS)] + ["c.q = d['a']", "return c"]
        body = "\n".join(f"    {line}" for line in lines)
        return f"""
def put(x, n):
    if n:
        x.tp = n
    return x.pp


def f(u=unseen):
    c = Config(tp=1, pp=2, sub=Config(x=4))
{body}
"""


class Config:
    """What the programs make, when Python runs them."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def grow(self) -> None:
        self.tp = 77


def flat(made: Config, before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(made).items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, Config) else {f"{before}{name}": value}
    return found


def touch(values: list[Any], more: Any) -> None:
    values.append(more)


def alike(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.parametrize("chunk", range(4))
def test_the_reader_says_what_python_says_or_nothing(chunk: int) -> None:
    known = values = programs = 0
    for seed in range(chunk * 500, chunk * 500 + 500):
        text = Programs(seed).whole()
        runs: list[dict[str, Any]] = []
        for unseen in (0, 2):
            names: dict[str, Any] = {"Config": Config, "touch": touch, "unseen": unseen}
            with warnings.catch_warnings(action="ignore"), contextlib.suppress(*FAILURES):
                exec(compile(text, "program", "exec"), names)
                runs.append(flat(names["f"]()))
        if not runs:
            continue
        programs += 1
        try:
            document = read(text, "f")
        except BadInput:
            continue
        for expected in runs:
            for name, value in expected.items():
                values += 1
                said = said_of(document, name)
                parts = cast("list[Any]", said) if isinstance(said, list) else [said]
                unsure = any(isinstance(one, UnknownValue) for one in parts)
                known += not unsure
                assert unsure or alike(said, value), (seed, name, said, value, text)
    assert programs > 150
    assert known > 0.4 * values, (known, values)
