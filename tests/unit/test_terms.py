"""Words that answers are printed in: `foretell describe` knows them all, and the glossary has the same table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from foretell.cli.members import KINDS, names, page
from foretell.cli.members.term import having, terms
from foretell.oracle.part_names import PARTS, part_name
from foretell.timeline.observation import PHASES

ALWAYS = ("describe",)

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"

PRINTED = (
    *("mfu", "hfu", "MFU", "HFU", "TFLOP/s/GPU", "tokens/s/GPU", "images/s/GPU", "samples/s/GPU", "images/s"),
    *("micro-batch", "micro-batch size", "accumulation", "accumulation steps", "usable memory", "usable", "peak"),
    *("bubble", "stage imbalance", "exposed tp", "exposed TP communication", "exposed.dp+cp"),
    *("accuracy", "interval", "90 % interval", "narrower", "limit", "bottleneck", "goodput", "batch", "free"),
)
"""On the lines of `predict`, `why`, `fit` and `whatif`."""


@pytest.mark.parametrize("word", PRINTED)
def test_words_of_the_lines_are_terms(word: str) -> None:
    found = page(word)
    assert found.kind == "term"
    assert found.title and max(map(len, found.render().splitlines())) <= 80


def test_parts_of_a_step_and_of_memory_are_described() -> None:
    """Under the names they are shown with."""
    axes = ("tp", "dp+cp", "shard", "spatial.width", "ps")
    parts = {part_name(key) for key in PHASES} | {part_name(f"exposed.{axis}") for axis in axes}
    parts |= {part_name(key) for key in ("weights", "gradients", "activations", *PARTS) if key not in SELDOM}
    assert page("recompute").kind == "policy"
    for word in parts - {"recompute"}:
        assert page(word).kind == "term", word


SELDOM = ("resting", "held by streams", "update's copies")
"""Kinds of memory that say what they are."""


def test_no_term_takes_the_name_of_a_member() -> None:
    own = {name.lower() for name in terms()}
    for kind in (kind for kind in KINDS if kind not in ("term", "model")):
        assert not own & {name.lower() for name in names(kind)}, kind


def test_forms_of_a_word_are_one_word() -> None:
    forms = [form for name, term in terms().items() for form in {name, *term.also}]
    assert all(having(form) for form in forms)
    assert having("Micro_Batch size") == having("micro batch") == "micro-batch size"
    assert having("nothing like it") == ""


def test_several_words_need_no_quotes(foretell: Any) -> None:
    assert foretell("exposed", "tp").out.startswith("exposed communication is a term:")
    assert "usable memory is a term:" in foretell("term", "usable", "memory").out
    assert foretell("device", "h100").out.startswith("h100 is a device")
    ran = foretell("no", "such", "word")
    assert ran.code == 2 and "nothing is called 'no such word'" in ran.err


def test_the_glossary_has_the_same_table() -> None:
    """A line for each term, in the same words."""
    section = GLOSSARY.read_text().partition("## On the screen\n")[2]
    rows = re.findall(r"^\| (?!word |-)(.+?) \| (.+?) \|$", section, re.MULTILINE)
    expected = [(name, term.means + (f": `{term.formula}`" if term.formula else "")) for name, term in terms().items()]
    assert rows == expected
