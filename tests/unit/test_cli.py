"""The command line: answers that machines read, pages that fit, and messages for bad input."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foretell.cli.table import folded_lines
from foretell.errors import first_of, unknown
from foretell.plan.members import policies, strategies

KEYS = ["model", "parameters", "forward_flops", "backward_flops", "saved_bytes", "work", "depth", "blocks", "limits"]


def test_json_has_the_promised_keys(foretell: Any) -> None:
    answer = json.loads(foretell("analyze", "resnet50", "--batch", "4", "--json").out)
    assert set(KEYS) <= set(answer)
    assert answer["parameters"] == 25_557_032
    assert answer["batch"] == 4
    assert answer["limits"]["data"] == 4
    assert answer["limits"]["filter"] == 64


def test_totals_are_for_the_batch(foretell: Any) -> None:
    one, four = (json.loads(foretell("analyze", "resnet50", "--batch", n, "--json").out) for n in ("1", "4"))
    assert four["forward_flops"] == 4 * one["forward_flops"]
    assert four["parameters"] == one["parameters"]


def test_tables_add_up_to_the_totals(foretell: Any) -> None:
    answer = json.loads(foretell("analyze", "resnet18", "--json").out)
    for table in ("kinds", "blocks", "operators"):
        for field in ("parameters", "forward_flops", "backward_flops", "saved_bytes"):
            assert sum(row[field] for row in answer[table]) == answer[field], (table, field)


PAGES = [
    "resnet50",
    "gpt2",
    "unet3d:image=32",
    "mixtral-8x7b",
    "deepseek-v3",
    "lenet",
    "inception-v3",
    "lstm",
    "t5-small",
]


@pytest.mark.parametrize("model", PAGES)
def test_a_page_fits_eighty_columns(foretell: Any, model: str) -> None:
    ran = foretell("analyze", model)
    assert ran.code == 0
    assert max(len(line) for line in ran.out.splitlines()) <= 80


@pytest.mark.parametrize("by", ["kind", "block", "operator"])
def test_csv_can_be_read_back(foretell: Any, by: str) -> None:
    rows = list(csv.DictReader(io.StringIO(foretell("analyze", "vgg16", "--csv", "--by", by).out)))
    assert sum(int(row["parameters"]) for row in rows) == 138_357_544


def test_a_graph_can_be_kept_and_read_again(foretell: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "graph.json")
    first = foretell("analyze", "gpt2:layers=2", "--json", "--graph", file).out
    assert json.loads(foretell("analyze", file, "--json").out) == json.loads(first)
    assert foretell("analyze", file, "--batch", "7").code == 2


def test_list_models(foretell: Any) -> None:
    ran = foretell("list", "models")
    assert "resnet50" in ran.out
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    assert "resnet50" in json.loads(foretell("list", "models", "--json").out)["models"]["resnet"]


BAD = {
    ("analyze", "resnet5"): "resnet50",
    ("analyze", "no-such-thing"): "foretell list models",
    ("analyze", ""): "foretell list models",
    ("analyze", "vgg16:imge=64"): "image",
    ("analyze", "vgg16:image"): "field=value",
    ("analyze", "vgg16:image=large"): "image",
    ("analyze", "vgg16:image=-1"): "image",
    ("analyze", "vgg16:image=1"): "larger image",
    ("analyze", "vgg16:image=99999999999"): "image",
    ("analyze", "vgg16:image=64,image=32"): "twice",
    ("analyze", "vgg16:dtype=int3"): "bf16",
    ("analyze", "vgg16", "--batch", "0"): "batch",
    ("analyze", "vgg16", "--batch", "-3"): "batch",
    ("analyze", "vgg16", "--batch", "many"): "many",
    ("analyze", "vgg16", "--seq", "128"): "seq",
    ("analyze", "nowhere/config.json"): "no such file",
    ("analyze", "nowhere.net"): "no such file",
    ("analyze", "nowhere.py:model"): "nowhere.py",
    ("analyze", "no.such.package:model"): "no.such.package",
    ("analyse", "vgg16"): "analyze",
    ("analyze",): "MODEL",
    ("analyze", "vgg16", "--jsn"): "--json",
    ("analyze", "gpt2:heads=7"): "heads",
    ("analyze", "llama3-8b:kv_heads=5"): "heads",
    ("list", "planets"): "models",
    ("list", "device"): "devices",
    ("list", "device", "links"): "links",
    ("program", "mlp", "--plan", "dp1", "--trainer", ""): "megatron-core",
    ("program", "mlp", "--plan", "dp1", "--trainer", " "): "torchtitan",
    (
        "program",
        "mlp",
        "--plan",
        "dp1",
        "--optimizer",
        "",
    ): "adafactor, adagrad, adam, adamw, adamw16bit",
    ("program", "mlp", "--plan", "dp1000000 tp1000000", "--batch", "8"): "dp1000000 tp1000000 are 1,000,000,000,000",
    ("analyze", "tests"): "tests is a folder without a config.json",
    ("analyze", "Makefile"): "Makefile is a file, but not one that holds a model",
}


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_gets_a_message(foretell: Any, arguments: tuple[str, ...]) -> None:
    ran = foretell(*arguments)
    assert ran.code == 2
    assert BAD[arguments] in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""
    assert max(len(line) for line in ran.err.splitlines()) <= 80


MISTYPED: dict[tuple[str, ...], str] = {
    ("predict", "--seq", "4k"): "--seq 4096",
    ("predict", "--seq", "two"): "digits alone: --seq 8",
    ("predict", "--carbon", "380g"): "--carbon 380",
    ("run", "--steps", "2k"): "--steps 2000",
    ("plan", "--by", "enrgy"): "--by energy",
    ("plan", "--by", "zzz"): "one of time, money, memory, gpus, energy",
}


@pytest.mark.parametrize("arguments", MISTYPED, ids=" ".join)
def test_a_mistyped_value_has_a_way_out(foretell: Any, arguments: tuple[str, ...]) -> None:
    ran = foretell(arguments[0], "lenet", *arguments[1:], "--json")
    assert ran.code == 2
    problem = json.loads(ran.out)["error"]
    assert problem["where"] == arguments[1]
    assert arguments[2] in problem["what"]
    assert problem["fix"] == MISTYPED[arguments]


def test_long_messages_are_folded_and_carets_stay(foretell: Any) -> None:
    plan = "pp4:1f1b dp8:zero3,ep4 tp8:sp,sp +recompute:block +bf16 +m16 +compress:powersgd4 +offload:optimizer"
    ran = foretell("program", "mlp", "--plan", plan)
    lines = ran.err.splitlines()
    assert lines[1:3] == [f"    {plan}", f"    {'^':>31} expected another option, or the end"]
    ran = foretell("program", "mlp", "--plan", "dp8 +foo")
    lines = ran.err.splitlines()
    assert lines[1] == "    dp8 +foo"
    assert lines[2].startswith("         ^ expected one of ")
    assert lines[3].startswith(" " * 11) and lines[3][11] != " "
    assert max(map(len, lines)) <= 80


def test_a_label_keeps_its_indent() -> None:
    text = f"foretell: {'what is wrong ' * 9}\n  where  here\n  try    {'a, ' * 50}\n         next line"
    lines = folded_lines(text).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("  what") or lines[1].startswith("  is") or lines[1].startswith("  wrong")
    start = next(at for at, line in enumerate(lines) if line.startswith("  try"))
    assert all(line.startswith(" " * 9) for line in lines[start + 1 :])
    assert lines[-1] == "         next line"
    assert " ".join(folded_lines(text).split()) == " ".join(text.split())


def test_a_full_disk_is_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    for arguments in (["list", "models"], ["--help"]):
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-m", "foretell", *arguments]
            ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert ran.returncode == 2
        assert ran.stderr == "foretell: cannot write the answer: No space left on device\n"


INTERRUPTED = """
import builtins, sys
sys.argv = ["foretell", "list", "strategies"]
from foretell.cli import main
real = builtins.__import__
def stopped(name, *rest, **more):
    if name == {name!r}:
        raise KeyboardInterrupt
    return real(name, *rest, **more)
