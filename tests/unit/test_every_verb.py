"""Laws over every verb: `--json` is what is documented, errors too, and pages fit a terminal of eighty columns."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from answers import documented
from foretell.bench.row import ABSENT, UNFIT, BenchRow
from foretell.bench.study import About, begin, keep
from foretell.cli.answers import FORMS, TYPES, FailureAnswer
from foretell.cli.command import cli
from foretell.cli.table import WIDTH
from foretell.cli.verbs import VERBS
from foretell.records import store
from foretell.records.record import record

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
ON = ("--on", "2xh100", "--batch", "8")
FEW = ("--only", "dp,tp")

KERNELS = ("gemm", "flash", "norm", "add")

ASKED: dict[str, list[tuple[str, ...]]] = {
    "analyze": [("lenet",)],
    "program": [(TINY, *ON, "--plan", "dp2"), (TINY, "--plan", "pp2:1f1b +m2", "--batch", "4")],
    "predict": [
        (TINY, *ON, "--plan", "dp2 +bf16", "--tokens", "1e9", "--price", "2"),
        ("gpt2:layers=2", *ON, "--plan", "dp2 +m2", "--lengths", "20,32", "--samples", "1e6"),
        ("gpt2:layers=2", "--on", "1xv100-16", "--plan", "dp1", "--batch", "256"),  # what does not fit
    ],
    "fit": [(TINY, "--on", "2xh100"), (TINY, *ON, "--plan", "tp2")],
    "align": [
        (TINY, *ON, "--plan", "dp2 +bf16", "--method", "dpo"),
        ("gpt2:layers=2", *ON, "--plan", "dp2 +bf16", "--method", "ppo", "--lengths", "12,20", "--price", "2"),
        ("gpt2:layers=2", *ON, "--plan", "dp1 +bf16", "--method", "grpo", "--lengths", "12,20"),
    ],
    "capacity": [(TINY, "--on", "2xtpu-v5p", "--batch", "8", "--plan", "dp2 +bf16")],
    "plan": [
        (TINY, *ON, *FEW),
        (TINY, "--on", "h100", "--batch", "8", "--gpus", "1..2", *FEW, "--tokens", "1e9", "--deadline", "30d"),
        ("llama3-8b", "--on", "1xv100-16", "--batch", "1", "--only", "dp"),  # nothing fits
    ],
    "plan --batch auto": [(TINY, "--on", "2xh100", "--batch", "8,16", "--noise-scale", "64 samples", *FEW)],
    "why": [(TINY, *ON, *FEW, "--plan", "tp2"), (TINY, "--on", "2xh100", "--batch", "7", *FEW, "--plan", "dp2")],
    "diff": [(TINY, *ON, "dp2", "tp2")],
    "scale": [(TINY, "--on", "h100", "--batch", "8", "--gpus", "1..2", *FEW)],
    "whatif": [(TINY, *ON, "--plan", "tp2")],
    "sweep": [("--model", TINY, "--on", "1xh100,2xh100", "--batch", "8", "--plan", "dp2", "--jobs", "1")],
    "report": [(TINY, *ON, "--plan", "dp2", "--html", "{folder}/r.html", "--svg", "{folder}/figures")],
    "export": [(TINY, *ON, "--plan", "dp2:zero3 +bf16", "--to", "torchtitan")],
    "simulate": [("lenet", "--on", "4xv100-16", "--learn", "squares", "--workers", "2", "--algorithms", "sync,async")],
    "simulate --on --on": [("lenet", "--on", "2x4xv100-16", "--on", "2x4xv100-16,eth-1", "--learn", "squares",
                            "--workers", "2", "--algorithms", "sync,async")],
    "simulate --fig14": [()],
    "bench": [("--show", "{folder}/study")],
    "bench --list": [()],
    "lab describe": [("{folder}/lab.toml", "--hosts", "4", "--overhead", "100us")],
    "blame": [("{folder}/rank0.json", "{folder}/rank1.json")],
    "stack": [("mine", "--anchor", "{folder}/measured.csv"), (), ("mine",)],
    "goodput": [
        ("--mtbf", "3h", "--checkpoint", "40s"),
        (TINY, "--on", "8xh100", "--mtbf", "3h", "--storage", "1 GB/s"),
    ],
    "systems": [(), ("petuum", "distbelief")],
    "systems --on": [("distbelief", "easgd", "gpipe", "--on", "4xv100-16", "--model", "lenet", "--learn", "squares")],
    "systems --plan": [("--plan", "dp8"), ("--plan", "pp4:1f1b +m4")],
    "systems --bytes": [("--bytes", "lenet")],
    "systems --axes": [()],
    "results": [("--records", "{folder}/records")],
    "results show": [("{folder}/records/calibration-cpu.json",)],
    "contribute": [("{folder}/step.json",)],
    "validate": [("{folder}/runs.csv",)],
    "validate --rows": [("{folder}/runs.csv",)],
    "validate --table": [("{folder}/runs.csv",)],
    "validate --constants": [()],
    "check": [("{folder}/kept.json",)],
    "doctor": [()],
    "schema": [(), ("predict",)],
    "completion": [("bash",)],
    "list": [(), ("devices",), ("links",), ("clusters",), ("trainers",), ("strategies",), ("policies",), ("dialects",),
             ("schedules",), ("algorithms",), ("topologies",)],
    "describe": [("h100",), ("dp8:zero3",), ("gpt2",), ("64xh100",), ("pytorch",)],
}  # fmt: skip
"""Questions that are answered fast, by the form of their answer."""

ELSEWHERE = {form.command for form in FORMS} - set(ASKED)
"""Those that measure something, or take long: they are held to their types where they are tested anyway."""

WRITTEN = {"contribute", "export", "completion", "schema", "validate --rows"}
"""What they print is a file of another program, as wide as that is."""

CASES = [(form, at) for form, asked in ASKED.items() for at in range(len(asked))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that some questions are about."""
    made = tmp_path_factory.mktemp("verbs")
    store.save(made / "records" / "calibration-cpu.json", record("calibration", {"machine": {"device": "h200"}}))
    published = Path(__file__).parents[2] / "studies" / "published" / "vtrain_single.csv"
    rows = list(csv.reader(published.read_text().splitlines()))[:4]
    (made / "runs.csv").write_text("\n".join(",".join(row) for row in rows) + "\n")
    _compared(made / "study")
    (made / "measured.csv").write_text(f'model,plan,cluster,batch,step_seconds\n"{TINY}",dp2,2xh100,8,0.02\n')
    for rank, slow in enumerate((1.0, 1.5)):
        kernels = [(name, at * 200 + step * 900, slow * 100) for step in range(3) for at, name in enumerate(KERNELS)]
        events = [{"ph": "X", "cat": "kernel", "name": name, "ts": at, "dur": long} for name, at, long in kernels]
        (made / f"rank{rank}.json").write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": rank}}))
    step = {"model": "gpt2", "plan": "dp8", "cluster": "8xh100", "batch": 64, "step_seconds": 0.31}
    (made / "step.json").write_text(json.dumps(step))
    return made


