"""One bad file in a folder of records stays one bad file, and one that a person names is refused."""

from __future__ import annotations

import json
import os
import platform
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foretell.cost.samples import Calibration, Kernel, MeasuredMachine, Sample, sample
from foretell.errors import BadInput
from foretell.files import LARGEST
from foretell.hardware import catalog
from foretell.hardware.this_machine import processor
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.matmul import Matmul
from foretell.oracle.calibrations import chosen
from foretell.records import store
from foretell.records.record import SCHEMA, record

TINY = "gpt:layers=2,hidden=64,heads=4,vocab=512,seq=64"
WHERE = ("--on", "4xh200")
ASKED: dict[str, tuple[str, ...]] = {
    "predict": (TINY, *WHERE, "--plan", "dp4 +bf16", "--batch", "8"),
    "plan": (TINY, *WHERE, "--batch", "8", "--only", "dp"),
    "fit": (TINY, *WHERE, "--plan", "dp4 +bf16"),
    "scale": (TINY, *WHERE, "--gpus", "2,4", "--batch", "8", "--only", "dp"),
    "sweep": ("--model", TINY, *WHERE, "--batch", "8", "--only", "dp", "--jobs", "1"),
    "why": (TINY, *WHERE, "--plan", "dp4 +bf16", "--batch", "8", "--only", "dp"),
    "results": (),
}
"""Verbs that read what is kept, without being told to."""


def _matmul(seconds: float, size: int = 512) -> Sample:
    about = Kernel(
        operator=msgspec.to_builtins(Matmul()),
        sizes={"batch": 1, "row": size, "in": size, "out": size},
        widths={"x": 2, "w": 2, "y": 2},
        parts=("forward",),
        precision="bf16",
    )
    return sample("matmul", about, [seconds])


def _content(**changes: Any) -> dict[str, Any]:
    machine = MeasuredMachine(
        device=changes.pop("device", "h200"),
        title=changes.pop("title", "h200"),
        kind=changes.pop("kind", "cuda"),
        count=4,
        memory_bytes=1,
        host=changes.pop("host", platform.node()),
    )
    samples = changes.pop("samples", (_matmul(5e-5),))
    about: dict[str, Any] = {"complete": True, "date": "2026-01-01T12:00:00", **changes}
    return msgspec.to_builtins(Calibration(machine=machine, samples=samples, **about))


def _kept(folder: Path, **changes: Any) -> Path:
    return store.write(folder, record("calibration", _content(**changes)))


def _truncated(folder: Path) -> None:
    path = folder / "calibration-cut.json"
    path.write_bytes(_kept(folder / "other").read_bytes()[:-40])


def _newer(folder: Path) -> None:
    made = json.loads(_kept(folder / "other").read_text())
    (folder / "calibration-newer.json").write_text(json.dumps({**made, "schema": SCHEMA + 1}))


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "calibration-pipe.json")


def _huge(folder: Path) -> None:
    with (folder / "calibration-huge.json").open("wb") as file:
        file.truncate(LARGEST + 1)  # sparse: it takes no room


def _folder(folder: Path) -> None:
    (folder / "calibration-folder.json").mkdir()


def _link(folder: Path) -> None:
    (folder / "calibration-gone.json").symlink_to(folder / "not there")


def _bytes(folder: Path) -> None:
    (folder / "calibration-bytes.json").write_bytes(b'{"schema": 1, "kind": "\xff\xfe"}')


def _other(folder: Path) -> None:
    made = record("calibration", {"machine": "none", "samples": 7})
    (folder / "calibration-other.json").write_bytes(store.write(folder / "other", made).read_bytes())


