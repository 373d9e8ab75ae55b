"""What was measured and handed in: laid beside a prediction, and never more than numbers and names."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.memory import MemoryUse
from foretell.records.record import record
from foretell.runtime.measure import Measurement, Samples
from foretell.serve import uploads
from foretell.serve.calls.model import NamedModel
from foretell.serve.calls.model import answer as described
from foretell.serve.measured import PREDICTED, processes, seen
from serve_client import Server

ASKED = {"model": "gpt2", "cluster": "2xh100", "batch": 8, "plan": "dp2 +bf16"}


def run_record(step: float = 0.02, **about: Any) -> bytes:
    """The record of a run, in the form that `foretell run` writes."""
    asked = {**ASKED, **about}
    size = 2.0**31
    measured = Measurement(
        step_seconds=step, memory_bytes=size, memory=MemoryUse(size, size, size, (size,), {}, ""),
        breakdown={"forward": step / 4, "backward": step / 2, "other": step / 4}, model=asked["model"],
        plan=asked["plan"], trainer="pytorch", batch=asked["batch"], ranks=2,
        samples=Samples(0.9 * step, 1.2 * step, 20), losses=[], collectives=(),
        by_rank={"forward": [step / 4, step / 5], "backward": [step / 2, step / 2]},
    )  # fmt: skip
    content = {"measurement": msgspec.to_builtins(measured), "assignment": {"model": asked["model"], "plan": "dp2"}}
    return msgspec.json.encode(record("run", content, cluster=asked["cluster"]))


TRACE = {
    "traceEvents": [
        {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": f"{PREDICTED}rank 0"}},
        {"name": "guess", "ph": "X", "pid": 0, "tid": 0, "ts": 0, "dur": 5},
        {"name": "process_name", "ph": "M", "pid": 1000, "tid": 0, "args": {"name": "measured, rank 0"}},
        {"name": "forward", "ph": "X", "pid": 1000, "tid": 0, "ts": 7e9, "dur": 5.5},
        {"name": "kernel", "ph": "X", "pid": "GPU 0", "tid": "stream 7", "ts": 7e9 + 2, "dur": 1},
    ]
}


@pytest.fixture
def handed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Hands a file in without a server."""
    monkeypatch.setenv(uploads.FOLDER, str(tmp_path))
    return lambda content: uploads.keep(content, tmp_path)


def test_a_run_brings_its_question_and_what_it_measured(server: Server):
    found = server.ask("POST", "/api/models", run_record()).json
    assert found["question"] | ASKED == found["question"]
    assert found["measured"]["step_seconds"] == 0.02
    beside = server.post("measured", {**found["question"], "measured": found["measured"]["name"]}).json
    predicted = server.post("predict", ASKED).json["step_seconds"]
    assert beside["prediction"]["step_seconds"] == predicted
    assert beside["error"] == pytest.approx(predicted / 0.02 - 1)
    low, high = beside["prediction"]["interval"]
    assert beside["inside"] == (low <= 0.02 <= high)
    assert "Part by part" in beside["html"] and "another" not in beside["html"]
    other = server.post("measured", {**ASKED, "batch": 16, "measured": found["measured"]["name"]}).json
    assert "Another batch: 8 was measured" in other["html"]


@pytest.mark.parametrize("content", [json.dumps(TRACE).encode(), run_record()], ids=["a trace", "a run"])
def test_a_trace_has_the_measured_processes_under_the_predicted_ones(server: Server, content: bytes):
    name = server.ask("POST", "/api/models", content).json["measured"]["name"]
    alone = server.post("trace", ASKED).json["traceEvents"]
    both = server.post("trace", {**ASKED, "measured": name}).json["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in both if one["name"] == "process_name"}
    assert {one["name"] for one in alone} < {one["name"] for one in both}
    told = max(pid for pid, said in names.items() if said.startswith("predicted: "))
    assert all(pid > told for pid, said in names.items() if said.startswith("measured: "))
    under = [one for one in both if one["pid"] > told]
    assert "guess" not in {one["name"] for one in under}
    assert min(one["ts"] for one in under if one["ph"] == "X") == 0


def test_a_question_of_files_or_code_is_not_asked(handed: Any):
    for model in ("/etc/passwd", "evil.py:factory", "os:getcwd", "config.json"):
        found = described(NamedModel(model=handed(run_record(model=model))))
        assert found.question is None and found.measured is not None and found.notes
    with pytest.raises(Exception, match="not whole"):
        described(NamedModel(model=handed(b'{"kind": "run", "content": {"measurement": {"step_seconds": -1}}}')))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.integers(-9, 9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(("name", "ph", "pid", "ts", "args", "traceEvents", "kind")), inner, max_size=4
        )
    ),
    max_leaves=12,
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from("XMBE"), "pid": st.integers(0, 3) | st.text(max_size=2), "ts": st.floats(-1e9, 1e9)},
        optional={"name": st.just("process_name") | st.text(max_size=3), "args": JSON},
    ),
    min_size=1,
    max_size=8,
)


@given(JSON)
def test_whatever_a_file_says_it_is_a_measurement_or_none(content: Any):
    try:
        assert seen("uploaded:", content) is None or content
    except Exception as problem:
        assert "not whole" in str(problem)


@given(EVENTS, st.integers(0, 9))
def test_processes_stay_apart_and_come_after(tmp_path_factory: Any, events: list[Any], first: int):
    folder = tmp_path_factory.mktemp("handed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(uploads.FOLDER, str(folder))
        found = processes(uploads.keep(json.dumps(events).encode(), folder), first)
    assert len(found) == len(events)
    assert all(one["pid"] >= first for one in found)
    assert len({one["pid"] for one in found}) == len({str(one["pid"]) for one in events})
    assert all(one["ts"] >= 0 for one in found if one["ph"] != "M")