def _compared(study: Path) -> None:
    """A study of two engines, one of which did not run."""
    begin(study, About(command="foretell bench", created="", foretell="", machine="here", cores=2))
    alike = {"pair": "image", "ranks": 2, "seed": 0, "batch_rule": "survey"}
    phases = {"forward": 0.02, "backward": 0.05, "exposed.dp": 0.03}
    run = {"batch": 8, "epoch_samples": 80, "step_seconds": 0.1, "phases": phases, "memory_by_rank": (10**8, 10**8)}
    keep(study, BenchRow(engine="ddp", fingerprint="a", plan="dp2", device="cpu", task="digits", **alike, **run))
    keep(study, BenchRow(engine="hivemind", fingerprint="b", status=ABSENT, reason="not there", fix="get it", **alike))


def test_a_row_that_did_not_run_is_told_nothing_that_bench_cannot_do(foretell: Any, tmp_path: Path) -> None:
    begin(tmp_path, About(command="foretell bench", created="", foretell="", machine="here", cores=2))
    unfit = {"pair": "image", "ranks": 2, "seed": 0, "batch_rule": "survey", "status": UNFIT, "reason": "too many"}
    ways = {"filter": "--plan 'dp2 filter8', or a part of the model", "spatial": "--plan 'dp2'; --plan 'dp2'"}
    for name, fix in ways.items():
        keep(tmp_path, BenchRow(engine=name, fingerprint=name, fix=fix, **unfit))
    page = foretell("bench", "--show", str(tmp_path), "--html", str(tmp_path / "page.html")).out
    assert "try a part of the model" in page and page.count("try") == 1
    assert "--plan" not in page + (tmp_path / "page.html").read_text()


def words(form: str, at: int, folder: Path) -> tuple[str, ...]:
    """A question as it is typed; of a form with options only the verb is the beginning."""
    arguments = tuple(word.replace("{folder}", str(folder)) for word in ASKED[form][at])
    verb, *more = form.split()
    sub = [word for word in more if not word.startswith("-")]
    flags = [word for word in more if word.startswith("-") and word not in arguments and word != "--batch"]
    sub, flags = ([], flags) if form == "plan --batch auto" else (sub, flags)
    return (verb, *sub, *flags, *arguments)


@pytest.fixture(scope="module")
def kept(folder: Path) -> Path:
    """A prediction that is kept, for `check`."""
    import click.testing

    question = ["predict", TINY, *ON, "--plan", "dp2 +bf16", "--keep", str(folder / "kept.json")]
    assert click.testing.CliRunner().invoke(cli, question).exit_code == 0
    return folder


def test_every_verb_has_a_form() -> None:
    assert {form.partition(" ")[0] for form in TYPES} == set(VERBS)
    assert set(ASKED) <= set(TYPES)


def test_every_verb_of_the_lab_has_a_form() -> None:
    group = cli.get_command(click.Context(cli), "lab")
    assert isinstance(group, click.Group)
    assert {f"lab {name}" for name in group.commands} == {form for form in TYPES if form.startswith("lab ")}


