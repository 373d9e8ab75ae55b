"""Rates in the units that runs are reported in: definitions by hand, and what is printed of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

import foretell as package
from foretell.cli.rates import DIFFERS, rate_text, step_lines
from foretell.cost.price import priced
from foretell.oracle.part_names import part_name
from foretell.oracle.rates import split_breakdown, step_rates
from foretell.oracle.request import read
from foretell.oracle.resolve import resolve
from foretell.oracle.similar import groups, seen, study_names
from foretell.program.action import Compute
from foretell.program.rank_program import kind_of
from foretell.units import show_factor, show_of, show_percent

LLAMA = "llama:layers=4,hidden=1024,heads=8,kv_heads=8,ffn=2816,vocab=4096,seq=512"


def test_mfu_by_hand() -> None:
    found = package.predict("llama3-8b", "64xh100", "dp8:zero1 tp8:sp +m8 +bf16", batch=64, trainer="megatron-core")
    rates = step_rates(found)
    assert found.peak_flops == 989.4e12 and found.precision == "bf16"
    assert rates.mfu == found.utilisation == found.model_flops / (found.step_seconds * 64 * 989.4e12)
    assert rates.hfu == found.hardware_flops / (found.step_seconds * 64 * 989.4e12) > rates.mfu
    assert rates.tflops_per_gpu == pytest.approx(rates.mfu * rates.peak_tflops)
    assert rates.tokens_per_second_per_gpu * 64 == pytest.approx(found.tokens_per_second)
    assert (found.micro_batch, rates.accumulation) == (1, 8)


@pytest.mark.parametrize("policy", ["", "+recompute:attention", "+recompute:block", "+recompute:full"])
def test_hfu_counts_what_runs_again(policy: str) -> None:
    """The same flops as the actions of the program that are marked to run again, of one rank that has all of it; and
    the scores that fused attention makes anew in its backward pass, one of its five products."""
    asked = resolve(read(model=LLAMA, on="1xh100", plan=f"dp1 +m2 +bf16 {policy}", batch=4))
    found = package.predict(LLAMA, "1xh100", f"dp1 +m2 +bf16 {policy}", batch=4)
    program = priced(asked.setting, asked.place).program
    done = [
        (action, 2 * run.times * action.cost.matrix * action.density)
        for runs in program.partition.row.runs
        for run in runs
        for actions in program.rank_program.actions(kind_of(run))
        for action in actions
        if isinstance(action, Compute)
    ]
    again = sum(flops for action, flops in done if action.again)
    anew = sum(flops / 5 for action, flops in done if (action.operator, action.part) == ("attention", "input_gradient"))
    assert found.hardware_flops - found.model_flops == pytest.approx(again + anew)
    assert (again > 0) == bool(policy) and anew > 0
    assert found.hardware_flops == pytest.approx(sum(flops for _, flops in done))
    differs = step_rates(found).hfu - step_rates(found).mfu > DIFFERS
    assert any("HFU" in text for _, text in step_lines(found)) == differs and (
        differs or policy in ("", "+recompute:attention")
    )


@pytest.mark.parametrize(
    ("model", "place", "rate"),
    [
        ("resnet18", "8xv100-16", ("images/s", "images/s/GPU")),
        ("vit_b_16", "8xv100-16", ("images/s", "images/s/GPU")),
        ("mlp", "8xv100-16", ("samples/s", "samples/s/GPU")),
        ("gpt2", "8xv100-16", ("tokens/s", "tokens/s/GPU")),
        ("gpt2", "2xcpu-core", ("tokens/s", "tokens/s/rank")),
    ],
)
def test_rates_are_those_of_the_samples(model: str, place: str, rate: tuple[str, str]) -> None:
    ranks = int(place.partition("x")[0])
    text = rate_text(package.predict(model, place, f"dp{ranks}", batch=8 * ranks))
    assert [part.split()[-1] for part in text.split(", ")] == list(rate)


def test_the_answer_for_programs_has_them(foretell: Any) -> None:
    asked = ("predict", LLAMA, "--on", "8xh100", "--plan", "pp2:1f1b,split=3/1 dp4 +m4 +bf16", "--batch", "16")
    answer = json.loads(foretell(*asked, "--json").out)
    found = package.predict(LLAMA, "8xh100", "pp2:1f1b,split=3/1 dp4 +m4 +bf16", batch=16)
    for name, value in msgspec.to_builtins(step_rates(found)).items():
        assert answer[name] == value
    assert sum(answer["bubble_parts"].values()) == pytest.approx(answer["breakdown"]["bubble"])
    out = foretell(*asked).out
    assert "micro-batch size 1, 4 micro-batches" in out
    for part in split_breakdown(found):
        assert part_name(part) in out
    assert set(answer["breakdown"]) == set(found.breakdown) and "imbalance" not in answer["breakdown"]


def test_parts_are_called_as_people_call_them() -> None:
    assert part_name("exposed.tp") == "exposed TP communication"
    assert part_name("exposed.dp+cp") == "exposed DP+CP communication"
    assert part_name("forward") == "forward"


def test_units_of_sizes_and_intervals() -> None:
    assert show_of(15.9 * 2**30, 76.8 * 2**30) == "15.9 of 76.8 GiB"
    assert show_of(800 * 2**20, 76.8 * 2**30) == "800 MiB of 76.8 GiB"
    assert show_percent(0.3619) == "36.2 %" and show_percent(-0.05, sign=True) == "-5.0 %"
    assert show_factor(1.2) == "± 20 %" and show_factor(1.9) == "-47 % to +90 %"


# accuracy and trainers that nobody measured


def test_every_source_of_runs_has_a_name() -> None:
    assert {one.source for one in groups()} == set(study_names())


PLAN = {"torchtitan": "dp64:zero3 +bf16", "pytorch": "dp64:zero3 +bf16"}
"""That trainers can run, where it is not the usual one."""


@pytest.mark.parametrize("name", ["megatron-core", "torchtitan", "nanotron", "nemo", "pytorch"])
def test_accuracy_is_that_of_the_same_trainer(name: str) -> None:
    found = package.predict(
        "llama3-8b", "64xh100", PLAN.get(name, "dp8:zero1 tp8:sp +bf16"), batch=64, trainer=name
    ).accuracy
    assert found is not None and name in found.alike and found.of_the_trainer
    own = [error for one in groups() if (one.trainer, one.work) == (name, "transformers") for error in one.errors]
    assert found.runs <= len(own) == found.trainer_runs
    assert "transformers" in str(found) and "matrix products" not in str(found)


def test_a_trainer_that_nobody_measured_says_so_and_is_no_narrower() -> None:
    unseen = package.predict("llama3-8b", "64xh100", "dp64:zero3 +bf16", batch=64, trainer="fsdp")
    other = package.predict("llama3-8b", "64xh100", "dp64:zero3 +bf16", batch=64, trainer="torchtitan")
    assert not seen("fsdp", ()) and seen("torchtitan", ())
    assert unseen.accuracy is not None and not unseen.accuracy.of_the_trainer
    assert str(unseen.accuracy).startswith("no measured run of fsdp (transformers)")
    assert set(unseen.band) - {"trainer"} == set(other.band)
    assert unseen.interval[1] / unseen.step_seconds >= other.interval[1] / other.step_seconds
