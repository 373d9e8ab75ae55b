"""The batch as a choice: steps against time per step, by the gradient noise scale."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

import foretell as package
from foretell.errors import BadInput
from foretell.oracle.batches import LARGEST, Tradeoff, sequence_of, tradeoff, tried, wanted

ALWAYS = ("plan",)

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
ON = (TINY, "--on", "4xh100", "--only", "dp,tp")
CHOICE = (*ON, "--batch", "4..64", "--noise-scale", "640 tokens")

NOISES = some.floats(0.5, 1e6)
BATCHES = some.integers(1, 2**20)


@given(NOISES, BATCHES, some.floats(1, 1e9))
def test_steps_and_samples_are_one_law(noise: float, batch: int, least: float) -> None:
    """(S / Smin - 1) (E / Emin - 1) = 1, and E = B S."""
    one = Tradeoff(noise, least)
    assert (one.steps_factor(batch) - 1) * (one.samples_factor(batch) - 1) == pytest.approx(1)
    assert one.samples(batch) == pytest.approx(batch * one.steps(batch))
    assert one.steps(batch) == pytest.approx(least / noise * one.steps_factor(batch))


@given(NOISES, BATCHES)
def test_a_larger_batch_takes_fewer_steps_and_more_samples(noise: float, batch: int) -> None:
    one = Tradeoff(noise, 1e9)
    assert one.steps(2 * batch) < one.steps(batch)
    assert one.samples(2 * batch) > one.samples(batch)
    assert Tradeoff(batch).steps_factor(batch) == Tradeoff(batch).samples_factor(batch) == 2


@given(NOISES, some.integers(1, 4096))
def test_batches_that_are_tried(noise: float, ranks: int) -> None:
    found = tried(noise, [ranks])
    assert found == sorted(set(found)) and found[0] >= 1
    assert found[-1] <= max(1, 2 * LARGEST * noise)
    odd = ranks // (ranks & -ranks)
    for batch in found:
        part = batch // (batch & -batch)
        assert part in (1, odd)


def test_ranks_that_are_no_power_of_two_get_their_multiples() -> None:
    assert tried(100, [24], 32, 128) == [32, 48, 64, 96, 128]
    assert wanted("32..128", 100, [24]) == [32, 48, 64, 96, 128]
    assert tried(100, [7], 33, 40) == [33]  # nothing lies between


def test_units_of_a_noise_scale() -> None:
    assert tradeoff("2e6 tokens", 0, 0, 4000).noise == 500
    assert tradeoff("500 samples", 8e6, 0, 4000) == Tradeoff(500, 2000)
    assert tradeoff(500, 0, 7, 4000) == Tradeoff(500, 7)
    assert tradeoff("500", 0, 0, 0).noise == 500
    assert sequence_of(TINY) == 32 and sequence_of("gpt2", 16) == 16 and sequence_of("resnet18") == 0
    for text, length in (("500", 32), ("x", 32), ("-5 samples", 0), ("0", 0), ("1.2.3", 0), ("5 tokens", 0)):
        with pytest.raises(BadInput):
            tradeoff(text, 0, 0, length)
    with pytest.raises(BadInput, match="without sequences"):
        tradeoff(500, 1e9, 0, 0)
    with pytest.raises(BadInput, match="in tokens and in samples"):
        tradeoff(500, 1e9, 1e9, 32)


def test_the_best_batch_is_that_of_a_loop_over_search() -> None:
    choice = package.choose_batch(TINY, "4xh100", "640 tokens", "4..64", tokens=1e9, price=3, only="dp,tp")
    times: dict[int, float] = {}
    for batch in (4, 8, 16, 32, 64):
        best = package.plan(TINY, "4xh100", batch, only="dp,tp").best
        assert best is not None
        times[batch] = 1e9 / 32 / 20 * (1 + 20 / batch) * best.step_seconds
    assert choice.best is not None
    assert choice.best.batch == min(times, key=times.__getitem__)
    assert [one.seconds_to_quality for one in choice.batches] == pytest.approx(list(times.values()))
    assert choice.best.cost == pytest.approx(4 * 3 * times[choice.best.batch] / 3600)


def test_the_less_noise_the_smaller_the_batch() -> None:
    found = [
        package.choose_batch("gpt2", "8xh100", noise, [8, 32, 128, 512], only="dp").best for noise in (8, 80, 8000)
    ]
    batches = [one.batch for one in found if one is not None]
    assert len(batches) == 3 and batches == sorted(batches) and batches[0] < batches[2]


def test_the_page_marks_the_best_and_trains_on_more_samples(foretell: Any) -> None:
    ran = foretell(*CHOICE, "--tokens", "1e9", "--price", "2")
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= 80
    answer = json.loads(foretell(*CHOICE, "--tokens", "1e9", "--price", "2", "--json").out)
    assert set(answer) >= {"best", "top", "pareto", "evaluated", "noise_scale", "least_samples", "batches", "choice"}
    assert answer["batch"] == answer["choice"]["batch"] and answer["best"]["plan"] == answer["choice"]["plan"]
    alone = json.loads(foretell(*ON, "--batch", str(answer["batch"]), "--json").out)
    for key in ("layouts", "plainer", "headroom", "roomy", "accuracy"):
        assert answer[key] == alone[key]
    marked = [line for line in ran.out.splitlines() if line.startswith("*")]
    assert len(marked) == 1 and int(marked[0].split()[1]) == answer["batch"]
    steps = next(line for line in ran.out.splitlines() if line.startswith("training")).split()[-2]
    assert int(steps.replace(",", "")) == pytest.approx(answer["choice"]["steps"], abs=1)


def test_the_end_of_the_range_is_told(foretell: Any) -> None:
    page = foretell(*ON, "--batch", "4,8", "--noise-scale", "1e6 samples").out
    assert "at the end of what was tried" in " ".join(page.split())


WRONG = [
    (("--batch", "auto"), "how noisy gradients are"),
    (("--batch", "8..64"), "how noisy gradients are"),
    (("--batch", "auto", "--noise-scale", "5"), "samples or tokens?"),
    (("--batch", "64..8", "--noise-scale", "5 samples"), "from 64 to 8"),
    (("--batch", "all", "--noise-scale", "5 samples"), "'all' are no batches"),
    (("--batch", "auto", "--noise-scale", "5 samples", "--by", "memory"), "--by memory"),
    (("--batch-per-rank", "2", "--noise-scale", "5 samples"), "--batch-per-rank"),
    (("--batch", "many"), "'many' is no number"),
]


@pytest.mark.parametrize(("more", "message"), WRONG, ids=[case[1] for case in WRONG])
def test_what_cannot_be_chosen(foretell: Any, more: tuple[str, ...], message: str) -> None:
    ran = foretell(*ON, *more)
    assert ran.code == 2 and message in ran.err


def test_nothing_fits_at_any_batch(foretell: Any) -> None:
    ran = foretell(*CHOICE, "--max-memory", "1 GB")
    assert ran.code == 1 and ran.out.startswith("No plan of ") and ran.out.count("nothing fits") >= 5
