"""What `import foretell` gives: the same answers as the command, from texts or from values."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

import foretell
from foretell import arguments
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.oracle.training import Conditions
from foretell.plan.text import parse

LLAMA = "llama:layers=2,hidden=256,heads=8,kv_heads=8,ffn=512,vocab=512,seq=64"
PLAN = "dp2:zero3 +m2 +bf16"


def _command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    from foretell.cli import main

    monkeypatch.setattr(sys, "argv", ["foretell", *arguments, "--json"])
    main()
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_predict_is_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = _command(monkeypatch, capsys, "predict", LLAMA, "--on", "2xa100", "--plan", PLAN, "--batch", "8")
    found = foretell.predict(LLAMA, "2xa100", PLAN, batch=8)
    assert said["step_seconds"] == found.step_seconds
    assert said["memory_bytes"] == found.memory_bytes


def test_program_is_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = _command(monkeypatch, capsys, "program", LLAMA, "--plan", PLAN, "--batch", "8")
    found = foretell.program(LLAMA, PLAN, 8)
    assert (said["plan"], said["ranks"], said["batch"]) == (found.plan, found.ranks, found.batch)


def test_fit_is_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = _command(monkeypatch, capsys, "fit", LLAMA, "--on", "2xa100", "--batch", "8")
    found = foretell.fit(LLAMA, "2xa100", batch=8)
    assert (said["plan"], said["micro_batch"]) == (found.plan, found.micro_batch)


def test_a_whole_run_from_python_is_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--tokens", "1e9", "--price", "2", "--storage", "1 GB/s", "--device-mtbf", "1000h", "--input-rate", "9")
    asked = (LLAMA, "--on", "2xa100", "--plan", PLAN, "--batch", "8", *options)
    conditions = Conditions(storage=1e9, device_mtbf=1000 * 3600.0, input_rate=9.0)
    found = foretell.predict(LLAMA, "2xa100", PLAN, batch=8, tokens=1e9, price=2.0, conditions=conditions)
    said = _command(monkeypatch, capsys, "predict", *asked)
    assert said["training"] == msgspec.to_builtins(found.training)
    assert said["step_seconds"] == found.step_seconds
    fitted = foretell.fit(LLAMA, "2xa100", PLAN, batch=8, tokens=1e9, price=2.0, conditions=conditions)
    assert _command(monkeypatch, capsys, "fit", *asked)["training"] == msgspec.to_builtins(fitted.prediction.training)
    assert fitted.prediction.training == found.training


def test_values_do_as_well_as_texts() -> None:
    text = foretell.predict(LLAMA, "2xa100", PLAN, batch=8)
    assert foretell.predict(LLAMA, cluster("2xa100"), parse(PLAN), batch=8) == text
    graph = foretell.load(f"{LLAMA},dtype=bf16", batch=4)  # of one micro-batch
    of_graph = foretell.predict(graph, "2xa100", PLAN)
    assert (of_graph.batch, of_graph.step_seconds) == (8, text.step_seconds)
    assert foretell.predict(graph, "2xa100", PLAN, batch=8) == of_graph
    assert foretell.program(graph, PLAN).batch == 8
    assert foretell.predict(LLAMA, "2xa100", PLAN, batch_per_rank=4) == text


def test_a_path_is_a_model(tmp_path: Path) -> None:
    config = Path(__file__).parents[1] / "data" / "hf" / "gpt2"
    asked = {"plan": "dp1 +bf16", "batch": 1, "seq": 128}
    found = foretell.predict(config, "h100", **asked)
    assert found == foretell.predict(str(config), "h100", **asked)


def test_a_graph_is_fitted_as_it_is() -> None:
    graph = foretell.load(LLAMA, batch=8)
    found = foretell.fit(graph, "2xa100")
    assert (found.micro_batch, found.limit) == (4, "model")
    assert any("no other size" in note for note in found.notes)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: foretell.predict(LLAMA, "2xa100", "dp4", batch=8),
        lambda: foretell.predict(LLAMA, cluster("2xa100"), "dp4", batch=8),
        lambda: foretell.predict(LLAMA, "2xa100", "dp2", batch=7),
        lambda: foretell.predict(LLAMA, "2xa100", "dq2", batch=8),
        lambda: foretell.predict(LLAMA, "2xa100", "dp2", batch=8, trainer="nobody"),
        lambda: foretell.predict(foretell.load(LLAMA, batch=8), "2xa100", "dp2", batch=16),
        lambda: foretell.predict(foretell.load(LLAMA, batch=8), "2xa100", "dp2", seq=32),
        lambda: foretell.predict(foretell.load(LLAMA, batch=7), "2xa100", "dp2"),
        lambda: foretell.program(LLAMA, "dp2", 8, batch_per_rank=4),
        lambda: foretell.fit(LLAMA, "2xa100", "dp4"),
        lambda: foretell.fit(LLAMA, "nowhere"),
        lambda: foretell.predict(LLAMA, "2xa100", "dp2", batch=8, tokens=-1.0),
        lambda: foretell.predict(LLAMA, "2xa100", "dp2", batch=8, epochs=3.0),
        lambda: foretell.predict(LLAMA, "2xa100", "dp2", batch=8, tokens=1e9, epochs=0.0),
        lambda: foretell.predict(LLAMA, "2xa100", "dp2", batch=8, tokens=1e9, price=-1.0),
        lambda: foretell.predict(LLAMA, "2xa100", "dp2", batch=8, price=1.0, conditions=Conditions(price=2.0)),
    ],
)
def test_what_is_wrong_is_said(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(BadInput):
        ask()


def test_names_stay_when_packages_of_the_walk_are_imported() -> None:
    for package in ("program.lower", "oracle.predict", "oracle.fit", "timeline.engine", "cli.main"):
        importlib.import_module(f"foretell.{package}")
    assert all(callable(getattr(foretell, name)) for name in foretell.__all__ if name != "__version__")


def test_importing_it_imports_nothing_else() -> None:
    ours = "[name for name in sys.modules if name.split('.')[0] in ('foretell', 'click', 'torch')]"
    code = f"import foretell, sys; print(*sorted({ours}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["foretell", "foretell.version"]


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import foretell.plan.text",
        "from foretell.plan.plan import Plan",
        "import foretell.program.expand, foretell.oracle.predict, foretell.cli.command",
        "from foretell import plan, program; assert callable(plan) and callable(program)",
        "from foretell import *; assert callable(plan) and callable(program)",
    ],
)
def test_plan_is_a_verb_and_a_package_whatever_was_imported_first(before: str) -> None:
    code = f"""
