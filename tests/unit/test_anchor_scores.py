"""What one measured run of a source does for the others, and whether the bands after it hold."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from answers import documented
from foretell.oracle.bands import ANCHORED, LeftOpen, anchored, bands
from foretell.oracle.carried import RunTraits, SeenRun
from foretell.oracle.posterior import Posterior
from foretell.validation.anchors import LIKENESSES, AnchorScores, anchor_scores, draws
from foretell.validation.unseen import UnseenRun

STACK, OWN = 0.3, 0.05
"""Deviations of what runs of a source share, and of what is of one run."""


def _runs(sources: int, each: int, own: float = OWN) -> list[UnseenRun]:
    chance = random.Random(5)
    found: list[UnseenRun] = []
    for source in range(sources):
        shared = chance.gauss(0, STACK)
        for run in range(each):
            log = shared + chance.gauss(0, own)
            traits = RunTraits("megatron-core", "h100", f"m{run % 2}", 8, (source, run), ("dp",))
            seconds, reasons = (1.0, 0.1, 0.0), ("always",)
            made = UnseenRun(
                "s", f"s{source}", "megatron-core", log, log, log, True, traits, seconds, reasons, "bf16", 0.5
            )
            found.append(made)
    return found


@pytest.fixture(name="scores", scope="module")
def _scores() -> AnchorScores:
    found = anchor_scores(_runs(24, 12))
    assert found is not None
    return found


def test_one_run_tells_what_the_stack_is_off_by(scores: AnchorScores) -> None:
    (study,) = scores.errors
    ways = {name: mean for name, (mean, _) in study.ways.items()}
    assert (study.name, study.sources) == ("s", 24)
    assert ways["none"] > 0.15 and ways["anchor"] < 0.1
    assert ways["30"] <= ways["10"] + 1e-9 and ways["10"] < ways["anchor"]  # of 12 runs 11 can be measured
    assert ways["best"] <= 1.02 * min(ways["anchor"], ways["whole"])


def test_bands_after_one_run_are_narrower_and_hold(scores: AnchorScores) -> None:
    for name, one in scores.likeness.items():
        assert 0.8 <= one.inside <= 0.98, name
        assert one.of_needed < 0.5 and one.of_shipped < 0.8, name
    assert scores.likeness[LIKENESSES[0]].pairs + scores.likeness[LIKENESSES[2]].pairs == sum(
        scores.likeness[name].pairs for name in LIKENESSES if name in scores.likeness
    )
    assert set(scores.widths.widths) == set(ANCHORED)


def test_where_runs_share_nothing_one_says_nothing() -> None:
    chance = random.Random(6)
    runs = [run._replace(unseen=(log := chance.gauss(0, 0.2)), seen=log, fold=log, width=0.33) for run in _runs(16, 10)]
    found = anchor_scores(runs)
    assert found is not None
    ways = {name: mean for name, (mean, _) in found.errors[0].ways.items()}
    assert ways["anchor"] < 1.1 * ways["none"] < ways["whole"]
    assert found.likeness["all of one trainer"].of_needed > 0.8


def test_the_anchor_is_not_counted() -> None:
    runs = _runs(1, 5)
    for each in draws(runs):
        for one in each:
            assert not set(one.measured) & set(one.asked)
            assert len(one.measured) == 1 and len(one.asked) == 4


def test_too_few_sources_teach_nothing() -> None:
    assert anchor_scores(_runs(3, 5)) is None


def test_what_is_measured_and_far_off_leaves_more_open() -> None:
    """A run as expected, one far off, several that agree, and several that do not."""
    traits, seconds = RunTraits("t", "h100", "m", 8, ("a",)), (1.0, 0.0, 0.0)

    def left(*logs: float) -> LeftOpen:
        seen = [SeenRun(traits._replace(question=(at,)), seconds, log) for at, log in enumerate(logs)]
        return Posterior(seen, bands().carried).left_open(traits, seconds)

    assert left(0.4).surprise == pytest.approx(0.4) and left(0.0).surprise == 0
    assert left(0.4, 0.4, 0.4).surprise < left(0.4, -0.4, 0.4).surprise
    assert left(0.4).band(9.0, (), ()) > left(0.01).band(9.0, (), ()) > left(0.01, 0.01).band(9.0, (), ()) > 1


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_on_another_device_narrows_nothing(elsewhere: bool) -> None:
    left = LeftOpen(unlike=0.05, surprise=0.0, elsewhere=elsewhere, host=0.0)
    found = left.band(2.0, ("always",), ())
    assert found == 2.0 if elsewhere else 1 < found < 2
    assert LeftOpen(5.0, 0.0, elsewhere, 0.0).band(2.0, (), ()) >= 2.0


def test_of_the_very_run_only_what_two_runs_differ_in_is_left() -> None:
    learnt = anchored()
    left = LeftOpen(unlike=0.0, surprise=2.0, elsewhere=False, host=1.0)
    assert left.band(math.inf, (), ()) == pytest.approx(
        math.exp(learnt.stretch * learnt.of_software(()) * learnt.widths["always"])
    )


def test_the_page_and_json(foretell: Callable[..., Any], scores: AnchorScores, tmp_path: Path) -> None:
    from foretell.cli.coverage_pages import anchor_lines

    documented("validate --anchors", json.dumps({"anchors": msgspec.to_builtins(scores), "regret": []}))
    assert all(len(line) <= 80 for text in anchor_lines(scores) for line in text.splitlines())
    runs = "model,plan,cluster,batch,seq,step_ms\nllama3-8b,dp8:zero3 +bf16,8xh100,16,4096,930\n"
    (tmp_path / "runs.csv").write_text(runs)
    refused = foretell("validate", str(tmp_path / "runs.csv"), "--anchors")
    assert refused.code == 2 and "too few sources" in refused.err
