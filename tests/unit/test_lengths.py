"""Examples of several lengths: rows, what of them is padding, and a run of steps as long as their rows are."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from answers import documented
from foretell.errors import BadInput
from foretell.oracle.lengths import PADDINGS, ExampleLengths, packed_rows, read_lengths

JOB = ("llama3.2-1b", "--on", "1xrtx4090", "--batch", "16", "--seq", "1024")
PLAN = ("--plan", "dp1 +m4 +bf16 +recompute:block +lora16")


def lengths(*counts: tuple[int, int], padding: str = "longest") -> ExampleLengths:
    return ExampleLengths(counts=tuple(sorted(counts)), padding=padding)


def run(foretell: Any, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A step, and the whole run."""
    ran = foretell("predict", *words, "--json")
    assert ran.code == 0, ran.err
    found = documented("predict", ran.out)
    return found, found["training"]


def one_by_one(sizes: list[int], row: int) -> int:
    free: list[int] = []
    for size in sorted(sizes, reverse=True):
        room = [(left, at) for at, left in enumerate(free) if left >= size]
        if room:
            free[min(room)[1]] -= size
        else:
            free.append(row - size)
    return len(free)


def test_packs_as_one_by_one() -> None:
    drawn = random.Random(28)
    for _ in range(200):
        row = drawn.randint(1, 60)
        sizes = [drawn.randint(1, row) for _ in range(drawn.randint(1, 80))]
        counts = tuple((size, sizes.count(size)) for size in sorted(set(sizes)))
        assert packed_rows(counts, row) == one_by_one(sizes, row)
    assert packed_rows(((1, 10**9), (700, 3)), 1024) == 3 + math.ceil((10**9 - 3 * 324) / 1024)


def test_longest_of_several_is_that_of_all_draws() -> None:
    known = lengths((100, 1), (300, 2), (700, 1))
    every = [100, 300, 300, 700]
    for samples in (1, 2, 3):
        drawn = [max(some) for some in itertools.product(every, repeat=samples)]
        assert known.mean_of_longest(samples, float) == pytest.approx(sum(drawn) / len(drawn))
    alone, together = known.mean_of_longest(2, float), known.mean_of_longest(8, float)
    assert alone < known.mean_of_slowest(2, 4, 4, float) < together
    assert known.mean_of_slowest(2, 1, 4, float) == pytest.approx(together, rel=0.03)
    assert lengths((300, 5)).mean_of_slowest(2, 4, 4, float) == 300


@pytest.mark.parametrize(("mean", "most"), [(10, 100_000), (600, 2048), (1024, 2048), (1000, 2048), (1900, 2048)])
def test_a_distribution_has_its_mean_and_maximum(mean: int, most: int) -> None:
    found = read_lengths(f"{mean},{most}")
    assert found.mean == pytest.approx(mean, rel=0.01)
    assert found.longest == most
    assert not found.counted
    assert read_lengths("512,512").counts[0][0] == read_lengths("512,512").longest == 512


