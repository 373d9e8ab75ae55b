"""foretell plan: its page, its keys, its table, and what it says when nothing is left."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foretell as package
from foretell.cli.plan_pages import by_first_axis, differences
from foretell.cli.plan_questions import counts
from foretell.cli.progress import Progress
from foretell.cli.searched import looked_at
from foretell.errors import BadInput, MissingExtra
from foretell.oracle.space import Space
from foretell.plan.text import parse

ALWAYS = ("plan",)

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
ON = (TINY, "--on", "4xh100", "--batch", "8", "--only", "dp,tp")

KEYS = {
    *("candidates", "evaluated", "refused", "local_programs", "seconds", "plans_per_second"),
    *("best", "top", "pareto", "fitting", "nearest", "capacity", "complete"),
}


def test_json_has_the_promised_keys(foretell: Any) -> None:
    answer = json.loads(foretell(*ON, "--json").out)
    assert set(answer) >= KEYS
    assert set(answer["best"]) == {"plan", "step_seconds", "memory_bytes"} == set(answer["top"][3])
    assert answer["candidates"] == answer["evaluated"] + sum(answer["refused"].values())
    assert answer["plans_per_second"] == pytest.approx(answer["evaluated"] / answer["seconds"])
    assert answer["top"][0] == answer["best"] and answer["fastest"] == answer["pareto"][0]
    assert (
        answer["fastest"]["step_seconds"] <= answer["best"]["step_seconds"] <= 1.03 * answer["fastest"]["step_seconds"]
    )
    assert len(answer["top"]) == 10


ACTIVE = "llama:layers=9,hidden=512,heads=8,kv_heads=8,ffn=1408,vocab=256,seq=4096"
PIPED = (ACTIVE, "--on", "8xh100", "--batch", "16", "--only", "dp,pp", "--fix", "pp4:1f1b dp2 +m8")


def test_stages_that_were_chosen_are_told(foretell: Any) -> None:
    answer = json.loads(foretell(*PIPED, "--json").out)
    (told,) = answer["finer"]
    assert told["what"] == "stages" and told["plan"] == answer["fastest"]["plan"]
    assert set(told["before"]) == {"plan", "step_seconds", "memory_bytes"}
    assert told["least_seconds"] <= told["step_seconds"] < told["before"]["step_seconds"]
    page = foretell(*PIPED).out
    assert told["plan"] in page
    assert "stages        layers per stage chosen for the fastest plan: 5.7 % faster than" in page


def test_a_loss_in_chunks_is_searched_as_it_is_predicted(foretell: Any) -> None:
    """Over several numbers of samples at once, in the search, and over one."""
    fixed = ("--fix", "+loss:chunks +bf16", "--only", "dp,recompute", "--json")
    answer = json.loads(foretell("gpt2", "--on", "8xh100", "--batch", "32", *fixed).out)
    assert len(answer["top"]) > 2
    for one in answer["top"]:
        alone = package.predict("gpt2", on="8xh100", batch=32, plan=one["plan"])
        assert "+loss:chunks" in one["plan"]
        assert alone.memory_bytes == pytest.approx(one["memory_bytes"])
        assert alone.step_seconds == pytest.approx(one["step_seconds"])


def test_stages_that_make_it_fit(foretell: Any) -> None:
    page = foretell(*PIPED, "--max-memory", "4.5 GB").out
    assert "none of the 4 plans of the search fits, and this one does" in page
    assert "layers per stage chosen for the fastest plan: no plan without fits" in " ".join(page.split())


def test_no_stages_are_chosen_where_least_memory_is_asked_for(foretell: Any) -> None:
    answer = json.loads(foretell(*PIPED, "--by", "memory", "--json").out)
    assert answer["finer"] == [] and answer["fastest"] is None
    assert answer["best"]["memory_bytes"] == min(one["memory_bytes"] for one in answer["pareto"])


def test_the_winner_is_what_predict_says(foretell: Any) -> None:
    best = json.loads(foretell(*ON, "--json").out)["best"]
    step = package.predict(TINY, "4xh100", best["plan"], batch=8)
    assert (step.step_seconds, step.memory_bytes) == (best["step_seconds"], best["memory_bytes"])


def test_the_page_says_the_winner_first_and_fits_eighty_columns(foretell: Any) -> None:
    ran = foretell(*ON, "--without", "microbatches", "--tokens", "1e9", "--price", "2", "--all")
    assert ran.code == 0 and not ran.err
    lines = ran.out.splitlines()
    best = json.loads(foretell(*ON, "--without", "microbatches", "--json").out)["best"]
    assert lines[0].split(maxsplit=1) == ["recommended", best["plan"]]
    assert max(map(len, lines)) <= 80
    for word in ("step", "rate", "memory", "training", "cost", "no plan is both faster and smaller", "plans priced"):
        assert word in ran.out


def test_refusals_are_counted_by_rule_with_their_numbers(foretell: Any) -> None:
    out = foretell(TINY, "--on", "8xh100", "--batch", "8", "--only", "dp,tp", "--all").out
    assert "heads divide: pytorch: 4 heads are not a multiple of tp8" in out


def test_what_distinguishes_two_plans() -> None:
    best = parse("pp2:1f1b dp2:zero3 +m4 +bf16")
    assert differences(best, best) == ""
    assert differences(parse("pp2:zb-h1 dp2:zero3 +m4 +bf16"), best) == "pp2:zb-h1 for pp2:1f1b"
    assert differences(parse("dp2 tp2 +bf16"), best) == "dp2 for dp2:zero3; with tp2; without pp2:1f1b, +m4"


# Numbers of GPUs, money, deadlines. ------------------------------------------------------------------


def test_numbers_of_gpus() -> None:
    assert counts("8..64") == [8, 16, 32, 64]
    assert counts("3..20") == [3, 6, 12]
    assert counts("8,2, 24") == [2, 8, 24]
    for text in ("", "8..", "8..4", "0..4", "a", "8,,16", "0"):
        with pytest.raises(BadInput):
            counts(text)


RANGE = (TINY, "--on", "h100", "--batch", "8", "--only", "dp", "--gpus", "1..4")


def test_a_search_for_each_number_of_gpus(foretell: Any) -> None:
    answer = json.loads(foretell(*RANGE, "--json").out)
    assert [one["ranks"] for one in answer["searches"]] == [1, 2, 4]
    assert answer["best"]["step_seconds"] == min(one["best"]["step_seconds"] for one in answer["searches"])
    assert "best plan by time" in foretell(*RANGE).out


def test_by_money_and_by_gpus(foretell: Any) -> None:
    money = json.loads(foretell(*RANGE, "--by", "money", "--json").out)
    costs = {one["ranks"]: one["ranks"] * one["best"]["step_seconds"] for one in money["searches"]}
    assert costs[money["ranks"]] == min(costs.values())
    assert json.loads(foretell(*RANGE, "--by", "gpus", "--json").out)["ranks"] == 1


def test_the_fewest_gpus_that_meet_a_deadline(foretell: Any) -> None:
    model = ("gpt2", *RANGE[1:], "--by", "gpus", "--tokens", "1e10")
    days = {
        ranks: package.predict("gpt2", f"{ranks}xh100", one["best"]["plan"], 8, tokens=1e10).training
        for one in json.loads(foretell(*model, "--json").out)["searches"]
        for ranks in [one["ranks"]]
    }
    hours = {ranks: training.seconds / 3600 for ranks, training in days.items() if training}
    assert hours[4] < hours[2] < hours[1]
    between = (hours[1] + hours[2]) / 2
    assert json.loads(foretell(*model, "--deadline", f"{between:.3f}h", "--json").out)["ranks"] == 2
    late = foretell(*model, "--deadline", "1min")
    assert late.code == 1 and "No plan trains within" in late.out
    assert json.loads(foretell(*model, "--deadline", "1min", "--json").out)["best"] is None


def test_by_memory_the_smallest_comes_first(foretell: Any) -> None:
    answer = json.loads(foretell(*ON, "--by", "memory", "--json").out)
    assert answer["best"] == answer["nearest"] == answer["top"][0]


def test_a_batch_for_each_rank(foretell: Any) -> None:
    answer = json.loads(foretell(TINY, "--on", "4xh100", "--batch-per-rank", "2", "--only", "dp,tp", "--json").out)
    assert [one["batch"] for one in answer["searches"]] == [2, 4, 8]
    rates = [one["batch"] / one["best"]["step_seconds"] for one in answer["searches"]]
    assert answer["batch"] / answer["best"]["step_seconds"] == max(rates)


# Nothing is left. ------------------------------------------------------------------------------------


def test_nothing_fits(foretell: Any) -> None:
    asked = (TINY, "--on", "2xh100", "--batch", "4", "--only", "dp", "--max-memory", "1 GB")
    ran = foretell(*asked)
    assert ran.code == 1
    assert ran.out.startswith("No plan of ")
    assert "over by" in ran.out and "without --max-memory" in ran.out
    assert "also searched, and nothing fits: with +offload, without --only" in ran.out
    answer = json.loads(foretell(*asked, "--json").out)
    assert answer["best"] is None and answer["top"] == [] and answer["fitting"] == 0
    assert answer["nearest"]["memory_bytes"] > answer["capacity"] == 1e9
    assert {one["what"]: bool(one["best"]) for one in answer["tried"]}["without --max-memory"]


REFUSED = [
    (("--only", "dp", "--without", "dp"), "ruled out"),
    (("--fix", "tp8"), "do not divide 4"),
    (("--fix", "tp2", "--only", "dp"), "not among --only"),
    (("--fix", "tp"), "--fix"),
    (("--precision", "fp99"), "no precision"),
    (("--precision", "bf16", "--fix", "+fp16"), "fp16 is fixed"),
    (("--max-memory", "60"), "unit"),
    (("--gpus", "8..4"), "--gpus"),
    (("--by", "gpus"), "--gpus"),
    (("--deadline", "3d"), "--tokens"),
    (("--batch-per-rank", "2"), "per rank"),
    (("--top", "0"), "--top"),
    (("--seq", "0"), "--seq"),
    (("--price", "-1"), "--price"),
    (("--trainer", "nobody"), "no trainer"),
    (("--table", "plans.xls", "--only", "dp"), "plans.csv"),
]


@pytest.mark.parametrize(("more", "said"), REFUSED, ids=[" ".join(more) for more, _ in REFUSED])
def test_what_cannot_be_is_named(foretell: Any, more: tuple[str, ...], said: str) -> None:
    ran = foretell(TINY, "--on", "4xh100", "--batch", "8", *more)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_every_plan_refused_says_by_which_rules(foretell: Any) -> None:
    ran = foretell("gpt:layers=4,hidden=60,heads=3,vocab=256,seq=32", "--on", "4xh100", "--batch", "8", "--fix", "tp4")
    assert ran.code == 2
    assert "no plan is left" in ran.err and "--fix 'tp4'" in ran.err
    assert "3 heads are not a multiple of tp4" in ran.err


# Python, and tables. ---------------------------------------------------------------------------------


def test_search_is_the_commands(foretell: Any) -> None:
    said = json.loads(foretell(*ON, "--json").out)
    found = package.plan(TINY, "4xh100", 8, only=("dp", "tp"))
    assert found.best is not None
    assert said["best"]["plan"] == found.best.plan
    assert (said["evaluated"], said["refused"]) == (found.evaluated, found.refused)


def test_search_of_a_graph() -> None:
    graph = package.load("lenet", batch=8)
    found = package.plan(graph, "2xh100", only=("dp",), precision="fp32", max_memory="60 GB")
    assert found.batch == 8 and found.capacity == 60e9
    assert found.best == package.plan("lenet", "2xh100", 8, only=("dp",), precision="fp32").best


def test_the_table_has_every_plan(foretell: Any, tmp_path: Path) -> None:
    file = tmp_path / "plans.csv"
    answer = json.loads(foretell(*ON, "--table", str(file), "--json").out)
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert len(rows) == answer["evaluated"]
    (best,) = [row for row in rows if row["plan"] == answer["best"]["plan"]]
    assert float(best["step_seconds"]) == answer["best"]["step_seconds"]
    assert float(best["memory_bytes"]) == answer["best"]["memory_bytes"]


def test_tables_of_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = package.plan(TINY, "2xh100", 4, only=("dp",))
    parquet = importlib.import_module("pyarrow.parquet")
    found.plans.write(tmp_path / "plans.parquet")
    table = parquet.read_table(tmp_path / "plans.parquet").to_pydict()
    assert list(zip(*table.values(), strict=True)) == list(found.plans.rows())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="pyarrow"):
        found.plans.arrow()
    with pytest.raises(MissingExtra, match="pyarrow"):
        found.plans.write(tmp_path / "plans.parquet")


def test_rows_that_miss_the_deadline_are_marked(foretell: Any) -> None:
    asked = (
        "gpt2",
        "--on",
        "h100",
        "--gpus",
        "1..4",
        "--batch",
        "16",
        "--only",
        "dp",
        "--by",
        "gpus",
        "--tokens",
        "1e9",
    )
    free = json.loads(foretell(*asked, "--json").out)["searches"]
    spans = [one["training_seconds"] for one in free]
    assert all(one["in_time"] for one in free) and spans == sorted(spans, reverse=True)
    limit = f"{(spans[0] + spans[1]) / 2:.3f} s"
    told = json.loads(foretell(*asked, "--deadline", limit, "--json").out)
    assert [one["in_time"] for one in told["searches"]] == [False, True, True] and told["ranks"] == 2
    page = foretell(*asked, "--deadline", limit).out
    rows = [line for line in page.splitlines() if line.endswith("+bf16") and line.lstrip()[0] in "124"]
    assert ["!" in row for row in rows[-3:]] == [True, False, False]
    assert "!: not within" in page


@pytest.mark.parametrize("name", ["--tokens", "--samples", "--epochs", "--price"])
def test_amounts_are_positive(foretell: Any, name: str) -> None:
    for value in ("0", "-1", "nan", "inf"):
        ran = foretell(*ON, name, value)
        assert ran.code == 2 and name in ran.err


def test_a_batch_that_leaves_nothing_has_others_beside_it(foretell: Any) -> None:
    ran = foretell(TINY, "--on", "4xh100", "--batch", "9", "--only", "dp")
    assert ran.code == 2 and "--batch 8, or --batch 12" in ran.err
    for batch in ("8", "12"):
        assert foretell(TINY, "--on", "4xh100", "--batch", batch, "--only", "dp").code == 0


def test_a_batch_that_nobody_can_share_is_told(foretell: Any) -> None:
    ran = foretell(TINY, "--on", "4xh100", "--batch", "7", "--only", "dp,tp")
    assert ran.code == 0 and "--batch 4 or --batch 8" in " ".join(ran.err.split())
    assert "note" not in foretell(*ON).err


def test_a_kept_calibration_is_told(foretell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Path(__file__).parents[2] / "studies" / "h200_calibration" / "h200.json"
    (tmp_path / "calibration-h200.json").write_bytes(record.read_bytes())
    monkeypatch.setenv("FORETELL_RECORDS", str(tmp_path))
    asked = (TINY, "--on", "2xh200", "--batch", "8", "--only", "dp")
    assert "a calibration of h200 is used" in " ".join(foretell(*asked).err.split())
    kept, named = (json.loads(foretell(*asked, *more, "--json").out) for more in ((), ("--calibration", str(record))))
    assert kept["best"] == named["best"] and kept["notes"][1:] == named["notes"]
    assert "ran alone" in named["notes"][0]  # a record of before kernels were timed under power
    plain = json.loads(foretell(*asked, "--calibration", "none", "--json").out)
    assert plain["best"] != kept["best"] and not plain["notes"]


@pytest.mark.parametrize(
    ("only", "why"),
    [
        ("filter", "4 ranks, and nothing of gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32 can be divided by filter"),
        ("recompute", "4 ranks, and no strategy is left to use"),
    ],
)
def test_where_no_strategy_shares_the_work_that_is_said(foretell: Any, only: str, why: str) -> None:
    ran = foretell(TINY, "--on", "4xh100", "--batch", "8", "--only", only)
    assert ran.code == 2 and why in " ".join(ran.err.split()) and "fewer constraints" in ran.err


def test_gradients_summed_over_several_axes_count_with_the_first() -> None:
    assert by_first_axis({"forward": 1.0, "exposed.dp+cp": 2.0, "exposed.dp": 0.5, "exposed.cp": 0.25}) == {
        "forward": 1.0,
        "exposed.dp": 2.5,
        "exposed.cp": 0.25,
    }


def test_meshes_are_told_apart_by_what_differs(foretell: Any) -> None:
    out = foretell("llama3-8b", "--on", "8xh100", "--batch", "64", "--only", "dp,cp").out
    assert "cp2" in out and "exposed.dp+cp" not in out


def test_an_interrupted_search_says_how_much_it_saw(foretell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(self: Progress, space: Space) -> Any:
        def watch(plans: int) -> None:
            if space.looked == 3:
                raise KeyboardInterrupt

        return watch

    monkeypatch.setattr(Progress, "of", of)
    asked = ("gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32", "--on", "4xh100", "--batch", "8", "--only", "dp,tp,cp")
    answer = json.loads(foretell(*asked, "--json").out)
    assert not answer["complete"] and 0 < answer["seen"] < 1
    page = " ".join(foretell(*asked).out.split())
    assert f"interrupted: {100 * answer['seen']:.0f} % of {answer['meshes']} meshes looked at" in page
    assert answer["stopped"] == "interrupted"
    assert f"of the {100 * answer['seen']:.0f} % of all meshes that were looked at" in page


@pytest.mark.parametrize(("seen", "said"), [(2e-4, "less than 1 %"), (0.3, "30 %"), (0.999, "99 %")])
def test_a_part_of_a_space_is_never_told_as_all_or_nothing(seen: float, said: str) -> None:
    whole = package.plan(TINY, "4xh100", batch=8, only=["dp"])
    found = msgspec.structs.replace(whole, seen=seen)
    assert looked_at(found) == f" of the {said} of all meshes that were looked at"
    assert looked_at(whole) == ""


# The time box, and what is left out. -----------------------------------------------------------------


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumps an hour with each look: every search is out of time after its first mesh."""
    clock = iter(range(0, 10**9, 3600))
    monkeypatch.setattr("foretell.oracle.search.time.perf_counter", lambda: float(next(clock)))


