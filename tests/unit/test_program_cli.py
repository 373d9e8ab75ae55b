"""foretell program: what it prints, what programs read, and how it refuses."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from foretell.cli.rank_figures import communications, operators, waiting
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.oracle.request import read
from foretell.oracle.resolve import Resolved, resolve
from foretell.plan.fitness import refusals
from foretell.plan.text import parse
from foretell.program.expand import expand
from foretell.program.lower import lower

SMALL = "llama:layers=8,hidden=256,heads=8,kv_heads=8,ffn=512,vocab=512,seq=64"

ALWAYS = ("program",)


def ask(plan: str, model: str = SMALL, **others: Any) -> Resolved:
    return resolve(read(model=model, plan=plan, **others))


# the page

PAGES = [
    (SMALL, "dp1"),
    (SMALL, "pp4:1f1b dp2:zero1 tp2:sp +m8 +bf16"),
    (SMALL, "pp2:interleaved,v2 dp2 cp2 tp2 +m4"),
    (SMALL, "pp4:dualpipe dp4:zero1 +m8 +bf16"),
    (SMALL, "pp2:zb-h1 dp2 +m4"),
    (SMALL, "dp2:zero3,shard4 +recompute:block"),
    ("resnet50", "dp4 spatial2x2"),
    ("unet3d:image=32", "spatial2x2x2"),
    ("inception-v3", "filter4"),
    ("mixtral-8x7b:layers=2", "dp8:zero1,ep4 tp2 +bf16"),
    ("t5-small", "dp2:zero2 tp2"),
    ("vit-b-16", "pp2 tp2 +m2"),
    ("lstm", "ps4:async"),
]


@pytest.mark.parametrize(("model", "plan"), PAGES)
@pytest.mark.parametrize("full", [(), ("--full",)], ids=["page", "full"])
def test_a_page_fits_eighty_columns(foretell: Any, model: str, plan: str, full: tuple[str, ...]) -> None:
    ran = foretell(model, "--plan", plan, *full)
    assert ran.code == 0, ran.err
    assert max(len(line) for line in (ran.out + ran.err).splitlines()) <= 80
    assert str(parse(plan)) in ran.out


def test_an_axis_crosses_the_level_that_holds_its_groups(foretell: Any) -> None:
    out = foretell(SMALL, "--on", "16xh100", "--plan", "dp2 tp8").out
    assert re.search(r"^dp +2 +8 +fabric, ib-ndr$", out, re.MULTILINE)
    assert re.search(r"^tp +8 +1 +node, nvlink4-switch$", out, re.MULTILINE)


def test_equal_places_are_one_line(foretell: Any) -> None:
    """Places of 1F1B differ in their ends and in how many micro-batches wait (Narayanan et al. 2021: p - place)."""
    out = foretell(SMALL, "--plan", "pp8:1f1b +m16").out
    rows = dict(re.findall(r"^(\d\S*) +.*?(\S+)$", out.partition("alive\n")[2].partition("\n\n")[0], re.MULTILINE))
    assert rows == {"0": "8", "1..6": "2..7", "7": "1"}


def test_a_place_can_be_chosen(foretell: Any) -> None:
    first, last = (foretell(SMALL, "--plan", "pp4 +m4", "--rank-kind", place).out for place in "03")
    assert "ranks at place 0" in first
    assert "ranks at place 3" in last
    assert not re.search(r"^head ", first, re.MULTILINE)
    assert re.search(r"^head ", last, re.MULTILINE)


def test_a_stage_may_hold_nothing(foretell: Any) -> None:
    """Nanotron's rule counts the head, and leaves no layer for some stages of a small model."""
    ran = foretell("bloom-560m:layers=3", "--plan", "pp3 +m4", "--trainer", "nanotron")
    assert ran.code == 0, ran.err
    assert "nothing" in ran.out


def test_full_shows_what_the_page_leaves_out(foretell: Any) -> None:
    page, full = (foretell("resnet50", "--plan", "dp2", *more).out for more in ((), ("--full",)))
    hidden = int(re.search(r"\.\.\. and (\d+) more: --full", page)[1])  # type: ignore[index]
    assert hidden > 20
    assert "more: --full" not in full
    assert len(full.splitlines()) > len(page.splitlines()) + hidden


# the figures