import inspect, foretell
{before}
assert foretell.plan("lenet", on="2xh100", batch=8, only="dp").best.plan
from foretell.plan.plan import Plan
import foretell.plan.text
assert foretell.plan("lenet", on="2xh100", batch=8, only="dp").evaluated
assert foretell.program("lenet", "dp2", 8).ranks == 2
assert foretell.plan.text.parse("dp8").ranks == 8
assert list(inspect.signature(foretell.plan).parameters)[:3] == ["model", "on", "batch"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_of_before_work_and_say_what_they_are_called_now() -> None:
    now = foretell.plan(LLAMA, on="2xa100", batch=8, only="dp").best
    with pytest.warns(DeprecationWarning, match=r"foretell\.plan"):
        search = foretell.search
    with pytest.warns(DeprecationWarning, match="on"):
        assert search(LLAMA, cluster="2xa100", batch=8, only="dp").best == now
    with pytest.warns(DeprecationWarning, match=r"foretell\.program"):
        assert foretell.lower(LLAMA, PLAN, 8) == foretell.program(LLAMA, PLAN, 8)
    with pytest.raises(TypeError, match="cluster"):
        foretell.plan(LLAMA, on="2xa100", cluster="2xa100", batch=8)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="nothing"):
        foretell.nothing  # type: ignore[attr-defined]  # noqa: B018