def test_least_memory_is_that_of_all_plans(foretell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("llama3.2-1b", "--on", "16xh100", "--batch", "64", "--only", "dp,tp,cp,recompute", "--by", "memory")
    whole = json.loads(foretell(*asked, "--exhaustive", "--json").out)
    monkeypatch.setattr("foretell.oracle.search.SMALL", 0)
    assert json.loads(foretell(*asked, "--json").out)["best"] == whole["best"]


@pytest.mark.usefixtures("hurried")
def test_out_of_time_every_number_of_gpus_has_an_answer(foretell: Any) -> None:
    asked = (TINY, "--on", "h100", "--gpus", "2..8", "--batch", "8", "--seconds", "60")
    answer = json.loads(foretell(*asked, "--json").out)
    assert [one["ranks"] for one in answer["searches"]] == [2, 4, 8]
    assert answer["stopped"] == "out of time" and answer["best"] is not None


@pytest.mark.usefixtures("hurried")
def test_out_of_time_nothing_is_said_of_what_was_not_looked_at(foretell: Any) -> None:
    ran = foretell(TINY, "--on", "4xh100", "--batch", "8", "--max-memory", "1 MB", "--seconds", "60")
    text = " ".join(ran.out.split())
    assert ran.code == 1
    assert text.startswith("No plan found so far fits 4xh100; out of time:") and "also searched" not in text
