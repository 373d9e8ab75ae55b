"""`foretell fit --tuning`: each rung is a prediction, the one to take is of the first kind that fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from answers import documented
from foretell.dialects import Launch, open_configuration, put_together
from foretell.plan.text import parse

ASKED = ("--batch", "16", "--seq", "2048", "--samples", "50000", "--price", "0.4")


def ladder(foretell: Any, *words: str) -> dict[str, Any]:
    ran = foretell("fit", *words, "--tuning", "--json")
    found = documented("fit --tuning", ran.out)
    assert (ran.code == 0) == (found["taken"] >= 0)
    return found


@pytest.mark.parametrize(
    ("model", "on", "kind"),
    [
        ("llama3-8b", "1xrtx4090", "LoRA"),
        ("llama3.2-1b", "1xrtx4090", "full"),
        ("llama3-8b", "4xh100", "full"),
        ("llama2-13b", "1xrtx4090", "QLoRA"),
        ("llama-30b", "1xrtx4090", "shorter sequences"),
    ],
)
def test_takes_what_departs_least(model: str, on: str, kind: str, foretell: Any) -> None:
    found = ladder(foretell, model, "--on", on, *ASKED)
    rungs, taken = found["rungs"], found["rungs"][found["taken"]]
    assert taken["kind"] == kind
    before = [one for one in rungs[: found["taken"]] if one["kind"] != kind]
    assert not any(one["fits"] for one in before)
    alike = [one["tokens_per_second"] for one in rungs if one["kind"] == kind and one["fits"]]
    assert taken["tokens_per_second"] == max(alike)


@pytest.mark.parametrize(
    ("model", "on", "kind", "words"),
    [
        ("llama3-70b", "4xrtx4090", "QLoRA", "dp4:zero3"),
        ("llama3-70b", "2xrtx4090", "offload", "+offload:weights"),
    ],
)
def test_a_base_in_four_bits_lies_in_shares_where_no_device_holds_it(
    model: str, on: str, kind: str, words: str, foretell: Any
) -> None:
    found = ladder(foretell, model, "--on", on, *ASKED)
    taken = found["rungs"][found["taken"]]
    assert taken["kind"] == kind
    assert words in taken["plan"].split()
    asked = ("--batch", "16", "--seq", "2048", "--plan", taken["plan"])
    assert foretell("fit", model, "--on", on, *asked).code == 0


def test_what_no_way_fits_is_said_of_these_ways_alone(foretell: Any) -> None:
    ran = foretell("fit", "llama3-405b", "--on", "1xrtx4090", *ASKED, "--tuning")
    assert ran.code == 1
    assert ran.out.startswith("none of these ways to fine-tune llama3-405b fits rtx4090")


def test_a_faster_way_is_told_beside_the_one_to_take(foretell: Any) -> None:
    words = ("tests/data/checkpoints/phi-4", "--on", "8xrtx4090", "--batch", "16", "--seq", "4096", "--tuning")
    found = json.loads(foretell("fit", *words, "--json").out)
    rates = [one["tokens_per_second"] for one in found["rungs"] if one["fits"]]
    times = max(rates) / found["rungs"][found["taken"]]["tokens_per_second"]
    assert times > 2
    first = " ".join(foretell("fit", *words).out.partition("\n\n")[0].split())
    assert first.endswith(f"; QLoRA, checkpoints is {times:,.2g} times as fast")


@pytest.mark.parametrize(
    ("trainer", "target"),
    [("pytorch", "trl"), ("deepspeed", "llama-factory"), ("torchtune", "torchtune")],
)
def test_the_file_is_one_that_the_trainer_reads(trainer: str, target: str, foretell: Any) -> None:
    words = ("llama3.2-1b", "--on", "4xrtx4090", *ASKED, "--trainer", trainer)
    page = " ".join(foretell("fit", *words, "--tuning").out.split())
    assert page.endswith(f"--to {target}")


def test_a_rung_is_what_predict_says(foretell: Any) -> None:
    found = ladder(foretell, "llama3-8b", "--on", "1xrtx4090", *ASKED)
    rung = found["rungs"][found["taken"]]
    words = ("llama3-8b", "--on", "1xrtx4090", "--plan", rung["plan"], "--optimizer", rung["optimizer"])
    alone = json.loads(foretell("predict", *words, *ASKED, "--json").out)
    assert alone["memory_bytes"] == rung["memory_bytes"]
    assert alone["step_seconds"] == rung["step_seconds"]
    assert alone["training_seconds"] == rung["seconds"]
    assert rung["cost"] == pytest.approx(rung["seconds"] / 3600 * 0.4)
    assert rung["seconds"] == pytest.approx(50000 / 16 * rung["step_seconds"])


def test_hours_are_those_of_the_steps_under_a_stack(
    foretell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured steps correct the whole run as they correct each step, and are told once."""
    monkeypatch.setenv("FORETELL_RECORDS", str(tmp_path / "records"))
    words = ("llama3.2-1b", "--on", "2xrtx4090", "--batch", "16", "--seq", "2048")
    plan = "dp2:zero3 +bf16 +lora16 +fp32-adapters"
    alone = json.loads(foretell("predict", *words, "--plan", plan, "--json").out)
    slow = {"model": "llama3.2-1b", "plan": plan, "cluster": "2xrtx4090", "batch": 16, "seq": 2048}
    (tmp_path / "slow.json").write_text(json.dumps(slow | {"step_seconds": 1.5 * alone["step_seconds"]}))
    assert foretell("stack", "slow", "--anchor", str(tmp_path / "slow.json")).code == 0

    asked = ("llama3.2-1b", "--on", "2xrtx4090", *ASKED)
    before, found = ladder(foretell, *asked), ladder(foretell, *asked, "--stack", "slow")
    fitting = [one for one in found["rungs"] if one["fits"]]
    for one in fitting:
        assert one["seconds"] == pytest.approx(50000 / 16 * one["step_seconds"])
        assert one["cost"] == pytest.approx(one["seconds"] / 3600 * 0.4 * 2)
    first = {one["plan"]: one["step_seconds"] for one in before["rungs"]}
    assert any(one["step_seconds"] > 1.2 * first.get(one["plan"], 1e9) for one in fitting)
    assert len(found["notes"]) == len(set(found["notes"]))
    assert sum("stack slow" in note for note in found["notes"]) == 1