BAD: dict[str, Callable[[Path], None]] = {
    "cut": _truncated,
    "newer": _newer,
    "pipe": _fifo,
    "huge": _huge,
    "folder": _folder,
    "gone": _link,
    "bytes": _bytes,
    "other": _other,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "records"
    made.mkdir()
    monkeypatch.setenv("FORETELL_RECORDS", str(made))
    return made


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_calibration_is_left_out_with_a_line(folder: Path, bad: str) -> None:
    BAD[bad](folder)
    good = _kept(folder)
    found = chosen(catalog.cluster("4xh200"))
    assert found.path == good
    (line,) = (note for note in found.notes if "left out" in note)
    assert f"calibration-{bad}.json" in line and "\n" not in line
    assert str(folder) not in line, "people who ask the page are not told where its files are"


@pytest.mark.parametrize("verb", ASKED)
def test_verbs_go_on_with_all_the_bad_files_at_once(
    foretell: Callable[..., Any], folder: Path, tmp_path: Path, verb: str
) -> None:
    _kept(folder)
    before = foretell(verb, *ASKED[verb])
    assert before.code == 0, before.err
    for make in BAD.values():
        make(folder)
    after = foretell(verb, *ASKED[verb])
    assert after.code == before.code, after.err
    if verb not in ("plan", "scale", "results", "why"):  # a search says how long it took
        assert after.out == before.out
    answer = json.loads(foretell(verb, *ASKED[verb], "--json").out)
    for bad in BAD:
        if (verb, bad) != ("results", "other"):  # a record that is no calibration is a record
            assert f"calibration-{bad}.json" in after.err, bad
            said = answer["unreadable"] if verb == "results" else answer["notes"]
            assert any(f"calibration-{bad}.json" in one for one in said), bad


def test_the_page_goes_on_too(folder: Path) -> None:
    from foretell.serve.calls.predict import answer
    from foretell.serve.question import Question

    asked = Question(model=TINY, cluster=WHERE[1], batch=8, plan="dp4 +bf16")
    _kept(folder)
    before = answer(asked)
    for make in BAD.values():
        make(folder)
    after = answer(asked)
    assert after.step_seconds == before.step_seconds
    assert all(any(f"calibration-{bad}.json" in note for note in after.notes) for bad in BAD)


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_that_is_named_is_refused(foretell: Callable[..., Any], folder: Path, bad: str) -> None:
    BAD[bad](folder)
    file = str(folder / f"calibration-{bad}.json")
    for option in ("--calibration", "--profile", "--anchor"):
        ran = foretell("predict", *ASKED["predict"], option, file)
        assert ran.code == 2, (option, ran)
        assert ran.out == "" and f"calibration-{bad}.json" in ran.err.replace("\n", "").replace(" ", ""), (option, ran)


def test_bad_answers_of_a_sweep_are_left_out(foretell: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "answers"
    asked = ("sweep", *ASKED["sweep"], "--out", str(out), "--json")
    assert json.loads(foretell(*asked).out)["answered"] == 1
    _fifo(out)
    (out / "answer-1-000000000000.json").write_text("{")
    again = json.loads(foretell(*asked).out)
    assert (again["kept"], again["answered"], len(again["notes"])) == (1, 0, 2)


# calibrations stand beside each other


H200 = "4xh200"
BETTER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"quick": True, "date": "2026-06-01T12:00:00"}),
    ({}, {"complete": False, "date": "2026-06-01T12:00:00"}),
    ({"date": "2026-02-01T12:00:00"}, {}),
    ({"samples": (_matmul(5e-5), sample("launch", _matmul(1.0).about, [1.0]))}, {"date": "2026-06-01T12:00:00"}),
    ({}, {"host": "elsewhere", "date": "2026-06-01T12:00:00"}),
    ({"host": ""}, {"host": "elsewhere", "date": "2026-06-01T12:00:00"}),
    ({"host": "elsewhere"}, {"quick": True, "date": "2026-06-01T12:00:00"}),
    ({}, {"date": "2999-01-01T12:00:00"}),
]
"""What is taken, and what is not."""


@pytest.mark.parametrize(("better", "worse"), BETTER)
def test_the_whole_one_is_taken_then_that_of_this_host_then_the_newest(
    folder: Path, better: dict[str, Any], worse: dict[str, Any]
) -> None:
    _kept(folder, **worse)
    alone = chosen(catalog.cluster(H200))
    assert alone.path is not None, "a worse one is better than none"
    taken = _kept(folder, **better)
    found = chosen(catalog.cluster(H200))
    assert found.path == taken
    assert len(store.files(folder)) == 2, "nothing is replaced"


def test_one_that_can_be_read_and_not_used_is_left_out(folder: Path) -> None:
    here = processor()
    about = {"device": here.device.name, "title": here.device.title, "kind": "cpu"}
    _kept(folder, **about, samples=(_convolution(),))
    found = chosen(here)
    assert found.path is None
    assert any("has no bf16 units" in note for note in found.notes)


def _convolution() -> Sample:
    about = Kernel(
        operator=msgspec.to_builtins(Convolution((3, 3), (1, 1), (1, 1), (1, 1))),
        sizes={"sample": 8, "group": 1, "out": 64, "in": 64, "height": 56, "width": 56},
        widths={"x": 2, "w": 2, "y": 2},
        parts=("forward",),
        precision="bf16",
    )
    return sample("convolution", about, [1e-3])


def test_a_calibration_of_before_is_read_under_its_name(folder: Path) -> None:
    old = folder / "calibration-cuda.json"
    old.write_bytes(_kept(folder / "made", host="").read_bytes())
    assert chosen(catalog.cluster(H200)).path == old


def test_which_host_it_was_made_on_is_said(folder: Path) -> None:
    _kept(folder, host="node-17")
    assert any("made on node-17" in note for note in chosen(catalog.cluster(H200)).notes)


def test_a_processor_s_holds_for_its_host_alone(folder: Path) -> None:
    here = processor()
    about = {"device": here.device.name, "title": here.device.title, "kind": "cpu"}
    other = _kept(folder, **about, host="elsewhere")
    found = chosen(here)
    assert found.path is None
    assert any("elsewhere" in note and other.name in note for note in found.notes)
    assert chosen(here, str(other)).path == other, "unless somebody names it"
    own = _kept(folder, **about)
    assert chosen(here).path == own