@pytest.mark.parametrize("plan", ["dp8", "dp2:zero3 tp4:sp", "pp2:zb-h1 dp2 tp2 +m4", "pp2:interleaved,v2 dp2 +m4"])
def test_communications_are_those_of_the_program(plan: str) -> None:
    program = expand(lower(ask(plan).setting))
    for kind in program.kinds:
        ours: Counter[tuple[Any, ...]] = Counter()
        for row in communications(program, kind):
            ours[row.kind, row.axes, row.ranks, row.what] += row.payload * row.count
        theirs = {tuple(key): total.payload for key, total in program.traffic(kind).items()}
        assert ours == pytest.approx(theirs)


@pytest.mark.parametrize("plan", ["dp2", "tp4", "pp4 dp2 +m4", "pp2:dualpipe +m4"])
def test_operators_add_up_to_the_work_of_a_micro_batch(plan: str) -> None:
    program = expand(lower(ask(plan).setting))
    for kind in program.kinds:
        shown = sum((row.forward + row.backward) * row.times for row in operators(program, kind))
        bodies = [
            (body, layer.times)
            for stage in kind.stages
            for layer in program.stages[stage].layers
            for body in (layer.forward, layer.backward)
        ]
        assert shown == pytest.approx(
            sum(one.cost.matrix * times for body, times in bodies for one in body.computations())
        )