@pytest.mark.parametrize("on", ["1xrtx4090", "4xrtx4090"])
def test_every_rung_on_the_devices_can_be_written(on: str, foretell: Any, tmp_path: Path) -> None:
    found = ladder(foretell, "llama3.2-1b", "--on", on, *ASKED)
    file = tmp_path / "sft.yaml"
    for rung in found["rungs"]:
        if rung["kind"] == "offload":
            continue
        words = ("llama3.2-1b", "--on", on, "--plan", rung["plan"], "--batch", str(rung["batch"]), "--seq", "2048")
        ran = foretell("export", *words, "--optimizer", rung["optimizer"], "--to", "trl", "--out", str(file))
        assert ran.code == 0, ran.err
        recipe = open_configuration(str(file)).recipe(Launch(int(on[0]), 0))
        assert put_together(recipe) == parse(rung["plan"])
        assert recipe.optimizer == rung["optimizer"]


def test_what_it_does_not_take(foretell: Any) -> None:
    for words in (("--plan", "dp1 +bf16"), ("--optimizer", "sgd"), ("--forward",)):
        ran = foretell("fit", "llama3-8b", "--on", "1xrtx4090", *words, "--tuning")
        assert ran.code == 2
        assert words[0] in ran.err
    assert foretell("fit", "resnet50", "--on", "1xrtx4090", "--tuning").code == 2


def test_what_is_proposed_stays_on_the_cluster(foretell: Any) -> None:
    """Where some change does; who may have adapters is told of all ways to fine-tune."""
    ran = foretell("fit", "llama3-8b", "--on", "rtx4090", "--seq", "2048")
    assert ran.code == 1
    assert "\n+lora16 +nf4 " in ran.out and "\non h200 " in ran.out
    assert "\ntry foretell fit llama3-8b --on rtx4090 --plan 'dp1 +bf16 +lora16" in ran.out.replace("\n    ", " ")
    assert "foretell fit llama3-8b --on rtx4090 --tuning" in ran.out.replace("\n    ", " ")
