"""What CONTRIBUTING promises of the code: files, functions and lists of parameters are short, names mean one thing.

What breaks a promise today is listed with its size. The lists only shrink: what grows fails, and so does what is
listed without need. `python benchmarks/walk.py --code` prints what there is.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "foretell"

LONG_FILES: dict[str, int] = {}

LONG_FUNCTIONS: dict[str, int] = {}

MANY_PARAMETERS = {
    # what people call, with a keyword for each option of the command
    "functions/plans.py:fit": 15,
    "functions/plans.py:predict": 19,
    "functions/runs.py:run": 16,
    "functions/runs.py:simulate": 15,
    "functions/searches.py:choose_batch": 19,
    "functions/searches.py:diff": 10,
    "functions/searches.py:plan": 21,
    "functions/searches.py:scale": 16,
    "functions/searches.py:sweep": 19,
    "functions/searches.py:whatif": 16,
    "functions/searches.py:why": 14,
    # options of a command, one by one
    "cli/verbs/predict.py:command": 11,
    "cli/verbs/systems.py:command": 11,
    # not yet
    "calibration/case.py:kernel": 10,
    "cost/kernels/_frame.py:priced_product": 9,
    "model/importers/torch_reductions.py:normalize": 9,
    "model/operators/attention.py:attention": 9,
    "model/operators/convolution.py:convolution": 11,
    "model/zoo/_encoder.py:attend": 9,
    "validation/study.py:row": 14,
    "virtual/world.py:VirtualWorld.__init__": 16,
}

SHARED_NAMES = 9
"""Names that several classes have. Fewer than 40 are aimed at."""

NOT_IN_THE_GLOSSARY: set[str] = set()
"""Types that several packages use, and that no line of docs/glossary.md is about yet."""

ENGINE = ("program", "cost", "timeline")


@functools.cache
def walk() -> ModuleType:
    """The file that counts, which is no package's."""
    spec = importlib.util.spec_from_file_location("walk", ROOT / "benchmarks" / "walk.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["walk"] = module  # where its classes look for their own names
    spec.loader.exec_module(module)
    return module


@functools.cache
def code() -> Mapping[str, tuple[str, ast.Module]]:
    """Every file with its text, read."""
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    return {where: (text, ast.parse(text)) for where, text in texts.items()}


def held(found: Mapping[str, int], most: int, excused: Mapping[str, int]) -> list[str]:
    """What is larger than promised, or than it is excused for, and excuses that nobody needs."""
    too_large = [f"{name}: {size}, {excused.get(name, most)} at most" for name, size in sorted(found.items())
                 if size > excused.get(name, most)]  # fmt: skip
    unneeded = [f"{name}: no longer an exception" for name in sorted(excused) if found.get(name, 0) <= most]
    return too_large + unneeded


def test_files_are_short() -> None:
    found = {where: len(text.splitlines()) for where, (text, _) in code().items()}
    assert len(found) > 500
    assert not held(found, walk().LONG_FILE, LONG_FILES)


@pytest.mark.parametrize(("what", "excused"), [("lines", LONG_FUNCTIONS), ("parameters", MANY_PARAMETERS)])
def test_functions_are_short_and_take_few_things(what: str, excused: Mapping[str, int]) -> None:
    found: dict[str, int] = {}
    for where, (_, tree) in code().items():
        for one in walk().functions_of(tree, where):
            found[one.where] = max(getattr(one, what), found.get(one.where, 0))
    most = {"lines": walk().LONG_FUNCTION, "parameters": walk().MANY_PARAMETERS}[what]
    assert len(found) > 5000
    assert not held(found, most, excused)


def test_a_name_of_a_class_stands_for_one_thing() -> None:
    shared = walk().shared_names(tree for _, tree in code().values())
    assert len(shared) <= SHARED_NAMES, f"{len(shared)} names: {sorted(shared)}"


# the glossary


def entries() -> set[str]:
    """The words that the glossary has lines for, and the words that these are made of."""
    found: set[str] = set()
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines():
        if line.startswith("| ") and not line.startswith("| word "):
            found |= {word.strip() for word in re.split(r"[,/]", line.split("|")[1])}
    return found


def in_words(name: str) -> str:
    return " ".join(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name))


def engine_types() -> dict[str, str]:
    """Public classes of the engine that other packages use, by where they are."""
    own: dict[tuple[str, str], str] = {}
    for where, (_, tree) in code().items():
        package = where.partition("/")[0]
        module = f"foretell.{where.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
        for node in tree.body if package in ENGINE else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                own[module, node.name] = package
    used: dict[str, str] = {}
    for where, (_, tree) in code().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for name in (alias.name for alias in node.names):
                    if own.get((node.module or "", name), where.partition("/")[0]) != where.partition("/")[0]:
                        used[f"{node.module}:{name}"] = name
    return used


def test_the_glossary_has_the_words_of_the_engine() -> None:
    known, types = entries(), engine_types()
    assert len(types) > 30
    missing = {name for name in types.values() if in_words(name) not in known}
    assert missing <= NOT_IN_THE_GLOSSARY, f"docs/glossary.md says nothing of {sorted(missing - NOT_IN_THE_GLOSSARY)}"
    there = NOT_IN_THE_GLOSSARY - missing
    assert not there, f"{sorted(there)} are in the glossary, or gone"


# what holds the promises


def test_what_grows_and_what_needs_no_excuse_is_told() -> None:
    assert held({"a": 400, "b": 500}, 400, {"b": 500}) == []
    assert held({"a": 401}, 400, {}) == ["a: 401, 400 at most"]
    assert held({"b": 501}, 400, {"b": 500}) == ["b: 501, 500 at most"]
    assert held({"b": 399}, 400, {"b": 500}) == ["b: no longer an exception"]
    assert held({}, 400, {"gone": 500}) == ["gone: no longer an exception"]


def test_functions_are_counted_as_they_are_read() -> None:
    tree = ast.parse("class A:\n    def f(self, a, *, b=1):\n        '''Text.'''\n        return a\n")
    assert walk().functions_of(tree, "x.py") == [("x.py:A.f", 3, 2)]
    assert walk().lines_of("# a\n\nx = 1  # b\n'''c'''\n") == (1, 1, 1, 1)
