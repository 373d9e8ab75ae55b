"""check, doctor, completion, and the accuracy line."""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foretell.cli.parts import LONGEST, bar, largest_first, parts_table
from foretell.cli.table import folded, table
from foretell.cli.verbs.doctor import PACKAGES
from foretell.cost.samples import Calibration, MeasuredMachine, StepSample, sample
from foretell.oracle import similar
from foretell.oracle.similar import SimilarRuns, accuracy
from foretell.records import store
from foretell.records.record import record

QUESTION = ("gpt2", "--on", "8xh100", "--plan", "dp8 +bf16", "--batch", "8")


def kept(foretell: Any, folder: Path) -> Path:
    file = folder / "step.json"
    assert foretell("predict", *QUESTION, "--keep", str(file)).code == 0
    return file


def test_what_holds(foretell: Any, tmp_path: Path) -> None:
    file = kept(foretell, tmp_path)
    ran = foretell("check", str(file), "--json")
    answer = json.loads(ran.out)
    assert ran.code == 0
    assert not answer["regressed"]
    assert answer["checks"][0]["step_seconds"] == answer["checks"][0]["kept_seconds"]
    assert "holds" in foretell("check", str(file)).out


def test_answers_are_kept_with_the_calibration_that_nobody_named(
    foretell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept(foretell, tmp_path)
    records = tmp_path / "records"
    records.mkdir()
    machine = MeasuredMachine(device="h100", title="h100", kind="cuda", count=8, memory_bytes=1)
    slow = sample("launches", StepSample(model="mlp", batch=1, launches=100.0), [1.0])
    content = Calibration(machine=machine, samples=(slow,), complete=True, date="2026-11-15T12:00:00")
    store.save(records / "calibration-h100.json", record("calibration", msgspec.to_builtins(content)))
    monkeypatch.setenv("FORETELL_RECORDS", str(records))
    assert foretell("check", str(before)).code == 0  # there was none, so that of here does not count
    (tmp_path / "here").mkdir()
    here = kept(foretell, tmp_path / "here")
    assert foretell("check", str(here)).code == 0
    monkeypatch.setenv("FORETELL_RECORDS", str(tmp_path / "nothing"))
    there = foretell("check", str(here))
    assert there.code == 1
    assert "and none is kept here" in there.out


def test_what_became_worse(foretell: Any, tmp_path: Path) -> None:
    from foretell.cli.kept import digest  # pyright: ignore[reportPrivateUsage]

    file = kept(foretell, tmp_path)
    record = json.loads(file.read_text())
    content = record["content"]
    content["answer"] |= {"step_seconds": content["answer"]["step_seconds"] * 0.9}
    content["hash"] = digest(content["question"], content["answer"])
    file.write_text(json.dumps(record))
    ran = foretell("check", str(file), "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["checks"][0]["regressed"] == ["step"]
    assert foretell("check", str(file), "--tolerance", "20").code == 0


def test_a_record_that_was_changed_by_hand(foretell: Any, tmp_path: Path) -> None:
    file = kept(foretell, tmp_path)
    file.write_text(file.read_text().replace('"fits": true', '"fits": false'))
    ran = foretell("check", str(file))
    assert ran.code == 2
    assert "hash" in ran.err


def test_a_question_that_is_refused_now(foretell: Any, tmp_path: Path) -> None:
    from foretell.cli.kept import digest  # pyright: ignore[reportPrivateUsage]

    file = kept(foretell, tmp_path)
    record = json.loads(file.read_text())
    content = record["content"]
    content["question"]["batch"] = 7
    content["hash"] = digest(content["question"], content["answer"])
    file.write_text(json.dumps(record))
    ran = foretell("check", str(file), "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["checks"][0]["regressed"] == ["refused"]


@pytest.mark.parametrize("arguments", [(), ("nowhere.json",), ("x", "--tolerance", "-1")])
def test_checks_of_nothing(foretell: Any, arguments: tuple[str, ...]) -> None:
    assert foretell("check", *arguments).code == 2


def test_doctor_knows_every_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {extra for _, extra, _ in PACKAGES if extra} == set(project["optional-dependencies"]) - {"dev"}


@pytest.mark.parametrize(("parts", "longest"), [({"a": 3.0, "b": 1.0, "speck": 0.0}, "a"), ({"only": 2.0}, "only")])
def test_bars_are_as_long_as_shares(parts: dict[str, float], longest: str) -> None:
    text = parts_table("it is spent on", largest_first(parts), sum(parts.values()), str)
    drawn = {line.split()[0]: sum(line.count(mark) for mark in "█#") for line in text.splitlines()[2:]}
    assert drawn[longest] == LONGEST
    assert all(abs(drawn[name] - LONGEST * part / parts[longest]) <= 1 for name, part in parts.items())


def test_bars_where_a_terminal_has_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert bar(3.2) == "###"


def test_doctor_tells_what_is_there_and_how_to_get_the_rest(foretell: Any) -> None:
    answer = json.loads(foretell("doctor", "--json").out)
    found = {one["name"]: one for one in answer["findings"]}
    assert found["numpy"]["found"]
    assert all(one["get"] for one in found.values() if not one["found"])
    page = foretell("doctor").out
    assert "numpy" in page
    assert max(map(len, page.splitlines())) < 100


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(foretell: Any, shell: str) -> None:
    assert "_FORETELL_COMPLETE" in foretell("completion", shell).out
    assert foretell("completion", "tcsh").code == 2


# --- accuracy


@pytest.fixture
def forgetful() -> Iterator[None]:
    """What was counted of the runs that ship is counted anew."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    similar.runs_of.cache_clear()
    similar.most_alike.cache_clear()


def test_the_most_similar_runs_are_told(monkeypatch: pytest.MonkeyPatch, forgetful: None) -> None:
    def group(source: str, trainer: str, device: str, extent: str, error: float, runs: int = 6) -> SimilarRuns:
        return SimilarRuns(source=source, trainer=trainer, device=device, work="transformers", extent=extent,
                     errors=(error,) * runs)  # fmt: skip

    known = (
        group("a", "nanotron", "h100", "several nodes", 0.05),
        group("b", "nanotron", "h100", "one node", 0.10, runs=2),
        group("c", "fsdp", "h100", "one node", 0.20),
        group("d", "fsdp", "v100", "one node", 0.40),
    )
    monkeypatch.setattr(similar, "groups", lambda: known)
    exact = accuracy("h100", "nanotron", 64, ("always", "ranks", "nodes"))
    assert exact is not None
    assert (exact.runs, exact.median_error, exact.study) == (6, 0.05, "a")
    few = accuracy("h100", "nanotron", 8, ("always", "ranks"))  # two runs on one node tell too little
    assert few is not None
    assert (few.runs, few.alike) == (8, ("transformers", "nanotron", "h100"))
    other = accuracy("b200", "deepspeed", 8, ("always", "ranks"))
    assert other is not None
    assert (other.runs, other.trainer_runs, other.of_the_trainer) == (20, 0, False)
    assert str(other).startswith("no measured run of deepspeed (transformers); ")
    elsewhere = accuracy("b200", "fsdp", 8, ("always", "ranks"))  # its own runs, before those of others on the device
    assert elsewhere is not None
    assert (elsewhere.runs, elsewhere.alike, elsewhere.study_name) == (12, ("transformers", "fsdp"), "c")
    assert accuracy("h100", "fsdp", 8, ("always", "convolutions")) is None


def test_the_line_is_on_answers(foretell: Any) -> None:
    assert "median error of" in " ".join(foretell("predict", *QUESTION).out.split())
    answer = json.loads(foretell("predict", *QUESTION, "--json").out)
    assert answer["accuracy"]["runs"] >= 5
    assert 0 < answer["accuracy"]["median_error"] < 1


def test_what_ships_was_learnt_from_many_runs() -> None:
    assert sum(len(one.errors) for one in similar.groups()) > 2000
    assert len({one.source for one in similar.groups()}) > 20


def test_words_of_files_are_shown_and_not_obeyed(tmp_path: Path, foretell: Any) -> None:
    """A title that is set, a screen that is cleared, a line that looks like ours."""
    file = tmp_path / "anchor.json"
    hostile = "\x1b[31mevil.py:build\n  try    all good\x1b]0;title\x07"
    file.write_text(
        json.dumps({"model": hostile, "plan": "dp1", "cluster": "1xh100", "batch": 32, "step_seconds": 0.02})
    )
    asked = ("predict", "resnet50", "--on", "1xh100", "--plan", "dp1", "--batch", "32", "--anchor", str(file))
    ran = foretell(*asked)
    assert ran.code == 2 and "\x1b" not in ran.err and "\x07" not in ran.err
    assert not any(line.strip().startswith("try    all good") for line in ran.err.splitlines())
    assert table(["a"], [["x\x1b[2Jy\nz"]]).splitlines()[-1] == "x\\x1b[2Jy\\nz"
    assert folded("a\x1b]0;b\x07c") == "a\\x1b]0;b\\x07c"


@pytest.mark.parametrize("more", [("--validate-every", "2"), ("--noise-every", "2"), ("--checkpoint", "kept")])
def test_a_run_of_forward_passes_learns_nothing(foretell: Any, more: tuple[str, str]) -> None:
    found = foretell("run", "lenet", "--plan", "dp2", "--forward", *more)
    assert found.code == 2
    assert f"{more[0]}, and nothing is trained" in found.err
