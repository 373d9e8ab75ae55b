"""`foretell results`: questions that read records alone, exports that read back, records that outlive crashes."""

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
import pyarrow.parquet
import pytest

from foretell.cli.command import cli
from foretell.cli.main import main
from foretell.errors import BadInput
from foretell.records import store
from foretell.records.export import export
from foretell.records.query import query, select
from foretell.records.record import record
from foretell.records.results import chosen, results, table

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


# conditions and queries


def test_what_is_found(folder: Path) -> None:
    def plans(text: str) -> list[Any]:
        return [row["plan"] for row in results(folder, text).rows]

    assert plans("plan like 'dp%' and step_seconds < 0.12 and kind = 'run'") == ["dp2", "dp2:zero1"]
    assert plans("step_seconds >= 0.2") == ["pp2:1f1b +m4", "it's 100%", "dp8"]
    assert len(plans("kind = 'run' and step_seconds is null")) == 6  # a text is no time
    assert plans("loss = 0.05") == ["dp2"]  # the last one
    assert plans("plan = 'it''s 100%' and not loss is null") == ["it's 100%"]
    assert plans("PLAN == 'dp8' OR plan LIKE 'tp_' AND loss BETWEEN 0.1 AND 1 -- as in SQL") == ["tp2", "dp8"]
    assert plans("plan like 'DP%'") == []  # letters are what they are
    assert plans("plan not like '%p%' and ranks in (2, 4) and step_seconds <> batch") == ["it's 100%"]
    assert len(plans(" ")) == 13 and len(results(folder, kind="answer").rows) == 1


def test_files_that_are_no_records_are_named_and_left_out(folder: Path, tmp_path: Path) -> None:
    good = store.write(tmp_path, record("run", _run(1.0)))
    (tmp_path / "foreign.json").write_text("[1, 2")
    (tmp_path / "newer.json").write_text(json.dumps({"schema": 99}))
    found = results(tmp_path)
    assert [row["id"] for row in found.rows] == [good.stem]
    assert {Path(path).name for path in found.unreadable} == {"foreign.json", "newer.json"}
    said = (
        click.testing.CliRunner()
        .invoke(cli, ["results", "--records", str(tmp_path), "--sql", "SELECT 1", "--json"])
        .stdout
    )
    assert json.loads(said)["unreadable"] == found.unreadable
    assert results(tmp_path / "nowhere").rows == []


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
def test_what_is_nearly_a_record_is_none(how: str, tmp_path: Path) -> None:
    whole = {} if "schema" in NEARLY[how] and "foo" in NEARLY[how] else msgspec.to_builtins(record("run", _run(1.0)))
    (tmp_path / "nearly.json").write_text(json.dumps(whole | NEARLY[how]))
    found = results(tmp_path)
    assert found.rows == [] and len(found.unreadable) == 1


def test_a_column_of_texts_that_is_empty_is_still_one_of_texts(tmp_path: Path) -> None:
    export(str(tmp_path / "found.parquet"), ["model", "step_seconds"], [[None, None]])
    assert [str(kind) for kind in pyarrow.parquet.read_schema(tmp_path / "found.parquet").types] == ["string", "double"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("plann = 'dp2'", "no column is called 'plann'"),
        ("plan < 3", "plan is a text"),
        ("step_seconds = 'x'", "step_seconds is a number"),
        ("step_seconds like '1%'", "step_seconds is a number"),
        ("3 > step_seconds and 'x' < ranks", "ranks is a number"),
        ("plan not in (1, 2)", "plan is a text"),
        ("plan = 'ranks = x' and device = 5", "device is a text"),
        ("step_seconds < ", "incomplete input"),
        ("(plan = 'dp2'", "incomplete input"),
        ("plan = 'dp2' kind = 'run'", 'near "kind"'),
        ("plan = 'dp2", "unrecognized token"),
        ('plan = "dp2"', "a text stands in single quotes"),
        ("plan = 'a'; drop table records", "one statement at a time"),
        ("plan = load_extension('x')", "not authorized to use function: load_extension (only the table"),
        ("plan in (select sql from sqlite_master)", "only the table 'records' can be read"),
        ("plan = '\0'", "null character"),
    ],
)
def test_what_is_no_condition_is_said(folder: Path, text: str, why: str) -> None:
    with pytest.raises(BadInput) as problem:
        results(folder, text)
    assert why in str(problem.value) and problem.value.where == "--where" and problem.value.fix


