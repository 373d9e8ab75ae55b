"""A strategy says what it divides and how weights are stored; which collectives follow is no business of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import foretell

PLAN = Path(foretell.__file__).parent / "plan"
FILES = sorted(path for folder in ("strategies", "policies") for path in (PLAN / folder).glob("*.py"))
TRANSITION = Path(foretell.__file__).parent / "program" / "sharding" / "transition.py"

COLLECTIVE = re.compile(
    r"all[-_ ]?reduce|all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?to[-_ ]?all|broad[-_ ]?cast|all[-_ ]?toall", re.I
)
PLAN_WORD = re.compile(r"""["`](alltoall|allgather)["`]""")
"""How a plan is written is fixed: `cp4:alltoall` and `ep8,allgather` name one of several ways by their users' words."""


def named(text: str) -> list[str]:
    """The collectives that a file speaks of, in code or words."""
    return COLLECTIVE.findall(PLAN_WORD.sub("", text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_collective_is_named(path: Path) -> None:
    assert named(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text", ["an all-reduce", "allgather", "reduce_scatter(x)", "All To All", "Broadcast", "alltoall"]
)
def test_the_search_would_find_one(text: str) -> None:
    assert named(text)


def test_one_place_knows_them() -> None:
    assert set(named(TRANSITION.read_text(encoding="utf-8"))) >= {
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
    }


def test_there_are_files_to_look_into() -> None:
    assert {"data", "tensor", "context", "pipeline", "spatial", "recompute"} <= {path.stem for path in FILES}
