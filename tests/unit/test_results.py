"""`foretell results`: two engines that agree, exports that read back, records that outlive crashes and full disks."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import click.testing
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.cli.command import cli
from foretell.cli.main import main
from foretell.errors import BadInput
from foretell.records import store
from foretell.records.columns import COLUMNS, IDENTITY, is_numeric
from foretell.records.engines import duckdb, python
from foretell.records.export import export
from foretell.records.record import record
from foretell.records.results import chosen, files, results
from foretell.records.where import Always, condition

PLANS = ("dp2", "dp2:zero1", "tp2", "pp2:1f1b +m4", "it's 100%")


def _run(step: float | None, plan: str = "dp2", **more: Any) -> dict[str, Any]:
    measurement = {"step_seconds": step, "ranks": 2, "losses": [3.0, step], "breakdown": {"forward": 0.25}, **more}
    return {"measurement": measurement, "assignment": {"task": "digits"}, "machine": {"device": "cpu-core"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of several kinds; some have nothing to say of a column, or something of another type."""
    made = tmp_path_factory.mktemp("records")
    for at, plan in enumerate(PLANS):
        for step in (0.05 * (at + 1), None):
            store.write(made, record("run", _run(step, plan, batch=8 * at), model="lenet", plan=plan, cluster="8xcpu"))
    store.write(made, record("run", {"measurement": {"step_seconds": "soon", "ranks": True}}, model="odd"))
    store.write(made, record("answer", {"row": {"step_seconds": 0.2, "trainer": "fsdp"}}, plan="dp8"))
    store.save(made / "calibration-cpu.json", record("calibration", {"machine": {"device": "h200"}}))
    (made / ".half.part").write_text("{")
    return made


# two engines


TEXTS = [IDENTITY, *(name for name in COLUMNS if not is_numeric(name))]
NUMBERS = [name for name in COLUMNS if is_numeric(name)]
NUMBER = st.sampled_from([0.05, 0.1, 0.25, 2, -1, 16, 1e-3]).map(repr)
TEXT = st.sampled_from(["dp2", "tp2", "lenet", "", "run", "it''s 100%", "digits"]).map("'{}'".format)
FORM = st.sampled_from(["dp%", "%2", "_p2", "%", "", "d%2%", "it''s 100%", "%_%"]).map("'{}'".format)
SIGN = st.sampled_from(["=", "==", "!=", "<>", "<", "<=", ">", ">="])


def _simple() -> st.SearchStrategy[str]:
    name, number = st.sampled_from(TEXTS), st.sampled_from(NUMBERS)
    return st.one_of(
        st.builds("{} {} {}".format, name, SIGN, TEXT),
        st.builds("{} {} {}".format, number, SIGN, NUMBER),
        st.builds("{} {} {}".format, number, SIGN, number),
        st.builds("{} like {}".format, name, FORM),
        st.builds("{} not like {}".format, name, FORM),
        st.builds("{} in ({}, {})".format, name, TEXT, TEXT),
        st.builds("{} not in ({})".format, number, NUMBER),
        st.builds("{} between {} and {}".format, number, NUMBER, NUMBER),
        st.builds("{} is {}null".format, name | number, st.sampled_from(["", "not "])),
    )


