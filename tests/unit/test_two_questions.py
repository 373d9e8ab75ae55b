"""Questions that are two at once, or about nothing, are refused, and what is said of them can be followed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from foretell.errors import ForetellError
from foretell.plan.text import parse
from foretell.serve.question import cluster_of
from foretell.taxonomy.classify import plan_classes
from foretell.taxonomy.systems import doing, nearest, system

TWICE = ("simulate", "lenet", "--on", "4xv100-16", "--on")


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("systems", "petuum", "--plan", "dp2"), "--plan"),
        (("systems", "petuum", "--bytes", "lenet"), "--bytes"),
        (("systems", "--plan", "dp2", "--on", "4xh100", "--model", "lenet"), "--plan"),
        (("systems", "--axes", "--model", "lenet"), "--axes"),
        (("systems", "--axes", "--topology", "ring"), "--axes"),
        (("systems", "--batch", "16"), "--batch"),
        (("systems", "petuum", "--learn", "lenet"), "--learn"),
        ((*TWICE, "8xv100-16", "--fig14"), "--on"),
        ((*TWICE, "8xv100-16", "--batches", "8..16"), "--on"),
        ((*TWICE, "4xv100-16"), "--on"),
        (("lab", "crossover", "--algorithm", "ring"), "--algorithm"),
        (("lab", "crossover", "--algorithm", "foo"), "--algorithm"),
        (("run", "lenet", "--plan", "dp2", "--warmup", "-3"), "--warmup"),
        (("run", "lenet", "--plan", "dp2", "--optimizer", "larz"), "--optimizer"),
        (("validate", "--html", f"nowhere{os.sep}page.html"), "--html"),
    ],
)
def test_it_is_refused_where_it_was_written(foretell: Any, words: tuple[str, ...], where: str) -> None:
    ran = foretell(*words)
    assert ran.code == 2 and f"where  {where}\n" in ran.err and "try " in ran.err


def test_a_folder_is_no_page(foretell: Any, tmp_path: Path) -> None:
    assert "it is a folder" in foretell("validate", "--html", str(tmp_path)).err


def test_the_hint_for_a_run_runs_here(foretell: Any) -> None:
    assert "foretell run lenet" in foretell("run", "--plan", "dp2").err


def test_the_name_of_an_option_is_enough(foretell: Any) -> None:
    assert foretell("describe", "threshold").out.startswith("compress is a policy")


@pytest.mark.parametrize("text", ["", "1x2x3xh100", "mine.toml"])
def test_nobody_is_sent_to_a_file_that_is_never_read(text: str) -> None:
    with pytest.raises(ForetellError) as found:
        cluster_of(text)
    assert ".toml" not in found.value.fix


def test_what_keeps_systems_from_a_class_is_told(foretell: Any) -> None:
    classes = plan_classes(parse("ps2:async"))
    names, axes = nearest(classes)
    assert not doing(classes) and names and axes == ("topology",)
    assert all(system(name).scheduling == "asynchronous" for name in names)
    assert names[0] in foretell("systems", "--plan", "ps2:async").out