def test_an_exponential_has_its_median() -> None:
    """Far below the maximum it is the plain one, whose median is the mean times ln 2."""
    found = read_lengths("1000,100000")
    sizes = [size for size, count in found.counts for _ in range(count)]
    assert sizes[len(sizes) // 2] == pytest.approx(1000 * math.log(2), rel=0.01)


def test_reads_files(tmp_path: Path) -> None:
    file = tmp_path / "lengths"
    file.write_text('700\n\n{"length": 20}\n{"input_ids": [1, 2, 3], "length": 9}\n700\n')
    assert read_lengths(str(file)).counts == ((3, 1), (20, 1), (700, 2))
    for line in ("0", "-3", "1.5", "true", "nan", "[3]", '{"text": "some"}', '{"input_ids": []}', "9" * 30, "x"):
        file.write_text(f"5\n{line}\n")
        with pytest.raises(BadInput) as problem:
            read_lengths(str(file))
        assert "line 2" in problem.value.where
    file.write_text("\n")
    for text in (str(file), str(tmp_path / "none"), "9,8", "x,8", "0.5,8", "5,", "600,1e99", "nan,5"):
        with pytest.raises(BadInput):
            read_lengths(text)


def test_equal_examples_are_no_different(foretell: Any) -> None:
    step, plain = run(foretell, *JOB, *PLAN, "--samples", "5000")
    for padding in PADDINGS:
        same, found = run(foretell, *JOB, *PLAN, "--samples", "5000", "--lengths", "1024,1024", "--padding", padding)
        assert {**found, "examples": None} == pytest.approx({**plain, "examples": None})
        assert same["memory_bytes"] == step["memory_bytes"]
        assert found["examples"]["work"] == 1


def test_what_does_work(foretell: Any, tmp_path: Path) -> None:
    file = tmp_path / "lengths"
    file.write_text("128\n" * 500 + "512\n" * 300 + "2048\n" * 200)
    found = {way: run(foretell, *JOB, *PLAN, "--lengths", str(file), "--padding", way)[1] for way in PADDINGS}
    step = run(foretell, *JOB, *PLAN)[0]["step_seconds"]
    kept = 0.5 * 128 + 0.3 * 512 + 0.2 * 1024  # tokens of an example within a row
    assert all(one["examples"]["examples"] == 1000 and one["examples"]["beyond"] == 0.2 for one in found.values())
    longest, most, packed, cut = (found[way] for way in PADDINGS)
    assert most["steps"] == longest["steps"] == 63  # of 16 examples
    assert most["step_seconds"] == pytest.approx(step)
    assert most["examples"]["work"] == pytest.approx(kept / 1024)
    drawn = 1024 - (1024 - 512) * 0.8**4 - (512 - 128) * 0.5**4  # the longest of four
    assert longest["examples"]["mean_row"] == pytest.approx(drawn)
    assert longest["examples"]["work"] == pytest.approx(kept / drawn)
    assert longest["step_seconds"] < step
    assert packed["examples"]["per_row"] == pytest.approx(1000 / (200 + 150 + 500 / 8 + 0.5), rel=1e-3)
    assert packed["steps"] == math.ceil(1000 / packed["examples"]["per_row"] / 16)
    assert cut["examples"]["work"] == 1
    assert cut["steps"] == math.ceil((0.5 * 128 + 0.3 * 512 + 0.2 * 2048) * 1000 / 1024 / 16)
    for one in found.values():
        assert one["examples"]["tokens_per_second"] < 16 * 1024 / step * 1.001


def test_one_example_at_a_time_is_not_padded(foretell: Any) -> None:
    _, found = run(foretell, *JOB, "--plan", "dp1 +m16 +bf16 +lora16", "--lengths", "300,1024", "--samples", "1000")
    assert found["examples"]["work"] == pytest.approx(1)


def test_ranks_wait_for_the_longest(foretell: Any) -> None:
    """Those that gather weights meet in each micro-batch, others at the end of a step."""
    words = ("llama3.2-1b", "--on", "4xh100", "--batch", "64", "--seq", "1024", "--lengths", "300,1024")
    words += ("--samples", "1000")

    def longer(plan: str, padding: str) -> float:
        step, found = run(foretell, *words, "--plan", plan, "--padding", padding)
        return found["step_seconds"] / step["step_seconds"]

    once, each = (longer(f"{data} +m4 +bf16", "longest") for data in ("dp4", "dp4:zero3"))
    assert once < each < longer("dp4 +m4 +bf16", "maximum") == pytest.approx(1)


def test_a_rung_is_what_predict_says(foretell: Any) -> None:
    words = ("--samples", "5000", "--price", "0.4", "--lengths", "300,1024")
    ladder = documented("fit --tuning", foretell("fit", *JOB, *words, "--tuning", "--json").out)
    rung = ladder["rungs"][ladder["taken"]]
    asked = ("--plan", rung["plan"], "--optimizer", rung["optimizer"])
    _, found = run(foretell, *JOB, *words, *asked)
    assert rung["seconds"] == found["seconds"]
    assert rung["cost"] == pytest.approx(found["seconds"] / 3600 * 0.4)
    assert (rung["work"], rung["tokens_per_second"]) == (
        found["examples"]["work"],
        found["examples"]["tokens_per_second"],
    )
    fitted = json.loads(foretell("fit", *JOB, *words, *asked, "--json").out)
    assert fitted["training"]["seconds"] == found["seconds"]


def test_a_model_with_rows_of_its_own_is_refused(foretell: Any) -> None:
    words = ("gpt:layers=2,hidden=64,heads=4,vocab=256,seq=32", "--on", "2xh100", "--batch", "8", "--plan", "dp2")
    for more in ((), ("--padding", "packed")):
        ran = foretell("predict", *words, "--lengths", "20,32", "--samples", "9", *more)
        assert ran.code == 2
        assert "--seq for its rows" in ran.err


def test_rows_are_as_long_as_the_longest_example(foretell: Any) -> None:
    words = ("llama3.2-1b", "--on", "1xrtx4090", "--batch", "16", *PLAN, "--lengths", "300,1024", "--samples", "1000")
    assert run(foretell, *words)[1]["examples"]["row"] == 1024


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*PLAN, "--padding", "longest"), "--padding"),
        ((*PLAN, "--lengths", "300,1024"), "--samples"),
        ((*PLAN, "--lengths", "300,1024", "--samples", "9", "--padding", "some"), "longest | maximum | packed | cut"),
        (("--plan", "pp2 +m4 +bf16", "--lengths", "300,1024", "--samples", "9"), "without pp"),
    ],
)
def test_what_it_does_not_take(words: tuple[str, ...], said: str, foretell: Any) -> None:
    ran = foretell("predict", "llama3.2-1b", "--on", "2xh100", "--batch", "16", "--seq", "1024", *words)
    assert ran.code == 2
    assert said in ran.err