def test_a_day_that_has_not_come_is_said(folder: Path) -> None:
    _kept(folder, date="2999-01-01T12:00:00")
    assert any("2999-01-01" in note and "not come" in note for note in chosen(catalog.cluster(H200)).notes)
    _kept(folder)
    assert any("2999-01-01" in note for note in chosen(catalog.cluster(H200)).notes), "also where another is used"


@pytest.mark.slow
def test_a_quick_calibration_replaces_nothing(foretell: Callable[..., Any], folder: Path) -> None:
    asked = ("calibrate", "--device", "cpu", "--quick", "--only", "loss", "--json")
    first, second = (json.loads(foretell(*asked).out) for _ in range(2))
    assert first["record"] != second["record"] and not first["complete"] and not second["complete"]
    assert sorted(map(str, store.files(folder))) == sorted([first["record"], second["record"]])
    assert [path.name for path in folder.iterdir() if path.suffix == ".part"] == []
    resumed = json.loads(foretell(*asked, "--resume").out)
    samples = [store.read(Path(one["record"])).content["samples"] for one in (second, resumed)]
    assert samples[0] == samples[1], "it goes on with the newest, and nothing was left to do"


# what was changed


def _edited(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def _slower(content: dict[str, Any]) -> None:
    content["content"]["samples"][0]["values"] = [1.0]


def test_a_changed_record_is_used_and_said_to_be_changed(foretell: Callable[..., Any], folder: Path) -> None:
    path = _kept(folder)
    assert store.examined(path).doubts == ()
    assert "changed" not in foretell("predict", *ASKED["predict"]).err
    _edited(path, _slower)
    (doubt,) = store.examined(path).doubts
    assert "changed" in doubt
    for more in ((), ("--calibration", str(path)), ("--json",)):
        ran = foretell("predict", *ASKED["predict"], *more)
        assert ran.code == 0 and "changed" in ran.out + ran.err, more
    listed = json.loads(foretell("results", "--json").out)
    assert list(listed["doubts"]) == [path.stem] and listed["records"] == 1
    assert "changed" in foretell("results").err
    assert "changed" in foretell("results", "show", path.stem).err


def test_how_a_record_is_laid_out_does_not_change_it(tmp_path: Path) -> None:
    path = store.write(tmp_path, record("run", {"b": {"10": 1.5, "9": [1, None]}, "a": "\u00fc\U0001f600"}, model="x"))
    assert _edited(path, lambda content: None) == path
    assert store.examined(path).doubts == ()
    renamed = path.rename(tmp_path / "mine.json")
    _edited(renamed, lambda content: content.update(model="y"))
    assert store.examined(renamed).doubts == (), "a file that a person named has no digest to go by"


def test_a_record_with_numbers_as_keys_is_not_taken_for_changed(tmp_path: Path) -> None:
    path = store.write(tmp_path, record("run", {"by rank": {10: 1.0, 9: 2.0, 1: 3.0}}))
    assert store.examined(path).doubts == ()


def test_a_record_of_tomorrow_is_not_the_newest(foretell: Callable[..., Any], folder: Path) -> None:
    made = record("run", {"step_seconds": 1.0}, plan="dp1")
    late = store.write(folder, msgspec.structs.replace(made, created="2999-01-01T00:00:00.000000+00:00"))
    now = store.write(folder, made)
    assert [path.stem for path in store.files(folder)] == [now.stem, late.stem]
    ran = foretell("results", "--last", "1", "--columns", "id")
    assert now.stem in ran.out and late.stem not in ran.out
    assert "not come" in foretell("results").err


def test_what_a_run_cannot_have_is_not_shown_as_if_it_had(foretell: Callable[..., Any], folder: Path) -> None:
    path = store.write(folder, record("run", {"measurement": {"step_seconds": -0.01, "memory_bytes": 1e6}}, plan="dp1"))
    listed = foretell("results")
    assert "-10 ms" not in listed.out and "impossible" in listed.out
    assert "step_seconds is -0.01, which cannot be" in listed.err.replace("\n  ", " ")
    shown = foretell("results", "show", path.stem)
    assert shown.code == 0 and "cannot be" in shown.err and "-10 ms" not in shown.out
    compared = foretell("compare", str(path))
    assert compared.code == 2 and "step_seconds is -0.01" in compared.err


def test_what_is_kept_is_its_owner_s_alone(folder: Path) -> None:
    before = os.umask(0o022)
    try:
        path = _kept(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("bad", BAD)
def test_readers_refuse_it_in_words(tmp_path: Path, bad: str) -> None:
    BAD[bad](tmp_path)
    path = tmp_path / f"calibration-{bad}.json"
    if bad == "other":
        assert store.read(path).kind == "calibration"
    else:
        with pytest.raises(BadInput) as refused:
            store.read(path)
        assert str(path) in refused.value.where