CONDITIONS = st.recursive(
    _simple(),
    lambda inner: st.one_of(
        st.builds("({}) and {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=5,
)


@given(CONDITIONS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_engines_agree(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    asked = condition(text)
    one = results(folder, asked, "python")
    with monkeypatch.context() as alone:
        alone.setattr(python, "select", None)  # DuckDB has to do it itself
        assert results(folder, asked, "duckdb") == one


def test_what_is_found(folder: Path) -> None:
    def plans(text: str) -> list[Any]:
        return [row["plan"] for row in results(folder, condition(text), "python").rows]

    assert plans("plan like 'dp%' and step_seconds < 0.12 and kind = 'run'") == ["dp2", "dp2:zero1"]
    assert plans("step_seconds >= 0.2") == ["pp2:1f1b +m4", "it's 100%", "dp8"]
    assert len(plans("kind = 'run' and step_seconds is null")) == 6  # a text is no time
    assert plans("loss = 0.05") == ["dp2"]  # the last one
    assert plans("plan = 'it''s 100%' and not loss is null") == ["it's 100%"]


def test_files_that_are_no_records_are_named_and_left_out(folder: Path, tmp_path: Path) -> None:
    good = store.write(tmp_path, record("run", _run(1.0)))
    (tmp_path / "foreign.json").write_text("[1, 2")
    (tmp_path / "newer.json").write_text(json.dumps({"schema": 99}))
    for engine in ("python", "duckdb"):
        found = results(tmp_path, Always(), engine)
        assert [row["id"] for row in found.rows] == [good.stem]
        assert {Path(path).name for path in found.unreadable} == {"foreign.json", "newer.json"}
    answer = duckdb.query(files(tmp_path), "SELECT id FROM records")
    assert (answer.lines, answer.unreadable) == ([(good.stem,)], found.unreadable)
    said = (
        click.testing.CliRunner()
        .invoke(cli, ["results", "--records", str(tmp_path), "--sql", "SELECT 1", "--json"])
        .stdout
    )
    assert json.loads(said)["unreadable"] == found.unreadable
    assert results(tmp_path / "nowhere", Always()).rows == []


NEARLY: dict[str, dict[str, Any]] = {
    "keys that are missing": {"schema": 1, "foo": 2},
    "a key too many": {"foo": 2},
    "a number for a text": {"plan": 2},
    "nothing for a text": {"created": None},
    "a text for a number": {"schema": "1"},
    "a list for an object": {"content": []},
    "a version that is a number": {"versions": {"torch": 2}},
}


@pytest.mark.parametrize("how", NEARLY)
def test_what_is_nearly_a_record_is_none_for_either_engine(how: str, tmp_path: Path) -> None:
    whole = {} if "schema" in NEARLY[how] and "foo" in NEARLY[how] else msgspec.to_builtins(record("run", _run(1.0)))
    (tmp_path / "nearly.json").write_text(json.dumps(whole | NEARLY[how]))
    one = results(tmp_path, Always(), "python")
    assert one.rows == [] and len(one.unreadable) == 1
    assert results(tmp_path, Always(), "duckdb") == one


def test_a_column_of_texts_that_is_empty_is_still_one_of_texts(tmp_path: Path) -> None:
    export(str(tmp_path / "found.parquet"), ["model", "step_seconds"], [[None, None]])
    with duckdb.connected() as database:
        found = database.execute(f"DESCRIBE SELECT * FROM '{tmp_path}/found.parquet'").fetchall()
    assert [line[1] for line in found] == ["VARCHAR", "DOUBLE"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("plann = 'dp2'", "no column is called 'plann'"),
        ("plan < 3", "plan is a text"),
        ("step_seconds = 'x'", "step_seconds is a number"),
        ("step_seconds like '1%'", "step_seconds is a number"),
        ("step_seconds", "a comparison is missing at the end"),
        ("step_seconds < ", "something is missing at the end"),
        ("(plan = 'dp2'", "')' is missing at the end"),
        ("plan = 'dp2' kind = 'run'", "'and' or 'or' is missing before 'kind'"),
        ("plan in ('dp2'", "')' is missing"),
        ("plan in (model)", "model stands where"),
        ("plan not = 'x'", "'like', 'in' or 'between' is missing"),
        ("plan = 'dp2", 'cannot be read from "\'dp2" on'),
        ("plan = 'a'; drop table records", "cannot be read from"),
    ],
)
def test_what_is_no_condition_is_said(text: str, why: str) -> None:
    with pytest.raises(BadInput) as problem:
        condition(text)
    assert why in str(problem.value)


def test_a_query_sees_records_and_nothing_else(folder: Path) -> None:
    columns, lines, _ = duckdb.query(
        files(folder), "SELECT kind, count(*) AS n FROM records GROUP BY kind ORDER BY kind"
    )
    assert (columns, [tuple(line) for line in lines]) == (
        ["kind", "n"],
        [("answer", 1), ("calibration", 1), ("run", 11)],
    )
    for sql in ("SELECT * FROM read_text('/etc/hostname')", "SELECT nothing FROM records", "SELEC"):
        with pytest.raises(BadInput, match="DuckDB says"):
            duckdb.query(files(folder), sql)


# the command


def _asked(*arguments: str) -> str:
    ran = click.testing.CliRunner().invoke(cli, ["results", *arguments], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_the_list_and_one_record(folder: Path) -> None:
    listed = _asked("--records", str(folder), "--kind", "run", "--where", "step_seconds < 0.06")
    assert "lenet" in listed and "50 ms" in listed and "1 record;" in listed
    assert max(map(len, _asked("--records", str(folder)).splitlines())) <= 80
    shown = _asked("--records", str(folder), "show", "calibration-cpu")
    assert "kind          calibration" in shown
    whole = json.loads(_asked("--records", str(folder), "show", "calibration-cpu", "--json"))
    assert whole["content"] == {"machine": {"device": "h200"}}
    with pytest.raises(BadInput, match="11 records have 'run-' in their names"):
        chosen(folder, "run-")
    with pytest.raises(BadInput, match="no record has 'poem'"):
        chosen(folder, "poem")


def test_one_object(folder: Path) -> None:
    found = json.loads(_asked("--records", str(folder), "--columns", "plan,ranks", "--last", "2", "--json"))
    assert found["records"] == 2 and set(found["rows"][0]) == {"plan", "ranks"} and found["unreadable"] == {}


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_what_is_exported_reads_back(folder: Path, tmp_path: Path, ending: str) -> None:
    target = tmp_path / f"found.{ending}"
    _asked("--records", str(folder), "--columns", "id,plan,step_seconds", "--to", str(target))
    said = json.loads(_asked("--records", str(folder), "--columns", "id,plan,step_seconds", "--json"))["rows"]
    if ending == "csv":
        with target.open() as file:
            read = [
                {**row, "step_seconds": float(row["step_seconds"]) if row["step_seconds"] else None}
                for row in csv.DictReader(file)
            ]
    elif ending == "json":
        read = json.loads(target.read_text())
    else:
        with duckdb.connected() as database:
            lines = database.execute(f"SELECT * FROM read_parquet('{target}')").fetchall()
        read = [dict(zip(("id", "plan", "step_seconds"), line, strict=True)) for line in lines]
    assert [{**row, "plan": row["plan"] or ""} for row in read] == [{**row, "plan": row["plan"] or ""} for row in said]
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_an_export_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        export(str(tmp_path / "no" / "such.csv"), ["a"], [[1]])
    with pytest.raises(BadInput, match="no ending"):
        export(str(tmp_path / "found.xls"), ["a"], [[1]])


# crashes and full disks


KILLED = """
    import os, sys, time
    from pathlib import Path
    from foretell.records.record import record
    from foretell.records.store import write

    def stopped(handle):
        print("half", flush=True)
        time.sleep(60)

    os.fsync = stopped
    write(Path(sys.argv[1]), record("run", {"second": list(range(1000))}))
"""


def test_a_kill_in_the_middle_of_writing_loses_nothing(tmp_path: Path) -> None:
    earlier = record("run", {"first": 1})
    store.write(tmp_path, earlier)
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"half\n"
        writer.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 2  # what was half written is still there, under another name
    assert list(store.records(tmp_path)) == [earlier]
    for engine in ("python", "duckdb"):
        assert len(results(tmp_path, Always(), engine).rows) == 1
    store.write(tmp_path, record("run", {"third": 1}))
    assert len(list(store.records(tmp_path))) == 2


@pytest.mark.parametrize("at", ["fsync", "link"])
def test_a_full_disk_is_a_message_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    earlier = record("run", {"first": 1})
    kept = store.write(tmp_path, earlier)
    monkeypatch.setattr(os, at, full)
    if at == "link":
        monkeypatch.setattr(Path, "replace", full)
    monkeypatch.setattr(sys, "argv", ["foretell", "results"])
    monkeypatch.setattr("foretell.cli.command.cli", lambda **_: store.write(tmp_path, record("run", {"more": 1})))
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "No space left on device" in said and "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    assert store.read(kept) == earlier


FULL = """
import sys
from pathlib import Path
from foretell.errors import BadInput
from foretell.records import store
from foretell.records.record import record
disk = Path(sys.argv[1])
kept = [store.write(disk, record("run", {"at": at})) for at in range(3)]
try:
    store.write(disk, record("run", {"large": "x" * 200_000}))
except BadInput as problem:
    print(problem.what)
assert sorted(disk.iterdir()) == sorted(kept)
assert [store.read(path).content for path in kept] == [{"at": at} for at in range(3)]
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """Mounted where only this one process sees it: nothing is left of it, however the test ends."""
    own = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k none "$0" && exec "$@"', str(tmp_path)]
    if subprocess.run([*own, "true"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    ran = subprocess.run([*own, sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "No space left" in ran.stdout
    assert list(tmp_path.iterdir()) == []
