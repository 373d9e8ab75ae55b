"""`foretell predict`: what it prints, its keys, and bad input."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from foretell import fit, predict

ALWAYS = ("predict",)
LLAMA = ("llama3.2-1b:layers=4", "--on", "8xh100", "--plan", "dp2 tp4:sp +bf16", "--batch", "8")
LARGE = ("llama3-70b", "--on", "8xh100", "--plan", "dp8:zero3 +bf16", "--batch", "8")

_ANSWERED: dict[tuple[str, ...], Any] = {}


@pytest.fixture
def once(foretell: Any) -> Any:
    """The command; what several tests ask is asked once."""
    return lambda *arguments: _ANSWERED.get(arguments) or _ANSWERED.setdefault(arguments, foretell(*arguments))


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
    for arguments, code in ((LLAMA, 0), (LARGE, 1)):
        ran = foretell(*arguments, "--tokens", "1e12", "--price", "2.5")
        assert ran.code == code  # 1: it does not fit
        assert max(map(len, ran.out.splitlines())) <= 80


def test_what_does_not_fit_says_by_how_much_and_when(once: Any) -> None:
    out = once(*LARGE).out
    assert re.search(r"GiB usable: DOES NOT FIT,\s+[0-9.]+ GiB over", out)
    assert "peak during the backward pass of micro-batch 0" in out
    assert json.loads(once(*LARGE, "--json").out)["fits"] is False


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


RUN = ("--tokens", "1e9", "--storage", "1 GB/s", "--device-mtbf", "1000h", "--restart", "10min", "--price", "2")


def test_a_whole_run_is_the_one_of_fit(foretell: Any) -> None:
    answer = json.loads(foretell(*LLAMA, *RUN, "--json").out)["training"]
    assert answer["goodput"] < 1
    assert answer["failures"] > 0
    assert answer["cost"] == pytest.approx(8 * answer["seconds"] / 3600 * 2)
    page = foretell(*LLAMA, *RUN).out
    assert all(f"\n{word} " in page for word in ("training", "goodput", "checkpoints", "failures", "cost"))


def test_epochs_are_so_many_times_the_samples(foretell: Any) -> None:
    once = json.loads(foretell(*LLAMA, "--samples", "8000", "--json").out)["training"]
    often = json.loads(foretell(*LLAMA, "--samples", "8000", "--epochs", "90", "--json").out)["training"]
    assert (once["steps"], often["steps"]) == (1000, 90_000)


def test_slow_input_is_part_of_the_step_and_a_bottleneck(foretell: Any) -> None:
    plain = json.loads(foretell(*LLAMA, "--json").out)
    slow = json.loads(foretell(*LLAMA, "--input-rate", "4", "--json").out)  # eight samples take two seconds
    assert slow["step_seconds"] == pytest.approx(2.0)
    assert slow["breakdown"]["input"] == pytest.approx(2.0 - plain["step_seconds"])
    assert sum(slow["breakdown"].values()) == pytest.approx(slow["step_seconds"])
    assert slow["samples_per_second"] == pytest.approx(4)
    assert "input" in {one["name"] for one in slow["bottlenecks"]}
    fast = json.loads(foretell(*LLAMA, "--input-rate", "1e6", "--json").out)
    assert (fast["step_seconds"], "input" in fast["breakdown"]) == (plain["step_seconds"], False)


def test_a_price_alone_is_that_of_steps(foretell: Any) -> None:
    ran = foretell(*LLAMA, "--price", "2")
    assert ran.code == 0
    assert "for 1,000 steps, at 2 per GPU-hour" in ran.out


def test_what_is_alive_adds_up_and_has_names(once: Any) -> None:
    answer = json.loads(once(*LARGE, "--json").out)
    assert math.fsum(one["bytes"] for one in answer["alive"]) == pytest.approx(answer["memory_bytes"])
    assert "layers.0..79.feed_forward.gate matmul output" in {one["name"] for one in answer["alive"]}
    assert len(answer["alive"]) == 11
    assert "80 x 448 MiB" in once(*LARGE).out
    assert "largest tensors at the peak" not in once(*LLAMA).out
    assert "largest tensors at the peak" in once(*LLAMA, "--memory").out


def test_what_would_fit_fits(once: Any) -> None:
    for arguments in (LARGE, ("llama3-8b", "--on", "8xa100-40", "--plan", "dp8:zero1 +bf16", "--batch", "8")):
        first = json.loads(once(*arguments, "--json").out)["changes"][0]
        model, _, _, _, _, _, batch = arguments
        again = once(model, "--on", first["cluster"], "--plan", first["plan"], "--batch", batch, "--json")
        assert json.loads(again.out)["fits"] is True
        assert first["plan"] in once(*arguments).out.replace("\n    ", " ")


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
        ((*LLAMA, "--ranks", "4"), "--oracle paper"),
        ((*LLAMA, "--oracle", "papers"), "paper"),
        ((*LLAMA, "--batch", "7"), "multiple"),
        ((*LLAMA, "--batch", "0"), "batch"),
        ((*LLAMA, "--batch", "many"), "no number of samples"),
        ((*LLAMA, "--batch-per-rank", "4"), "one of them"),
        ((*LLAMA, "--seq", "0"), "--seq"),
        ((*LLAMA, "--seq", "-5"), "--seq"),
        ((*LLAMA, "--trainer", "pytorsh"), "pytorch"),
        ((*LLAMA, "--trainer", " "), "no name"),
        ((*LLAMA, "--optimizer", "adan"), "adam"),
        ((*LLAMA, "--plan", "dp2 tp4:sp +bf61"), "bf16"),
        ((*LLAMA, "--plan", "dp2 tp4 tp4"), "tp4"),
        ((*LLAMA, "--tokens", "0"), "positive"),
        ((*LLAMA, "--tokens", "nan"), "positive"),
        ((*LLAMA, "--samples", "-3"), "positive"),
        ((*LLAMA, "--samples", "lots"), "is no number"),
        ((*LLAMA, "--epochs", "3"), "its length is not given"),
        ((*LLAMA, "--samples", "8", "--epochs", "-1"), "positive"),
        ((*LLAMA, "--price", "-2"), "positive"),
        ((*LLAMA, "--input-rate", "0"), "positive"),
        ((*LLAMA, "--storage", "1 GB/s"), "its length is not given"),
        ((*LLAMA, "--tokens", "1e9", "--storage", "fast"), "TB/s"),
        ((*LLAMA, "--tokens", "1e9", "--storage", "0 GB/s"), "--storage"),
        ((*LLAMA, "--tokens", "1e9", "--dataset", "2 TB"), "storage"),
        ((*LLAMA, "--tokens", "1e9", "--dataset", "2 parsec"), "--dataset"),
        ((*LLAMA, "--tokens", "1e9", "--interval", "30min"), "storage"),
        ((*LLAMA, "--tokens", "1e9", "--storage", "1 GB/s", "--interval", "30"), "min"),
        ((*LLAMA, "--tokens", "1e9", "--device-mtbf", "50000h"), "storage"),
        ((*LLAMA, "--tokens", "1e9", "--storage", "1 GB/s", "--node-mtbf", "never"), "not a time"),
        ((*LLAMA, "--tokens", "1e9", "--storage", "1 MB/s", "--device-mtbf", "1min", "--restart", "9h"), "no run ever"),
        ((*LLAMA, "--trace", ""), "no file"),
        ((*LLAMA, "--trace", "/nowhere/at/all.json"), "cannot be written"),
        (("vgg16-paradl", "--oracle", "paper", "--plan", "dp16", "--batch", "512", "--tokens", "1e9"), "whole run"),
        (("vgg16-paradl", "--oracle", "paper", "--plan", "dp16", "--batch", "512", "--memory"), "--memory"),
    ],
)
def test_bad_input_is_a_message(foretell: Any, arguments: tuple[str, ...], said: str) -> None:
    ran = foretell(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert "try" in ran.err or "Usage" in ran.err or "one of" in ran.err


# The forward pass alone. -----------------------------------------------------------------------------

FORWARD = ("gpt2", "--on", "8xh100", "--plan", "dp8 +bf16", "--batch", "64", "--forward")


def test_a_forward_pass_is_predicted_by_every_door(foretell: Any) -> None:
    told, page = json.loads(foretell(*FORWARD, "--json").out), foretell(*FORWARD).out
    found = predict("gpt2", "8xh100", "dp8 +bf16", 64, forward=True)
    assert told["forward"] is True
    assert told["step_seconds"] == found.step_seconds
    assert set(told["breakdown"]) <= {"forward", "host"}
    assert "64 sequences a forward pass" in page
    assert "no measured run is like this one" in page
    fitted = fit("gpt2", "8xh100", "dp8 +bf16", batch=64, forward=True).prediction
    assert (fitted.step_seconds, fitted.memory_bytes) == (found.step_seconds, found.memory_bytes)


def test_a_whole_forward_run_has_seconds_and_no_checkpoints(foretell: Any) -> None:
    head = foretell(*FORWARD, "--samples", "1M", "--price", "2", "--storage", "10 GB/s").out.partition("step time")[0]
    assert re.search(r"whole run +[0-9.]+ (s|min), 15,625 steps", head)
    assert "training" not in head
    assert "checkpoints" not in head


@pytest.mark.parametrize("more", [("--keep", "kept.json"), ("--anchor", "run.json"), ("--oracle", "paper")])
def test_what_is_of_training_steps_does_not_go_with_a_forward_pass(foretell: Any, more: tuple[str, str]) -> None:
    found = foretell(*FORWARD, *more)
    assert found.code == 2
    assert more[0] in found.err


def test_a_batch_that_keeps_all_ranks_busy_is_offered_first(foretell: Any) -> None:
    ran = foretell("llama3-8b", "--on", "8xh100", "--plan", "dp8:zero3 +bf16", "--batch", "7")
    assert ran.code == 2
    assert "try    --batch 8, or --plan 'dp7:zero3" in ran.err


def test_a_way_out_of_two_rules_is_told_once(foretell: Any) -> None:
    words = ("--plan", "pp3:interleaved,v5 tp12 +m8 +bf16", "--batch", "32")
    ran = foretell("llama3-8b", "--on", "64xh100", *words)
    assert ran.code == 2
    assert (ran.err.count("  rule   "), ran.err.count("  why    "), ran.err.count("  try    ")) == (2, 2, 1)
