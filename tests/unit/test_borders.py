"""Files that once ended in a traceback: each is a message with the place now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).parents[1] / "fuzz" / "samples"
TINY = "gpt:layers=2,hidden=64,heads=4,vocab=256,seq=32"
ON = ("predict", TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "8")


def _spoiled(folder: Path, name: str, *place: Any, value: Any) -> str:
    content = json.loads((SAMPLES / name).read_text())
    target = content
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    file = folder / name
    file.write_text(json.dumps(content))
    return str(file)


@pytest.mark.parametrize("figure", ["[memory]\nreserved = 0", "[gradients]\nrate = 0", "[host]\nsharpness = 1e-9"])
def test_a_trainer_whose_figures_are_divided_by(foretell: Any, tmp_path: Path, figure: str) -> None:
    file = tmp_path / "ours.toml"
    file.write_text(f'summary = "ours"\nbased_on = "pytorch"\n{figure}\n')
    ran = foretell(*ON, "--trainer", str(file))
    assert ran.code == 2
    assert "cannot be used" in ran.err and "ours.toml," in ran.err


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("values",), [], "length >= 1"),
        (("values",), [0.0, 1.0], "a value of 0.0"),
        (("p50",), -1.0, "a value of -1.0"),
        (("about",), {"type": "figure", "name": "call", "ranks": "x"}, "ranks"),
    ],
)
def test_a_calibration_with_samples_that_no_machine_gives(
    foretell: Any, tmp_path: Path, place: tuple[str, ...], value: Any, said: str
) -> None:
    file = _spoiled(tmp_path, "calibration.json", "content", "samples", 0, *place, value=value)
    ran = foretell("predict", TINY, "--on", "this-machine", "--plan", "dp1", "--batch", "8", "--calibration", file)
    assert ran.code == 2
    assert said in " ".join(ran.err.split())


@pytest.mark.parametrize("name", ["step_seconds", "memory_bytes", "ranks"])
def test_a_run_of_nothing(foretell: Any, tmp_path: Path, name: str) -> None:
    file = _spoiled(tmp_path, "run.json", "content", "measurement", name, value=0)
    ran = foretell("compare", file)
    assert ran.code == 2
    assert f"{name} is 0" in ran.err
    assert foretell("results", "show", file).code == 0


@pytest.mark.parametrize(
    "event", [7, {"ph": "X", "cat": "kernel", "ts": "soon"}, {"ph": "X", "cat": "kernel", "dur": -1}]
)
def test_a_trace_with_events_of_another_kind(foretell: Any, tmp_path: Path, event: Any) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": [event]}))
    ran = foretell(*ON, "--anchor", str(file))
    assert ran.code == 2
    assert "$.traceEvents[0]" in ran.err
