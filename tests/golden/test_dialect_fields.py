"""Every key that a dialect writes is a field of the target's own sources, and every value is of the field's type.

`tests/data/targets.json` has the fields of the releases that dialects were looked up in; `target_fields.py` says how
it is made. Where a trainer is installed, `test_dialect_targets.py` gives its own reader the files too.
"""

from __future__ import annotations

import ast
import itertools
import json
from typing import Any

import pytest

from foretell.dialects import dialect, recipe_of, write
from foretell.dialects._formats import Code
from foretell.errors import BadInput
from foretell.plan.text import parse
from golden.target_fields import KEPT, PLACES
from laws.test_dialects import legal
from laws.test_offered_plans import DIALECTS, QUESTIONS, shown
from laws.test_offered_plans import found as offered

FIELDS: dict[str, dict[str, list[str]]] = json.loads(KEPT.read_text())

PLANS = 25
"""Random legal plans of each dialect that are written."""

NO_FIELD = {
    "torchtitan": {"model_spec.()", "model_spec.0", "activation_checkpoint.()"},  # functions that are called
    "nemo": {"()"},  # the module of a recipe
    "lightning": {
        "trainer.strategy.class_path",  # of the command line, for any argument that is an object
        "trainer.strategy.init_args.bucket_cap_mb",  # for DistributedDataParallel, through **kwargs
        "data.init_args.batch_size",  # of a person's own data module
    },
    "deepspeed": {"sequence_parallel_size"},  # asked for by name in runtime/config.py, in no model of fields
}
"""What no class or parser has, and why it is a key all the same."""

PLAIN = {"int": int, "float": (int, float), "bool": bool, "str": str}


def accepts(kind: str, value: Any) -> bool:
    """Whether a field of this type takes the value. Types that are not plain are the target's own: they may."""
    return not kind or _accepts(ast.parse(kind, mode="eval").body, value)


def _accepts(kind: ast.expr, value: Any) -> bool:
    if isinstance(kind, ast.Name):
        plain = PLAIN.get(kind.id)
        wrong = kind.id in ("int", "float") and isinstance(value, bool)
        return plain is None or (isinstance(value, plain) and not wrong)
    if isinstance(kind, ast.Constant):
        return value is None if kind.value is None else accepts(str(kind.value), value)
    if isinstance(kind, ast.BinOp):
        return _accepts(kind.left, value) or _accepts(kind.right, value)
    if isinstance(kind, ast.Subscript):
        inner = kind.slice.elts if isinstance(kind.slice, ast.Tuple | ast.List) else [kind.slice]
        match ast.unparse(kind.value).rpartition(".")[2]:
            case "Literal":
                return value in [one.value for one in inner if isinstance(one, ast.Constant)]
            case "Optional" | "Union":
                return any(_accepts(one, value) for one in inner) or value is None
            case "list" | "List":
                return isinstance(value, list)
            case _:
                return True
    return True


@pytest.mark.parametrize("name", PLACES)
def test_all_that_is_written_is_a_field_of_the_target(name: str) -> None:
    seen: set[str] = set()
    for _, recipe in itertools.islice(legal(name), PLANS):
        try:
            document = write(dialect(name), recipe).document
        except BadInput:
            continue
        seen |= checked(name, document)
    assert len(seen) >= 5


def checked(name: str, document: dict[str, Any]) -> set[str]:
    """The keys of a file, each a field of the target that takes its value."""
    keys = {key for key, value in document.items() if value is not None and key not in NO_FIELD.get(name, ())}
    for key in keys:
        assert key in FIELDS[name], f"{name} has no field {key}"
        value = document[key]
        plain = isinstance(value, Code) or any(accepts(kind, value) for kind in FIELDS[name][key])
        assert plain, (key, value, FIELDS[name][key])
    return keys


@pytest.mark.parametrize("trainer", DIALECTS)
def test_what_the_search_shows_has_only_fields_of_the_target(trainer: str) -> None:
    """The headline, the front and the alternatives of a model whose 28 layers do not divide among 8 stages."""
    model, on, batch = QUESTIONS[1]
    answer = offered(trainer, model, on, batch)
    for text in shown(answer):
        recipe = recipe_of(answer.space.setting(parse(text)), model, answer.space.cluster)
        for name in DIALECTS[trainer]:
            assert checked(name, write(dialect(name), recipe).document)


@pytest.mark.parametrize(
    ("kind", "value", "right"),
    [
        ("int", 4, True),
        ("int", True, False),
        ("int", "4", False),
        ("Literal['never', 'always']", "never", True),
        ("Literal['never', 'always']", "sometimes", False),
        ("Optional[int]", None, True),
        ("int | str", "x", True),
        ("float", 1, True),
        ("list[str]", "x", False),
        ("'str'", "x", True),
    ],
)
def test_types_are_read(kind: str, value: Any, right: bool) -> None:
    assert accepts(kind, value) is right
