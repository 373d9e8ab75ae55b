"""The gradient noise scale: two lengths of gradients give it back, and a run's record gives it to the search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as some

from foretell.errors import BadInput
from foretell.learning.gradient_noise import GradientLook, NoiseScale, noise_scale
from foretell.oracle.batches import tradeoff
from foretell.records.record import record
from foretell.records.store import write

ALWAYS = ("plan",)

SIZES = some.integers(1, 64).flatmap(lambda piece: some.tuples(some.just(piece), some.integers(2, 64)))


def look(spread: float, signal: float, piece: int = 1, pieces: int = 8, step: int = 1) -> GradientLook:
    """What is seen, in the mean, of gradients with this spread and this length."""
    whole = piece * pieces
    lengths = {"of_piece": signal + spread / piece, "of_whole": signal + spread / whole}
    return GradientLook(step=step, samples=step, piece=piece, whole=whole, **lengths)


@given(some.floats(1e-3, 1e3), some.floats(1e-3, 1e3), SIZES)
def test_two_lengths_give_both_figures_back(spread: float, signal: float, sizes: tuple[int, int]) -> None:
    one = look(spread, signal, *sizes)
    assert one.spread == pytest.approx(spread, rel=1e-6)
    assert one.signal == pytest.approx(signal, rel=1e-6, abs=1e-9 * spread)


def test_the_figure_of_gaussian_gradients_is_theirs() -> None:
    """Samples around a gradient of length 2 in 50 dims, each of variance 0.3: tr(S) / |G|^2 is 15 / 4."""
    draws, middle = numpy.random.default_rng(5), numpy.zeros(50)
    middle[0] = 2.0
    looks: list[GradientLook] = []
    for step in range(400):
        single = middle + numpy.sqrt(0.3) * draws.standard_normal((16, 50))
        lengths = {"of_piece": float((single**2).sum(1).mean()), "of_whole": float((single.mean(0) ** 2).sum())}
        looks.append(GradientLook(step=step, samples=step, piece=1, whole=16, **lengths))
    found = noise_scale(looks)
    assert found.samples is not None and found.error is not None
    assert found.samples == pytest.approx(15 / 4, abs=3 * found.error)
    assert 0 < found.error < 0.3


def test_later_looks_count() -> None:
    looks = [look(1.0, 10.0), look(1.0, 10.0), look(8.0, 2.0), look(8.0, 2.0)]
    assert noise_scale(looks).samples == pytest.approx(4.0)
    assert noise_scale(looks[:1]).samples == pytest.approx(0.1)
    assert noise_scale(looks).error is None  # two looks say nothing of how far they lie apart


def test_where_noise_is_all_that_is_seen_there_is_no_figure() -> None:
    nothing = GradientLook(
        step=1, samples=1, piece=1, whole=8, of_piece=8.0, of_whole=0.9
    )  # the mean of noise alone has 1
    assert noise_scale([nothing]).samples is None


def kept(folder: Path, noise: NoiseScale | None, kind: str = "run") -> str:
    content = {"measurement": {"noise": msgspec.to_builtins(noise)}}
    return str(write(folder, record(kind, content, model="gpt2:layers=2")))


def test_the_record_of_a_run_is_a_noise_scale(tmp_path: Path) -> None:
    file = kept(tmp_path, noise_scale([look(8.0, 2.0)], sequence=64))
    found = tradeoff(file, 0, 0, 32)
    assert found.noise == pytest.approx(8.0)  # four samples of 64 tokens are eight of 32
    assert found.source == "measured on gpt2:layers=2 up to 1 samples"
    images = kept(tmp_path, noise_scale([look(8.0, 2.0)]))
    assert tradeoff(images, 0, 0, 0).noise == pytest.approx(4.0)
    for wrong, length, said in (
        (images, 32, "no sequences"),
        (kept(tmp_path, None), 32, "its gradients were not measured"),
        (kept(tmp_path, NoiseScale(samples=None, error=None, sequence=0, looks=())), 0, "all that its looks showed"),
        (str(tmp_path / "none.json"), 0, "cannot read"),
    ):
        with pytest.raises(BadInput, match=said):
            tradeoff(wrong, 0, 0, length)


def test_the_search_takes_the_record(foretell: Any, tmp_path: Path) -> None:
    tiny = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
    file = kept(tmp_path, noise_scale([look(20.0, 1.0)], sequence=32))
    asked = (tiny, "--on", "4xh100", "--only", "dp", "--batch", "8,32")
    measured = json.loads(foretell(*asked, "--noise-scale", file, "--json").out)
    given_by_hand = json.loads(foretell(*asked, "--noise-scale", "20 samples", "--json").out)
    assert measured["choice"] == given_by_hand["choice"] and measured["noise_scale"] == pytest.approx(20)
    assert (measured["noise_source"], given_by_hand["noise_source"]) == (
        "measured on gpt2:layers=2 up to 1 samples",
        "",
    )
    assert "measured on gpt2:layers=2" in foretell(*asked, "--noise-scale", file).out


def test_a_noise_scale_of_another_model_is_told_with_both_names(foretell: Any, tmp_path: Path) -> None:
    file = kept(tmp_path, noise_scale([look(20.0, 1.0)], sequence=32))
    asked = ("--seq", "32", "--on", "4xh100", "--only", "dp", "--batch", "8,32", "--noise-scale", file)
    (note,) = json.loads(foretell("gpt2:layers=4", *asked, "--json").out)["notes"]
    assert "measured on gpt2:layers=2 and is used for gpt2:layers=4" in note
    assert "is used for gpt2:layers=4" in " ".join(foretell("gpt2:layers=4", *asked).err.split())
    assert json.loads(foretell("gpt2:layers=2", *asked, "--json").out)["notes"] == []
