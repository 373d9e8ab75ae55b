"""Records: written whole or not at all, never changed, and read by later versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.records.home import home
from foretell.records.record import KINDS, SCHEMA, Record, record
from foretell.records.store import ReadRecord, read, records, write
from foretell.records.upgrade import upgrade


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_comes_back(kind: str, tmp_path: Path) -> None:
    made = record(kind, {"step_seconds": 0.25, "samples": [0.2, 0.3]}, model="resnet50", plan="dp8")
    path = write(tmp_path / "new" / "folder", made)
    assert read(path) == made
    assert list(records(path.parent)) == [(path, ReadRecord(made, ()))]
    assert made.schema == SCHEMA


def test_writing_twice_keeps_the_first(tmp_path: Path) -> None:
    made = record("run", {"losses": [1.0]})
    first = write(tmp_path, made)
    stamp = first.stat().st_mtime_ns
    assert write(tmp_path, made) == first
    assert first.stat().st_mtime_ns == stamp
    assert sorted(path.name for path in tmp_path.iterdir()) == [first.name]


def test_a_crash_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    earlier = write(tmp_path, record("run", {}))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="No space"):
        write(tmp_path, record("run", {"more": 1}))
    assert [path.name for path in tmp_path.iterdir()] == [earlier.name]


def test_where_links_are_not_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    made = record("run", {})
    assert read(write(tmp_path, made)) == made


def test_an_old_record_is_brought_up_step_by_step() -> None:
    steps = {1: lambda old: {**old, "ranks": old["gpus"]}, 2: lambda old: {**old, "nodes": old["ranks"] // 8}}
    assert upgrade({"schema": 1, "gpus": 16}, "x", steps, 3) == {"schema": 3, "gpus": 16, "ranks": 16, "nodes": 2}


def test_a_newer_record_is_refused_politely(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    path.write_text(json.dumps({"schema": SCHEMA + 1}))
    with pytest.raises(BadInput, match=f"schema {SCHEMA + 1}"):
        read(path)


def test_a_kind_nobody_knows() -> None:
    with pytest.raises(ValueError, match="rumour"):
        record("rumour", {})


ASK = "from foretell.records.home import home; print(home())"


def test_no_test_finds_the_records_of_the_person_who_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here or in a process of its own, not even when the variable is lost (see `no_records_elsewhere`)."""
    own = Path(os.environ["FORETELL_RECORDS"])
    assert own.is_relative_to(tempfile.gettempdir()) and home() == own
    assert Path(subprocess.check_output([sys.executable, "-c", ASK], text=True).strip()) == own
    monkeypatch.delenv("FORETELL_RECORDS")
    assert home().is_relative_to(tempfile.gettempdir())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(Record.__struct_fields__), inner),
)


@given(st.binary(max_size=200) | JSON.map(lambda content: json.dumps(content).encode()))
def test_any_file_is_a_record_or_a_message(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "record.json"
    path.write_bytes(content)
    try:
        assert isinstance(read(path), Record)
    except BadInput as problem:
        assert str(path) in str(problem)