builtins.__import__ = stopped
main()
"""


@pytest.mark.parametrize("name", ["click", "foretell.plan"])
def test_an_interrupt_during_imports_is_one_line(name: str) -> None:
    code = INTERRUPTED.format(name=name)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 130
    assert ran.stderr.strip() == "foretell: interrupted"


@pytest.mark.parametrize("what", ["strategies", "policies"])
def test_strategies_and_policies_are_listed_with_their_options(foretell: Any, what: str) -> None:
    ran = foretell("list", what)
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    answer = json.loads(foretell("list", what, "--json").out)[what]
    for kind in (strategies() if what == "strategies" else policies()).values():
        forms = [form for option in kind.syntax for form in option.forms]
        assert answer[kind.example] == {"summary": kind.summary, "options": forms}
        page = " ".join(ran.out.split())
        assert f"{kind.example} {kind.summary}" in page
        assert not forms or f"options: {', '.join(forms)}" in page


BROKEN = [
    b"",
    b"{",
    b"[]",
    b"\xff\xfe",
    b'{"model_type": "llama"',
    b'{"blocks": 3}',
    b"\x7fELF\0\0",
    b'{"blocks": [], "name": 1}',
    b"null",
]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_gets_a_message(foretell: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    ran = foretell("analyze", str(path))
    assert ran.code == 2
    assert str(path) in ran.err
    assert "Traceback" not in ran.err


def test_an_empty_folder_gets_a_message(foretell: Any, tmp_path: Path) -> None:
    ran = foretell("analyze", str(tmp_path))
    assert ran.code == 2
    assert "config.json" in ran.err


def test_where_the_graph_cannot_be_written(foretell: Any, tmp_path: Path) -> None:
    ran = foretell("analyze", "lenet", "--graph", str(tmp_path / "no" / "such" / "folder.json"))
    assert ran.code == 2
    assert "cannot write" in ran.err


RUN = """
import sys
sys.argv = ["foretell", *{arguments}]
from foretell.cli import main
try:
    main()
except SystemExit:
    pass
heavy = {heavy} & set(sys.modules)
sys.exit(str(heavy) if heavy else 0)
"""


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [(["--help"], {"torch", "numpy", "msgspec"}), (["analyze", "lenet"], {"torch"}), (["list", "models"], {"torch"})],
)
def test_what_is_not_needed_is_not_imported(arguments: list[str], heavy: set[str]) -> None:
    code = RUN.format(arguments=arguments, heavy=heavy)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def test_a_list_that_ends_says_how_many_more_there_are() -> None:
    assert first_of(["a", "b"], 2) == "a, b"
    assert first_of(["a", "b", "c"], 2) == "a, b, c"
    assert first_of(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    names = [f"name{at}" for at in range(20)]
    assert unknown("kind", "zzz", names).fix.endswith(" and 8 more")
