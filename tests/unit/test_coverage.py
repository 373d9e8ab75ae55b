"""Bands learnt from residuals: they find what made errors wide, and hold for sources they never saw."""

from __future__ import annotations

import math
import random

import msgspec
import numpy
import pytest

from answers import documented
from foretell.oracle.bands import REASONS
from foretell.validation.coverage import Residual, coverage, lesson_of
from foretell.validation.software_widths import levels_of, stretches
from foretell.validation.widths import Lesson, fitted


def _runs(seed: int, widths: dict[str, float], sources: int = 12, each: int = 60) -> list[Residual]:
    """Runs whose errors are normal, wider for each reason they have."""
    chance = random.Random(seed)
    found: list[Residual] = []
    for source in range(sources):
        for run in range(each):
            reasons = tuple(name for name in REASONS if name == "always" or chance.random() < 0.5)
            wide = sum(widths.get(name, 0.0) for name in reasons)
            found.append(
                Residual(
                    source=f"s{source}",
                    log=chance.gauss(0.0, wide / 1.645),  # nine in ten within `wide`
                    reasons=reasons,
                    group=(f"s{source}",),
                    model=f"m{run % 3}",
                    ranks=8,
                    healthy=True,
                )
            )
    return found


def test_widths_are_found_again() -> None:
    true = {"always": 0.1, "software": 0.3, "links": 0.2}
    learnt = coverage(_runs(1, true)).bands.predicted
    for name in REASONS:
        assert learnt.stretch * learnt.widths[name] == pytest.approx(true.get(name, 0.0), abs=0.06)
    assert learnt.sources == 12


@pytest.mark.parametrize("seed", range(3))
def test_nine_in_ten_of_a_source_left_out_lie_inside(seed: int) -> None:
    found = coverage(_runs(seed, {"always": 0.1, "kernels": 0.2}))
    assert 0.87 <= found.inside <= 0.93
    assert found.by_source == pytest.approx(found.inside, abs=0.02)
    documented("validate --coverage", msgspec.json.encode(found))


def test_faults_teach_nothing_and_are_counted() -> None:
    runs = _runs(4, {"always": 0.1})
    broken = [run._replace(log=3.0, healthy=False) for run in runs[:100]]
    found = coverage(runs + broken)
    assert found.bands.predicted == coverage(runs).bands.predicted
    assert found.inside < found.healthy


def test_a_source_of_its_own_kind_widens_the_others() -> None:
    """One source is three times too slow: widths learnt from it say so, and it does not hide behind its own runs."""
    runs = _runs(5, {"always": 0.1})
    odd = [run._replace(log=math.log(3.0)) if run.source == "s0" else run for run in runs]
    found = coverage(odd)
    assert found.sources["s0"].inside == 0
    assert found.sources["s0"].bias == pytest.approx(3.0)
    assert found.bands.predicted.widths["always"] > coverage(runs).bands.predicted.widths["always"]


def test_no_width_is_negative() -> None:
    """Runs with more reasons that err less do not make better evidence wider."""
    runs = [run._replace(log=run.log / (1 + 3 * ("nodes" in run.reasons))) for run in _runs(6, {"always": 0.3})]
    widths = fitted(lesson_of(runs))
    assert (numpy.array(widths) >= 0).all()


def _pinball(lesson: Lesson, widths: numpy.ndarray) -> float:
    over = lesson.size - lesson.reasons @ widths
    return float((lesson.weights * numpy.maximum(0.9 * over, -0.1 * over)).sum())


@pytest.mark.parametrize("seed", range(4))
def test_reasons_that_come_together_do_not_stop_the_search(seed: int) -> None:
    """Nine of ten examples have the second reason, so that what it adds and what is there always are told apart only
    as one gives to the other: no widths near those that are found are better by more than the search's steps."""
    chance = numpy.random.default_rng(seed)
    second, third = (chance.random(60) < share for share in (0.9, 0.5))
    size = abs(chance.normal(0, 1, 60)) * (0.02 + 0.1 * second + 0.05 * third)
    reasons = numpy.stack([numpy.ones(60), second, third], axis=1)
    truths = numpy.ones(60, dtype=bool)
    lesson = Lesson(("always", "mesh", "microbatch"), reasons, size, ["one"] * 60, truths, numpy.ones(60))
    found = fitted(lesson)
    near = (numpy.maximum([0.02, 0.0, 0.0], found + 0.1 * chance.uniform(-1, 1, 3)) for _ in range(3000))
    assert min(_pinball(lesson, one) for one in near) > 0.995 * _pinball(lesson, found)


def _of_trainers(wide: dict[str, float], seed: int = 3) -> list[Residual]:
    """Runs of three sources for each trainer, whose errors are normal and as wide as said."""
    chance = random.Random(seed)
    return [
        run._replace(source=f"{name} {run.source}", trainer=name, log=chance.gauss(0.0, own / 1.645))
        for name, own in wide.items()
        for run in _runs(seed, {"always": 0.1}, sources=3)
    ]


def test_trainers_have_stretches_of_their_own() -> None:
    """A trainer whose runs are wider is stretched further; one that nobody ran is as the software it is based on."""
    wide = {"nemo": 0.1, "nanotron": 0.3, "chainer": 0.2, "deepspeed": 0.2}
    found = coverage(_of_trainers(wide))
    learnt = found.bands.predicted

    def band(name: str) -> float:
        return learnt.stretch * learnt.of_software(levels_of(name)) * learnt.widths["always"]

    assert band("nemo") < band("chainer") < band("nanotron")
    for name in wide:
        assert 0.85 <= found.parts["trainer"][name].inside <= 0.97, name
    assert levels_of("megatron-deepspeed") == ("megatron-deepspeed", "deepspeed")
    assert band("megatron-deepspeed") == band("deepspeed")
    assert learnt.of_software(levels_of("torchtitan")) == learnt.software[""]


def test_few_runs_of_a_trainer_say_little() -> None:
    scores, many = [1.0] * 400 + [5.0] * 4, ["a"] * 400 + ["b"] * 4
    known = stretches(numpy.array(scores), many, ["nemo"] * 400 + ["chainer"] * 4)
    more = stretches(numpy.array([1.0] * 400 + [5.0] * 40), ["a"] * 400 + ["b"] * 40, ["nemo"] * 400 + ["chainer"] * 40)
    assert known["nemo"] == pytest.approx(1.0, abs=0.03)
    assert more["chainer"] == pytest.approx(5.0, abs=0.03)
    assert known["nemo"] <= known[""] <= known["chainer"]


def test_messages_between_convolutions_count_by_their_share() -> None:
    run = _runs(1, {})[0]._replace(reasons=("always", "convolutions"), seconds=(3.0, 1.0, 0.0))
    assert run.much("messages") == 0.25 and run.much("always") == 1.0 and run.much("nodes") == 0.0
    assert run._replace(reasons=("always",)).much("messages") == 0.0