WRONG = [
    ("plan", ("gpt2", None, 8), {}, "on"),
    ("plan", ("gpt2", "8xh100", "8"), {}, "batch"),
    ("plan", ("gpt2", "8xh100", True), {}, "batch"),
    ("plan", ("gpt2", "8xh100", 8), {"only": 3}, "only"),
    ("plan", ("gpt2", "8xh100", 8), {"only": ["dp", 3]}, "only"),
    ("plan", ("gpt2", "8xh100", 8), {"fix": None}, "fix"),
    ("plan", ("gpt2", "8xh100", 8), {"max_memory": []}, "max_memory"),
    ("plan", ("gpt2", "8xh100", 8), {"top": 2.5}, "top"),
    ("plan", ("gpt2", "8xh100", 8), {"precision": 16}, "precision"),
    ("plan", ("gpt2", "8xh100", 8), {"calibration": 3}, "calibration"),
    ("predict", ("gpt2", "8xh100", None, 8), {}, "plan"),
    ("predict", ("gpt2", "8xh100", "dp8", 8), {"tokens": "many"}, "tokens"),
    ("predict", ("gpt2", "8xh100", "dp8", 8), {"anchor": "run.json"}, "anchor"),
    ("predict", ("gpt2", "8xh100", "dp8", 8), {"conditions": {"price": 2}}, "conditions"),
    ("why", ("gpt2", "8xh100", ["dp8"], 8), {}, "plan"),
    ("diff", ("gpt2", "8xh100", "dp8", 3, 8), {}, "plan2"),
    ("scale", ("gpt2", "8xh100", 8, 8), {}, "gpus"),
    ("scale", ("gpt2", "8xh100", "1..8", 8), {}, "gpus"),
    ("whatif", ("gpt2", "8xh100"), {"again": "yes"}, "again"),
    ("sweep", (None, "8xh100", 8), {}, "model"),
    ("sweep", ("gpt2", "8xh100", 8.5), {}, "batch"),
    ("fit", (8, "8xh100"), {}, "model"),
    ("choose_batch", ("gpt2", "8xh100", None), {}, "noise_scale"),
    ("load", (8,), {}, "model"),
    ("program", ("gpt2", None), {}, "plan"),
    ("run", ("mlp", "dp1"), {"steps": "ten"}, "steps"),
]


@pytest.mark.parametrize(("name", "given", "named", "argument"), WRONG)
def test_the_argument_that_is_wrong_is_named(
    name: str, given: tuple[Any, ...], named: dict[str, Any], argument: str
) -> None:
    with pytest.raises(BadInput) as told:
        getattr(foretell, name)(*given, **named)
    assert told.value.where == argument and argument in told.value.what and told.value.fix


def test_every_argument_can_be_read() -> None:
    """Each annotation of each function is one that the check knows, and has something that would work."""
    for name in foretell.__all__:
        function = inspect.unwrap(getattr(foretell, name)) if name != "__version__" else name
        for argument, annotation in getattr(function, "__annotations__", {}).items():
            if argument != "return":
                assert arguments.knows(annotation), (name, argument, annotation)
                assert argument in arguments.EXAMPLES or annotation in arguments.WORDS or annotation == "Any"


def test_numbers_of_numpy_are_numbers() -> None:
    plain = foretell.predict(LLAMA, "2xa100", "dp2", 8, tokens=1e9)
    assert foretell.predict(LLAMA, "2xa100", "dp2", numpy.int64(8), tokens=numpy.float32(1e9)) == plain
    with pytest.raises(TypeError, match="onli"):
        foretell.plan(LLAMA, "2xa100", 8, onli=["dp"])  # type: ignore[call-arg]
