"""Answers at a prompt: a few lines in people's units, and a small table in a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import foretell

ASKED: list[Callable[[], Any]] = [
    lambda: foretell.predict("gpt2", "2xh100", "dp2 +bf16", 8),
    lambda: foretell.plan("gpt2", "2xh100", 8, only="dp,tp"),
    lambda: foretell.fit("gpt2", "2xh100"),
    lambda: foretell.why("gpt2", "2xh100", "tp2 +bf16", 8, only="dp,tp"),
    lambda: foretell.diff("gpt2", "2xh100", "dp2 +bf16", "tp2 +bf16", 8),
    lambda: foretell.whatif("gpt2", "2xh100", "dp2 +bf16", 8),
    lambda: foretell.scale("gpt2", "2xh100", [1, 2], 8, only="dp"),
    lambda: foretell.choose_batch("gpt2", "2xh100", "1000 samples", [8, 16], only="dp"),
    lambda: foretell.sweep("gpt2", "2xh100", 8, plan="dp2 +bf16", jobs=1),
    lambda: foretell.analyze("gpt2"),
    lambda: foretell.program("gpt2", "dp2 +bf16", 8),
]


@pytest.mark.parametrize("ask", ASKED)
def test_answers_are_short_and_in_peoples_units(ask: Callable[[], Any]) -> None:
    answer = ask()
    lines = repr(answer).splitlines()
    assert lines[0] == type(answer).__name__ and 3 <= len(lines) <= 12
    assert max(map(len, lines)) <= 120
    assert not re.search(r"e[+-]\d\d|\d{7}", repr(answer))  # seconds and bytes as SI numbers
    html = answer._repr_html_()
    assert html.count("<tr>") == len(lines) - 1 and html.count("<table>") == html.count("</table>") == 1


def test_a_prediction_says_step_memory_rate_and_plan() -> None:
    told = repr(foretell.predict("gpt2", "2xh100", "dp2 +bf16", 8))
    assert all(word in told for word in ("dp2 +bf16", " ms", "GiB", "tokens/s/GPU", "gpt2"))


def test_what_is_written_has_no_words_of_its_own() -> None:
    found = foretell.predict("gpt2", "2xh100", "dp2 +bf16", 8)
    assert "summary" not in msgspec.to_builtins(found)
    assert foretell.predict("gpt2", "2xh100", "dp2 +bf16", 8) == found
