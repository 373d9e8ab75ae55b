"""`foretell predict`: what it prints, its keys, and bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

ALWAYS = ("predict",)
LLAMA = ("llama3.2-1b:layers=4", "--on", "8xh100", "--plan", "dp2 tp4:sp +bf16", "--batch", "8")
LARGE = ("llama3-70b", "--on", "8xh100", "--plan", "dp8:zero3 +bf16", "--batch", "8")

KEYS = {"step_seconds", "memory_bytes", "memory", "breakdown", "interval", "fits", "bottlenecks", "provenance"}


def test_json_has_the_promised_keys(foretell: Any) -> None:
    answer = json.loads(foretell(*LLAMA, "--json").out)
    assert set(answer) >= KEYS
    assert set(answer["memory"]) >= {"allocated", "reserved", "device", "by_stage", "by_kind", "peak_moment"}
    assert sum(answer["breakdown"].values()) == pytest.approx(answer["step_seconds"])
    assert sum(answer["memory"]["by_kind"].values()) == pytest.approx(answer["memory_bytes"])
    low, high = answer["interval"]
    assert low < answer["step_seconds"] < high
    assert answer["fits"] is True


def test_the_page_is_eighty_columns_wide(foretell: Any) -> None:
    for arguments in (LLAMA, LARGE):
        ran = foretell(*arguments, "--tokens", "1e12", "--price", "2.5")
        assert ran.code == 0
        assert max(map(len, ran.out.splitlines())) <= 80


def test_what_does_not_fit_says_by_how_much_and_when(foretell: Any) -> None:
    out = foretell(*LARGE).out
    assert "TOO MUCH" in out
    assert "at the forward pass of micro-batch 0" in out
    assert json.loads(foretell(*LARGE, "--json").out)["fits"] is False


def test_days_and_cost_follow_from_the_rate(foretell: Any) -> None:
    answer = json.loads(foretell(*LLAMA, "--tokens", "1e9", "--price", "3", "--json").out)
    steps = math.ceil(1e9 / (answer["tokens_per_second"] * answer["step_seconds"]))
    assert answer["training"]["steps"] == steps
    assert answer["training_seconds"] == answer["training"]["seconds"] == pytest.approx(steps * answer["step_seconds"])
    assert answer["cost"] == pytest.approx(8 * answer["training_seconds"] / 3600 * 3)


def test_a_trace_is_written(foretell: Any, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert foretell(*LLAMA, "--trace", str(file)).code == 0
    assert json.loads(file.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("llama3-8b", "--plan", "dp8"), "no cluster"),
        (("llama3-8b", "--on", "8xh100"), "no plan"),
        (("llama3-8b", "--on", "8xh100", "--plan", "dp16", "--batch", "16"), "ranks"),
        (("resnet50", "--on", "8xh100", "--plan", "dp8", "--batch", "8", "--tokens", "1e9"), "no sequences"),
        (("llama3-8b", "--on", "8xh10", "--plan", "dp8"), "h100"),
        (("llama3-8b", "--on", "16xv100-16", "--plan", "dp16 +fp8", "--batch", "16"), "fp8"),
        ((*LLAMA, "--release", "2020"), "--oracle paper"),
    ],
)
def test_bad_input_is_a_message(foretell: Any, arguments: tuple[str, ...], said: str) -> None:
    ran = foretell(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err