def test_a_query_reads_records(folder: Path) -> None:
    rows = table(folder).rows
    columns, lines = query(rows, "SELECT kind, count(*) AS n FROM records GROUP BY kind ORDER BY kind")
    assert (columns, lines) == (["kind", "n"], [("answer", 1), ("calibration", 1), ("run", 11)])
    _, lines = query(
        rows, "WITH mine AS (SELECT * FROM records WHERE kind = 'run') SELECT median(step_seconds) FROM mine"
    )
    assert lines == [(pytest.approx(0.15),)]
    assert query([], "SELECT median(loss), max(plan) FROM records").lines == [(None, None)]


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH '{file}' AS other",
        "VACUUM INTO '{file}'",
        "CREATE TABLE other (a)",
        "CREATE TEMP TABLE other (a)",
        "DELETE FROM records",
        "UPDATE records SET plan = ''",
        "PRAGMA writable_schema = 1",
        "SELECT readfile('/etc/hostname')",
        "SELECT load_extension('{file}')",
        "SELECT zeroblob(1e9)",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM sqlite_master",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "SELECT 1; DELETE FROM records",
        "SELECT nothing FROM records",
        "SELEC",
        "SELECT '\ud800'",
    ],
)
def test_a_query_reads_records_and_nothing_else(folder: Path, tmp_path: Path, sql: str) -> None:
    with pytest.raises(BadInput, match="SQLite says") as problem:
        query(table(folder).rows, sql.format(file=tmp_path / "other.db"))
    assert problem.value.where == "--sql" and problem.value.fix
    assert list(tmp_path.iterdir()) == []


ENDLESS = "SELECT count(*) FROM records a, records b, records c, records d"


def test_a_query_ends_after_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.records.query.SECONDS", 0.0)
    monkeypatch.setattr("foretell.records.query.LOOKS", 1)
    with pytest.raises(BadInput, match="interrupted after 0 seconds"):
        query(table(folder).rows, ENDLESS)
    with pytest.raises(BadInput, match="is no condition: interrupted"):
        select(table(folder).rows, f"({ENDLESS}) > 0")


def test_an_answer_has_a_largest_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(folder).rows
    assert len(query(rows, "SELECT * FROM records").lines) == len(rows)
    monkeypatch.setattr("foretell.records.query.MOST_BYTES", 1000)
    with pytest.raises(BadInput, match="limit 1000"):
        query(rows, "SELECT a.*, b.* FROM records a, records b")
    with pytest.raises(BadInput, match="too big"):
        query(rows, "SELECT " + "replace(" * 30 + "'aa'" + ", 'a', 'aaaaaaaaaa')" * 30)


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
    old = ("--engine", "duckdb")  # scripts of before name what filters
    assert (
        json.loads(_asked("--records", str(folder), "--columns", "plan,ranks", "--last", "2", "--json", *old)) == found
    )


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
        read = pyarrow.parquet.read_table(target).to_pylist()
    assert [{**row, "plan": row["plan"] or ""} for row in read] == [{**row, "plan": row["plan"] or ""} for row in said]
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_an_export_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot write the table: there is no folder"):
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
    assert [store.read(path) for path in store.files(tmp_path)] == [earlier]
    assert len(results(tmp_path).rows) == 1
    store.write(tmp_path, record("run", {"third": 1}))
    assert len(store.files(tmp_path)) == 2


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
