"""The commands agree: models, plans, files and numbers are said in the same ways to every verb."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from foretell.cli.amounts import amount, in_samples, of_tokens
from foretell.cli.command import cli
from foretell.cli.request_options import example
from foretell.cli.same_forms import in_own_form, is_plan
from foretell.errors import BadInput
from foretell.plan.text import parse

MODEL = "gpt:layers=4,hidden=64,heads=4,vocab=256"
ON = ("--on", "8xh100", "--batch", "64")
PLAN, OTHER = "dp8 +bf16", "dp4 tp2 +bf16"


def verb(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def form(name: str, *words: str) -> list[str]:
    return in_own_form(verb(name), words)


def with_option(option: str) -> list[str]:
    """Verbs that have it, and no list of names."""
    found: list[str] = []
    for name in cli.list_commands(click.Context(cli)):
        command = verb(name)
        lists = any(one.nargs != 1 for one in command.params if isinstance(one, click.Argument))
        if not isinstance(command, click.Group) and not lists and any(option in one.opts for one in command.params):
            found.append(name)
    return found


@pytest.mark.parametrize("name", with_option("--plan"))
def test_every_verb_with_a_plan_takes_it_alone_and_behind_plan(name: str) -> None:
    either = [form(name, *words, *ON) for words in ((MODEL, PLAN), (MODEL, "--plan", PLAN), ("--model", MODEL, PLAN))]
    assert len({tuple(sorted(one)) for one in either}) == 1
    assert either[0][either[0].index("--plan") + 1] == PLAN


def test_verbs_that_take_a_plan() -> None:
    assert with_option("--plan") == [
        *(
            "program",
            "predict",
            "fit",
            "align",
            "capacity",
            "why",
            "whatif",
            "sweep",
            "report",
            "export",
            "stack",
            "run",
            "goodput",
        )
    ]


@pytest.mark.parametrize("name", ["analyze", "predict", "fit", "plan", "why", "scale", "simulate", "advise", "profile"])
def test_a_model_is_said_in_either_way(name: str) -> None:
    assert form(name, "--model", MODEL, "--json") == form(name, MODEL, "--json") == [MODEL, "--json"]
    assert form(name, f"--model={MODEL}") == [MODEL]


@pytest.mark.parametrize("name", ["predict", "scale", "report", "compare", "simulate", "validate"])
def test_a_page_is_html_or_out(name: str) -> None:
    lists = any(one.nargs != 1 for one in verb(name).params if isinstance(one, click.Argument))
    assert form(name, "--out", "page.html") == (["--out", "page.html"] if lists else ["--html", "page.html"])


def test_what_out_means_elsewhere_stays() -> None:
    assert form("export", MODEL, "--out", "ds.json") == [MODEL, "--out", "ds.json"]
    assert form("plan", "--from-config", "a.json", "--out", "b.json") == ["--from-config", "a.json", "--out", "b.json"]
    assert form("plan", MODEL, "--out", "page.html") == [MODEL, "--html", "page.html"]
    assert form("sweep", MODEL, "--out", "folder") == ["--out", "folder", "--model", MODEL]


def test_two_plans_of_diff_in_either_way(foretell: Any) -> None:
    assert form("diff", MODEL, "--plan", PLAN, "--plan", OTHER) == [MODEL, PLAN, OTHER]
    answers = [
        json.loads(foretell("diff", *words, *ON, "--json").out)
        for words in ((MODEL, PLAN, OTHER), (MODEL, "--plan", PLAN, "--plan", OTHER))
    ]
    assert answers[0] == answers[1] and answers[0]["second"]["plan"] == OTHER


def test_a_plan_without_quotes_is_one_plan() -> None:
    joined = [MODEL, "--on", "8xh100", "--plan", "dp4 tp2 +bf16"]
    assert form("predict", MODEL, "dp4", "tp2", "+bf16", "--on", "8xh100") == joined
    assert form("predict", MODEL, "--on", "8xh100", "--plan", "dp4", "tp2", "+bf16") == joined
    with pytest.raises(BadInput, match="two plans"):
        form("predict", MODEL, PLAN, "--plan", "dp8")
    assert form("sweep", MODEL, PLAN, OTHER) == ["--plan", PLAN, "--plan", OTHER, "--model", MODEL]


def test_a_stack_has_its_name_before_the_model() -> None:
    assert form("stack", "mine", "--model", MODEL, PLAN) == form("stack", "mine", MODEL, "--plan", PLAN)
    assert form("stack", "mine", "--model", MODEL)[:2] == ["mine", MODEL]


def test_two_models_are_refused_and_extra_words_are_clicks() -> None:
    with pytest.raises(BadInput, match="two models: gpt2, resnet50"):
        form("predict", "gpt2", "--model", "resnet50")
    assert form("predict", "gpt2", "resnet50") == ["gpt2", "resnet50"]  # which click refuses
    assert form("predict", "gpt2", "--plan") == ["gpt2", "--plan"]
    assert form("predict", "gpt2", "--", "-x") == ["--", "gpt2", "-x"]
    assert form("systems", "petuum", "dp8") == ["petuum", "dp8"]


def test_what_reads_as_a_plan() -> None:
    for word in ("dp8", "dp8:zero3 +bf16", "pp4:1f1b dp2", "spatial2x2", "filter4[fc*]", "best", "+bf16", "TP8:sp"):
        assert is_plan(word), word
    for word in ("gpt2", "resnet50", "llama3-8b", "vgg16", "t5-base", "my.py:factory", "vit_b_16", "h100", "bench"):
        assert not is_plan(word), word


# numbers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("15T", 15e12),
        ("1.5e12", 1.5e12),
        ("300B", 300e9),
        ("4M", 4e6),
        ("512k", 512e3),
        ("1,000", 1000.0),
        ("8 M tokens", 8e6),
    ],
)
def test_amounts(text: str, value: float) -> None:
    assert amount(text) == value


@pytest.mark.parametrize("text", ["", "many", "4MM", "T", "-4M", "1e", "4 parsec"])
def test_what_is_no_amount(text: str) -> None:
    assert amount(text) is None


def test_tokens_and_samples() -> None:
    assert all(map(of_tokens, ("4M", "512k", "4194304 tokens")))
    assert not any(map(of_tokens, ("512", "4M samples", "auto", "8..64")))
    count, note = in_samples("4M", "llama3-8b", None)
    assert count == 512 and note.startswith(
        "--batch 4M: 512 sequences of 8,192 tokens, 4,194,304 in all; --batch 488 is"
    )
    assert in_samples("16M", "llama3-8b", None)[0] == 2048 and in_samples("1M", "llama3-8b", 2048)[0] == 512
    assert in_samples("4M", "llama3-8b", 4000)[0] == 1000
    assert in_samples("4194304 tokens", "llama3-8b", None) == (
        512, "--batch 4194304 tokens: 512 sequences of 8,192 tokens, 4,194,304 in all"
    )  # fmt: skip
    with pytest.raises(BadInput, match="has no sequences"):
        in_samples("4M", "resnet50", None)
    with pytest.raises(BadInput, match="less than one sequence"):
        in_samples("1k", "llama3-8b", None)


@pytest.mark.parametrize("name", ["predict", "fit", "plan"])
def test_a_batch_of_tokens_and_a_price(foretell: Any, name: str) -> None:
    plan = ("--plan", PLAN) if name == "predict" else ()
    asked = (name, MODEL, "--seq", "128", "--on", "8xh100", *plan, "--tokens", "15T", "--price", "$2")
    ran = foretell(*asked, "--batch", "8.2k", "--only", "dp") if name == "plan" else foretell(*asked, "--batch", "8.2k")
    assert ran.code == 0
    assert "64 sequences of 128 tokens, 8,192 in all" in " ".join((ran.out + ran.err).split())
    assert "at 2 per GPU-hour" in ran.out
    same = foretell(*asked, "--batch", "64", *(("--only", "dp") if name == "plan" else ()))
    assert same.out.splitlines()[:6] == ran.out.splitlines()[:6]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--batch", "4X"), "'4X' is no number of samples"),
        (("--batch", "64", "--tokens", "lots"), "'lots' is no number"),
        (("--batch", "64", "--price", "two"), "'two' is no price"),
    ],
)
def test_numbers_that_are_none(foretell: Any, words: tuple[str, ...], says: str) -> None:
    ran = foretell("predict", MODEL, PLAN, "--on", "8xh100", *words)
    assert ran.code == 2 and says in ran.err


# exit codes


def test_what_does_not_fit_ends_with_one(foretell: Any, tmp_path: Path) -> None:
    large = ("llama3-70b", "--on", "8xh100", "--batch", "8", "--plan", "dp8 +bf16")
    for name in ("predict", "fit"):
        assert foretell(name, *large).code == foretell(name, *large, "--json").code == 1
    assert foretell("plan", *large[:-2], "--only", "dp").code == 1
    assert foretell("report", *large, "--html", str(tmp_path / "large.html")).code == 1
    assert (tmp_path / "large.html").stat().st_size
    assert foretell("predict", MODEL, PLAN, *ON, "--out", str(tmp_path / "page.html")).code == 0
    assert (tmp_path / "page.html").stat().st_size


# ways out


@pytest.mark.parametrize("name", ["program", "predict", "fit", "why", "diff", "scale", "whatif", "report", "export"])
def test_the_example_of_a_verb_is_one_that_it_reads(name: str) -> None:
    with click.Context(verb(name), info_name=name):
        words = shlex.split(example())
    assert words[:3] == ["foretell", name, "llama3-8b"]
    made = verb(name).make_context(name, form(name, *words[2:]))
    assert made.params["model"] == "llama3-8b" and made.params["batch"] == 32
    plans = [made.params[key] for key in ("plan", "plan1", "plan2") if made.params.get(key)]
    assert all(parse(plan).ranks == 16 for plan in plans) and (plans or made.params["gpus"])


def test_what_is_wrong_is_told_before_anything_long_is_begun(foretell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: object) -> None:
        raise AssertionError("it was begun")

    monkeypatch.setattr("foretell.oracle.scale.scale", never)
    monkeypatch.setattr("foretell.virtual.batches.measured", never)
    page = foretell("scale", MODEL, *ON, "--gpus", "1..8", "--html", "/no/such/folder/page.html")
    assert page.code == 2 and "there is no folder" in page.err
    one = foretell("simulate", "lenet", "--on", "8xv100-16", "--learn", "squares", "--batches", "8")
    assert one.code == 2 and "one batch size" in one.err and "8..16" in one.err


def test_a_link_is_no_cluster(foretell: Any) -> None:
    ran = foretell("predict", MODEL, PLAN, "--on", "roce-400", "--batch", "64")
    assert ran.code == 2 and "roce-400 is a link" in ran.err and "64xh100,roce-400" in ran.err


@pytest.mark.parametrize("verb", ["predict", "fit", "diff", "why", "export"])
def test_only_a_file_has_a_reader(verb: str, foretell: Any) -> None:
    words = ("dp2", "tp2") if verb == "diff" else () if verb == "fit" else ("--plan", "dp2")
    more = ("--to", "trl") if verb == "export" else ()
    ran = foretell(verb, "llama3.2-1b", "--as", "hf", "--on", "2xh100", "--batch", "4", *words, *more)
    assert ran.code == 2
    assert "--as" in ran.err