@pytest.mark.parametrize(("schedule", "most"), [("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1])])
def test_micro_batches_that_wait(schedule: str, most: list[int]) -> None:
    """All of them with GPipe (Huang et al. 2019), as many as stages are left with 1F1B (Narayanan et al. 2021)."""
    program = expand(lower(ask(f"pp4:{schedule} +m8").setting))
    held = [waiting(program, kind) for kind in program.kinds]
    assert [one.passes for one in held] == most
    kept = [program.stages[kind.stages[0]].memory.kept for kind in program.kinds]
    assert [one.bytes for one in held] == pytest.approx([size * n for size, n in zip(kept, most, strict=True)])


def test_zero3_sends_half_as_much_again(foretell: Any) -> None:
    """Rajbhandari et al. 2020, section 7: 3 times the weights instead of 2, if all are gathered twice."""

    def sent(plan: str) -> float:
        answer = json.loads(foretell(SMALL, "--plan", plan, "--trainer", "deepspeed", "--json").out)
        return sum(row["sent"] for row in answer["communications"])

    assert sent("dp8:zero3 +bf16") == pytest.approx(1.5 * sent("dp8 +bf16"), rel=1e-3)


# for programs

KEYS = {
    *("model", "plan", "trainer", "optimizer", "cluster", "batch", "microbatches", "micro_batch", "ranks"),
    *("axes", "kinds", "stages", "bodies", "communications", "notes"),
}


def test_json_has_the_promised_keys(foretell: Any) -> None:
    ran = foretell(SMALL, "--on", "16xh100", "--plan", "+BF16 PP2:m4 dp2:zero1 tp4:sp", "--batch", "32", "--json")
    answer = json.loads(ran.out)
    assert set(answer) >= KEYS
    assert answer["model"] == SMALL
    assert answer["plan"] == "pp2:1f1b dp2:zero1 tp4:sp +m4 +bf16"
    assert (answer["batch"], answer["microbatches"], answer["micro_batch"], answer["ranks"]) == (32, 4, 4, 16)
    assert [(axis["name"], axis["ranks"], axis["stride"]) for axis in answer["axes"]] == [
        ("pp", 2, 8),
        ("dp", 2, 4),
        ("tp", 4, 1),
    ]
    assert {row["place"] for row in answer["communications"]} == {0, 1}
    assert sum(kind["ranks"] for kind in answer["kinds"]) == 16


def test_json_writes_each_body_once(foretell: Any) -> None:
    """A model of many layers on many stages is not much longer than one of few."""
    few, many = (
        foretell(SMALL.replace("layers=8", f"layers={layers}"), "--plan", f"pp{stages} +m8", "--json").out
        for layers, stages in ((8, 4), (64, 8))
    )
    answer = json.loads(many)
    written = [json.dumps(body) for body in answer["bodies"]]
    assert len(written) == len(set(written))
    assert len(many) < 2 * len(few)
    for stage in answer["stages"]:
        for layer in stage["layers"]:
            assert answer["bodies"][layer["forward"]]["phase"] == "forward"
            assert answer["bodies"][layer["backward"]]["phase"] == "backward"


# batches


def test_without_a_batch_each_rank_takes_a_sample(foretell: Any) -> None:
    ran = foretell(SMALL, "--plan", "dp4 tp2 +m2", "--json")
    answer = json.loads(ran.out)
    assert (answer["batch"], answer["micro_batch"]) == (8, 1)
    assert "no batch is given" in " ".join(answer["notes"])


def test_a_batch_per_rank_is_the_weak_form(foretell: Any) -> None:
    weak, strong = (
        json.loads(foretell(SMALL, "--plan", "dp4:zero1 tp2", option, size, "--json").out)
        for option, size in (("--batch-per-rank", "6"), ("--batch", "24"))
    )
    assert weak == strong


def test_a_written_graph_has_its_own_batch(foretell: Any, tmp_path: Path) -> None:
    from foretell.model.source import load

    file = tmp_path / "graph.json"
    file.write_bytes(load(SMALL, 8).to_json())
    answer = json.loads(foretell(str(file), "--plan", "dp4 +m2", "--json").out)
    assert (answer["batch"], answer["micro_batch"]) == (16, 2)
    assert "the graph has 8 samples" in answer["notes"][0]
    halved = json.loads(foretell(str(file), "--plan", "dp4 +m2", "--batch", "8", "--json").out)  # as a search takes it
    assert (halved["batch"], halved["micro_batch"]) == (8, 1)
    assert foretell(str(file), "--plan", "dp4 +m2", "--batch", "24").code == 2


# precision


@pytest.mark.parametrize(("policy", "widths"), [("", {4}), (" +bf16", {2}), (" +amp_bf16", {2, 4}), (" +tf32", {4})])
def test_activations_have_the_type_of_the_plan(policy: str, widths: set[int]) -> None:
    """Autocast leaves what is looked up in a table as it is, and makes products narrow."""
    program = expand(lower(ask(f"tp2{policy}").setting))
    sums = [message for message, _ in program.communications(program.kinds[0]) if message.kind == "all-reduce"]
    assert {message.payload / (64 * 256) for message in sums if message.what == "activations"} == widths


def test_a_type_of_ones_own_stays_and_is_said(foretell: Any) -> None:
    ran = foretell(f"{SMALL},dtype=fp32", "--plan", "tp2 +bf16")
    assert ran.code == 0
    assert "in fp32" in ran.err
    assert "bf16" not in foretell(SMALL, "--plan", "tp2 +bf16").err


# what does not fit


def suggested(message: str) -> list[str]:
    """The words of the plan that a message says to try."""
    found = re.search(r"try +--plan ('[^']*')", message)
    assert found, message
    return shlex.split(found[1])


TOO_LARGE = ["dp64:zero3", "pp4 dp2 tp8 +m4", "dp8:zero3 tp8:sp", "dp2:zero3,shard16", "pp8 tp4:sp +m8"]


@pytest.mark.parametrize("plan", TOO_LARGE)
@pytest.mark.parametrize("on", ["16xh100", "8xa100-80", "h100"])
def test_a_plan_that_is_too_large_gets_a_neighbour_that_works(foretell: Any, plan: str, on: str) -> None:
    ran = foretell(SMALL, "--on", on, "--plan", plan, "--batch", "64")
    assert ran.code == 2
    assert ran.out == ""
    assert f"needs {parse(plan).ranks} ranks" in ran.err
    neighbour = suggested(ran.err)
    assert parse(neighbour[0]).ranks <= cluster(on).ranks
    again = foretell(SMALL, "--on", on, "--plan", *neighbour, "--batch", "64")
    assert again.code == 0, again.err


def test_a_grid_gets_smaller_too(foretell: Any) -> None:
    ran = foretell("resnet50", "--on", "8xv100-16", "--plan", "dp2 spatial4x2", "--batch", "8")
    assert suggested(ran.err) == ["spatial4x2"]
    ran = foretell("resnet50", "--on", "4xv100-16", "--plan", "spatial4x2", "--batch", "8")
    assert foretell("resnet50", "--on", "4xv100-16", "--plan", *suggested(ran.err), "--batch", "8").code == 0


def test_a_plan_that_is_smaller_is_packed(foretell: Any) -> None:
    ran = foretell(SMALL, "--on", "16xh100", "--plan", "dp4 tp2")
    assert ran.code == 0
    assert "8 of the 16 GPUs" in ran.err
    assert "note" not in foretell(SMALL, "--on", "8xh100", "--plan", "dp4 tp2", "--batch", "4").err


def test_every_refusal_is_said(foretell: Any) -> None:
    """Nothing is left out because something else is wrong too."""
    plan = "pp3 tp3:sp +m4"
    ran = foretell(SMALL, "--plan", plan, "--batch", "6", "--trainer", "megatron-core")
    assert ran.code == 2
    said = re.findall(r"^  rule   (.*)$", ran.err, re.MULTILINE)
    assert len(said) >= 3
    assert {"batch divides", "heads divide", "layers divide"} <= set(said)


REFUSED = {
    "dp3": ("--batch", "8"),
    "tp3": ("--batch", "8"),
    "pp16 +m16": ("--batch", "16"),
    "pp4:1f1b,split=1/1/1/1 +m4": ("--batch", "4"),
    "dp4:ep4": ("--batch", "4"),
    "dp2 +imbalance2": ("--batch", "4"),
}


@pytest.mark.parametrize("plan", REFUSED)
def test_a_refusal_has_rule_numbers_and_way_out(foretell: Any, plan: str) -> None:
    ran = foretell(SMALL, "--plan", plan, *REFUSED[plan])
    assert ran.code == 2
    assert ran.out == ""
    for word in ("rule", "why", "try"):
        assert re.search(rf"^  {word} +\S", ran.err, re.MULTILINE), word


def test_what_is_lowered_was_not_refused() -> None:
    """The reader of options refuses exactly what the rules refuse, and hands on the plan as it was typed."""
    axes = ["dp2", "dp3:zero3", "tp2:sp", "tp3", "pp2", "pp5", "cp2"]
    for one, other in combinations(axes, 2):
        text = f"{one} {other} +m2"
        try:
            plan = parse(text)
        except BadInput:
            continue
        try:
            asked = ask(text, batch=24)
        except BadInput as problem:
            assert "is refused" in problem.what, problem
        else:
            assert asked.setting.plan == plan
            assert not list(refusals(asked.setting))


BAD = {
    (SMALL,): "--plan",
    (): "MODEL",
    (SMALL, "--plan", "dp2:zer3"): "zero3",
    (SMALL, "--plan", "dp2", "--on", "16xh101"): "h100",
    (SMALL, "--plan", "dp2", "--on", "nowhere.toml"): "nowhere.toml",
    (SMALL, "--plan", "dp2", "--trainer", "pytoch"): "pytorch",
    (SMALL, "--plan", "dp2", "--optimizer", "adm"): "adam",
    (SMALL, "--plan", "dp2", "--batch", "0"): "batch",
    (SMALL, "--plan", "dp2", "--batch-per-rank", "-1"): "batch",
    (SMALL, "--plan", "dp2", "--batch", "2", "--batch-per-rank", "1"): "one of them",
    (SMALL, "--plan", "dp2", "--seq", "0"): "sequence",
    (SMALL, "--plan", "dp2", "--rank-kind", "1"): "--rank-kind",
    (SMALL, "--plan", "pp2 +m2", "--rank-kind", "2"): "0 to 1",
    ("resnet5", "--plan", "dp2"): "resnet50",
    ("vgg16", "--plan", "filter2[fc*]"): "fc*",
    ("resnet50", "--plan", "spatial64", "--batch", "1"): "49",
    ("resnet50", "--plan", "dp1", "--seq", "8"): "seq",
}


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_gets_a_message(foretell: Any, arguments: tuple[str, ...]) -> None:
    ran = foretell(*arguments)
    assert ran.code == 2
    assert BAD[arguments] in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_a_program_that_does_not_verify_is_our_mistake(foretell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.program.verify.verify", lambda *_: ("work was lost",))
    ran = foretell(SMALL, "--plan", "dp2")
    assert ran.code == 1
    assert "internal error" in ran.err
    assert "work was lost" in ran.err


def test_no_torch_for_a_model_of_the_zoo() -> None:
    code = """
import sys
sys.argv = ["foretell", "program", "llama3-8b", "--on", "16xh100", "--plan", "dp2:zero3 tp8:sp +bf16"]
from foretell.cli import main
main()
sys.exit("torch" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "llama3-8b" in ran.stdout