def test_every_form_is_held_to_its_type() -> None:
    sources = "".join(file.read_text() for file in Path(__file__).parents[1].rglob("*.py"))
    assert [form for form in sorted(ELSEWHERE) if f'documented("{form}"' not in sources] == []


@pytest.mark.parametrize(("form", "at"), CASES)
def test_answers_are_as_documented(foretell: Any, form: str, at: int, kept: Path) -> None:
    ran = foretell(*words(form, at, kept), "--json")
    assert ran.code in (0, 1), ran.err
    documented(form, ran.out)


@pytest.mark.parametrize(("form", "at"), CASES)
def test_pages_fit_a_terminal(foretell: Any, form: str, at: int, kept: Path) -> None:
    ran = foretell(*words(form, at, kept))
    out = "" if form in WRITTEN else ran.out
    lines = f"{out}\n{ran.err}".replace(str(kept), "folder").splitlines()
    assert [line for line in lines if len(line) > WIDTH] == []


FLAGGED = ("analyze", "program", "fit", "why", "diff", "whatif", "goodput", "systems", "doctor", "schema", "validate")
"""Verbs whose flags are all tried beside --json; those of the others take long, or start something."""


@pytest.mark.parametrize("verb", FLAGGED)
def test_whatever_flag_is_beside_json_it_is_one_object(foretell: Any, verb: str, kept: Path) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    options = [one for one in command.params if isinstance(one, click.Option) and "--json" not in one.opts]
    flags = [(one.opts[0],) for one in options if one.is_flag and not one.hidden]
    choices = [
        (one.opts[0], str(word)) for one in options if isinstance(one.type, click.Choice) for word in one.type.choices
    ]
    for more in (*flags, *choices):
        ran = foretell(*words(verb, 0, kept), *more, "--json")
        assert isinstance(json.loads(ran.out), dict), more


def test_where_an_algorithm_lies_is_told_as_where_a_plan_does(foretell: Any) -> None:
    documented("systems --plan", foretell("systems", "--algorithm", "async", "--json").out)


def every_command() -> list[tuple[str, ...]]:
    """Verbs, and what verbs of verbs there are."""
    import click

    context = click.Context(cli)
    found: list[tuple[str, ...]] = []
    for verb in VERBS:
        command = cli.get_command(context, verb)
        subs = [(verb, sub) for sub in command.commands] if isinstance(command, click.Group) else []
        found += subs or [(verb,)]
    return found


@pytest.mark.parametrize("command", every_command(), ids=" ".join)
def test_errors_are_json_where_json_is_asked_for(foretell: Any, command: tuple[str, ...]) -> None:
    ran = foretell(*command, "--json", "--no-such-option")
    error = msgspec.json.decode(ran.out, type=FailureAnswer).error
    assert ran.code == 2
    assert "no-such-option" in error.what
    assert "--help" in error.fix
    assert error.what.split()[0] in ran.err  # and a person is told on the other side
    assert foretell(*command, "--no-such-option").out == ""


WRONG = [
    ("analyze", "resnet5"),
    ("predict", "gpt2", "--on", "8xh100", "--plan", "dp8", "--batch", "100"),
    ("predict", "gpt2", "--on", "8xh100", "--plan", "dp8:", "--batch", "8"),
    ("program", "gpt2", "--plan", "tp5", "--batch", "8"),
    ("fit", "gpt2", "--on", "8xh1000"),
    ("plan", "gpt2", "--on", "8xh100", "--batch", "8", "--only", "zero3"),
    ("plan", "gpt2", "--on", "8xh100", "--batch", "7", "--only", "dp", "--fix", "dp8"),
    ("why", "gpt2", "--on", "8xh100", "--batch", "8"),
    ("scale", "gpt2", "--on", "8xh100", "--batch", "8"),
    ("check", "nowhere.json"),
    ("validate", "nowhere.csv"),
    ("results", "show", "nothing-like-it"),
    ("describe", "nobody"),
    ("nothing",),
]


@pytest.mark.parametrize("command", WRONG, ids=" ".join)
def test_what_is_wrong_is_told_to_programs(foretell: Any, command: tuple[str, ...]) -> None:
    ran = foretell(*command, "--json")
    assert ran.code == 2
    failed = msgspec.json.decode(ran.out, type=FailureAnswer)
    assert msgspec.json.decode(msgspec.json.encode(failed)) == json.loads(ran.out)
    assert failed.error.what
    assert failed.error.fix
    assert "\n  rule" not in failed.error.what


def test_a_refused_plan_names_its_rules(foretell: Any) -> None:
    error = json.loads(foretell(*WRONG[1], "--json").out)["error"]
    assert [one["rule"] for one in error["refusals"]] == ["batch divides"]
    assert error["refusals"][0]["way_out"] in error["fix"]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("zero3", "--fix 'dp8:zero3'"),
        ("checkpointing", "--fix '+recompute:block'"),
        ("tp4:sp", "--fix 'tp4:sp'"),
        ("pp:stash", "--fix 'pp8:stash'"),
    ],
)
def test_options_of_a_strategy_are_for_fix(foretell: Any, word: str, hint: str) -> None:
    assert hint in foretell("plan", "gpt2", *ON, "--only", word).err
