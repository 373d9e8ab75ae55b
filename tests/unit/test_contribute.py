"""`foretell contribute`: a row that `validate` scores, with nothing of who measured it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foretell.records.record import record
from foretell.validation.studies.contributed import rows
from foretell.validation.study import Line, MeasuredRun, NotScored

LOG = """
host gpu-17.secret.example, user jane, /home/jane/checkpoints
iteration 1 | elapsed time per iteration (ms): 9000.0 | global batch size: 16 |
iteration 2 | elapsed time per iteration (ms): 1500.0 | global batch size: 16 |
iteration 3 | elapsed time per iteration (ms): 1600.0 | global batch size: 16 |
[Rank 0] (after 1 iterations) memory (MB) | max reserved: 20000.0
"""

SAID = ("--model", "llama3-8b", "--on", "8xh100", "--plan", "dp8:zero3 +bf16", "--seq", "2048", "--trainer", "fsdp")


def written(folder: Path, text: str, name: str = "jane.log") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def a_run(**more: Any) -> str:
    content: dict[str, Any] = {
        "assignment": {"model": "gpt2", "plan": "dp2 +bf16", "trainer": "pytorch", "seq": 512, "optimizer": "adamw"},
        "measurement": {"batch": 8, "step_seconds": 0.25, "breakdown": {}, "host": "gpu-17.secret.example"},
        "machine": {"host": "gpu-17.secret.example", "user": "jane"},
        **more,
    }
    versions = {"torch": "2.13.0", "hostname": "gpu-17.secret.example"}
    made = record("run", content, model="gpt2", plan="dp2 +bf16", cluster="2xh100", versions=versions)
    return msgspec.json.encode(made).decode()


def test_of_a_log(foretell: Any, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    ran = foretell("contribute", written(tmp_path, LOG), *SAID, "--out", str(out))
    assert ran.code == 0, ran.err
    row = json.loads(ran.out)
    assert out.read_text() == ran.out
    assert row["step_seconds"] == 1.55  # the last half of the steps
    assert (row["memory_bytes"], row["memory"]) == (20000 * 2**20, "reserved")
    assert (row["model"], row["plan"], row["cluster"], row["batch"]) == ("llama3-8b", "dp8:zero3 +bf16", "8xh100", 16)
    for name in ("secret", "jane", "home", str(tmp_path)):
        assert name not in ran.out


def test_of_a_run(foretell: Any, tmp_path: Path) -> None:
    ran = foretell("contribute", written(tmp_path, a_run(), "run.json"))
    assert ran.code == 0, ran.err
    row = json.loads(ran.out)
    assert row["versions"]["torch"] == "2.13.0"
    assert set(row["versions"]) <= {"torch", "python"}
    assert "secret" not in ran.out
    assert "jane" not in ran.out
    assert "created" not in row


def test_validate_scores_it_as_predict_does(foretell: Any, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    for file in (written(tmp_path, LOG), written(tmp_path, LOG.replace("1600", "1700"), "b.log")):
        assert foretell("contribute", file, *SAID, "--out", str(out)).code == 0
    told = json.loads(foretell("validate", str(out), "--rows", "--json").out)
    scored = told["rows"]
    asked = ("llama3-8b", *SAID[2:], "--batch", "16", "--json")
    alone = json.loads(foretell("predict", *asked).out)
    assert len(scored) == 2
    assert {one["predicted"] for one in scored} == {alone["step_seconds"]}
    assert [one["seconds"] for one in scored] == [1.55, 1.6]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "does not say the model"),
        ((*SAID[:2], *SAID[4:]), "does not say the cluster"),
        ((*SAID, "--batch", "32"), "batch is 16 in the file"),
        (("--model", "jane.py:build", *SAID[2:]), "words that everybody has"),
        ((*SAID[:2], "--on", "jane.toml", *SAID[4:]), "a file of your own"),
        ((*SAID[:-1], "jane.toml"), "a file of your own"),
    ],
)
def test_what_is_not_for_everybody_is_refused(words: tuple[str, ...], what: str, foretell: Any, tmp_path: Path) -> None:
    ran = foretell("contribute", written(tmp_path, LOG), *words)
    assert ran.code == 2
    assert what in " ".join(ran.err.split())
    assert not ran.out


def test_this_machine_is_nobody_elses(foretell: Any, tmp_path: Path) -> None:
    """Wherever the row is read, it would be another machine."""
    assert foretell("contribute", written(tmp_path, LOG), *SAID[:3], "this-machine", *SAID[4:]).code == 2
    content = json.loads(a_run()) | {"cluster": "this-machine"}
    file = written(tmp_path, json.dumps(content), "run.json")
    ran = foretell("contribute", file)
    assert ran.code == 2
    assert "another machine" in " ".join(ran.err.split())
    ran = foretell("contribute", file, "--on", "2xh100", "--out", str(tmp_path / "rows.jsonl"))
    assert ran.code == 0, ran.err
    row = json.loads(ran.out)
    assert row["cluster"] == "2xh100"
    known = {key: str(value) for key, value in row.items()}
    lines: list[Line] = [known, known | {"cluster": "this-machine"}]
    scored, not_scored = rows(lines)
    assert isinstance(scored, MeasuredRun)
    assert isinstance(not_scored, NotScored)
    assert "this-machine" in not_scored.reason


def test_the_file_says_which_model_it_was(foretell: Any, tmp_path: Path) -> None:
    """Other words for the same model may be given, or words for one of a file; not another model."""
    file = written(tmp_path, a_run(), "run.json")
    ran = foretell("contribute", file, "--model", "llama3-8b")
    assert ran.code == 2
    assert "model is gpt2 in the file, and llama3-8b is given" in " ".join(ran.err.split())
    assert "leave out --model" in ran.err
    assert foretell("contribute", file, "--on", "8xh100").err.count("leave out --on") == 1
    same = foretell("contribute", file, "--model", "openai-community/gpt2")
    assert json.loads(same.out)["model"] == "gpt2"

    assignment = {"model": "jane.py:build", "plan": "dp2 +bf16", "trainer": "pytorch", "seq": 512}
    own = written(tmp_path, json.dumps(json.loads(a_run(assignment=assignment)) | {"model": "jane.py:build"}), "b.json")
    assert json.loads(foretell("contribute", own, "--model", "gpt2").out)["model"] == "gpt2"


def test_a_rehearsal_is_no_run(foretell: Any, tmp_path: Path) -> None:
    rehearsed = a_run(
        assignment={
            "model": "gpt2",
            "plan": "dp2 +bf16",
            "rehearsal": {"rank": 0, "cluster": "2xh100", "priced": True},
        },
        machine={"device": "h100-sxm"},
    )
    ran = foretell("contribute", written(tmp_path, rehearsed, "run.json"))
    assert ran.code == 2
    assert "rehears" in ran.err


def test_a_step_faster_than_its_devices_is_no_row(foretell: Any, tmp_path: Path) -> None:
    step = {"model": "llama3-8b", "plan": "dp8:zero3 +bf16", "cluster": "8xh100", "batch": 16, "step_seconds": 2e-6}
    ran = foretell("contribute", written(tmp_path, json.dumps(step), "run.json"))
    assert ran.code == 2
    assert "at their peak" in ran.err


def test_a_step_faster_than_its_devices_is_not_scored(foretell: Any, tmp_path: Path) -> None:
    row = {"contributed": 1, "model": "llama3-8b", "plan": "dp8:zero3 +bf16", "cluster": "8xh100", "trainer": "fsdp"}
    lines = [{**row, "id": name, "batch": 16, "step_seconds": took} for name, took in (("fast", 1e-6), ("slow", 2.0))]
    file = written(tmp_path, "\n".join(map(json.dumps, lines)), "rows.jsonl")
    (study,) = json.loads(foretell("validate", file, "--json").out)["studies"]
    assert (study["total"], study["n"], study["not_scored"]) == (2, 1, 1)
    assert "at their peak" in next(iter(study["not_scored_reasons"]))


TABLE = """model,plan,cluster,batch,seq,step_ms
meta-llama/Llama-3.1-8B,dp8:zero3 +bf16,8xh100,16,2048,1500
llama3-8b,dp8:zero3 +bf16,8xh100,32,2048,2900
llama3-8b,dp8:zero3 +bf16,8xh100,64,2048,5800 ms
jane/config.json,dp8:zero3 +bf16,8xh100,32,2048,2900
"""


def test_a_table_is_scored_and_its_bad_cells_are_told(foretell: Any, tmp_path: Path) -> None:
    (study,) = json.loads(foretell("validate", written(tmp_path, TABLE, "runs.csv"), "--json").out)["studies"]
    assert (study["total"], study["n"], study["refused"], study["not_scored"]) == (4, 2, 0, 2)
    assert sorted(study["not_scored_reasons"]) == [
        "row 3: step_ms is '5800 ms', no number; try 5800, without a unit",
        "row 4: model jane/config.json is a file, not a name",
    ]


def test_a_table_gives_a_row_for_each_run(foretell: Any, tmp_path: Path) -> None:
    whole = "\n".join(TABLE.splitlines()[:3])
    ran = foretell("contribute", written(tmp_path, whole, "runs.csv"))
    assert ran.code == 0, ran.err
    assert [json.loads(line)["step_seconds"] for line in ran.out.splitlines()] == [1.5, 2.9]


@pytest.mark.parametrize("verb", [("contribute",), ("validate",), ("stack", "mine", "--anchor")])
def test_a_misspelt_column_is_named(verb: tuple[str, ...], foretell: Any, tmp_path: Path) -> None:
    ran = foretell(*verb, written(tmp_path, TABLE.replace("step_ms", "stepms"), "runs.csv"))
    assert ran.code == 2
    assert "unknown: stepms" in ran.err
    assert "stepms is perhaps step_ms" in ran.err
