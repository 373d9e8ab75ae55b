"""What is made of the reports of ranks, and how a process finds out that it is one. Nothing here needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.plan.facts import facts
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.records.record import record
from foretell.records.store import read, write
from foretell.runtime.assignment import Assignment, Collective, Report
from foretell.runtime.comparison import of_record
from foretell.runtime.expected import expected, whenever
from foretell.runtime.measure import critical_rank, measurement
from foretell.runtime.place import RankPlace, by_srun, meeting_point, place

LENET = Assignment(model="lenet", plan="dp2", batch=8)
SECONDS = st.floats(1e-6, 10, allow_nan=False)


@st.composite
def reports(draw: st.DrawFn) -> tuple[Report, ...]:
    steps = draw(st.integers(1, 12))
    found: list[Report] = []
    for rank in range(draw(st.integers(1, 4))):
        names = draw(st.sets(st.sampled_from(("input", "forward", "backward", "optimizer", "exchange", "exposed.dp"))))
        phases = {name: draw(st.lists(SECONDS, min_size=steps, max_size=steps)) for name in sorted(names)}
        totals = draw(st.lists(SECONDS, min_size=steps, max_size=steps))
        found.append(Report(rank=rank, steps=totals, phases=phases, losses=[1.0], allocated=100 + rank, resting=50))
    return tuple(found)


@given(reports())
def test_a_breakdown_adds_up_and_the_median_lies_in_its_spread(found: tuple[Report, ...]) -> None:
    made = measurement(LENET, "dp2", 8, found)
    assert sum(made.breakdown.values()) == pytest.approx(made.step_seconds)
    assert min(made.breakdown.values()) >= -1e-12
    assert made.samples.p10 <= made.step_seconds * (1 + 1e-12)
    assert made.step_seconds <= made.samples.p90 * (1 + 1e-12)
    assert made.memory_bytes == max(report.allocated for report in found) == sum(made.memory.by_kind.values())


def test_a_step_is_as_slow_as_its_slowest_rank() -> None:
    one = Report(rank=0, steps=[1.0, 5.0, 1.0], losses=[2.0], phases={"forward": [1.0, 1.0, 1.0]})
    other = Report(rank=1, steps=[3.0, 2.0, 3.0], losses=[4.0], phases={"forward": [2.0, 2.0, 2.0]})
    made = measurement(LENET, "dp2", 8, (one, other))
    assert made.step_seconds == 3.0
    assert made.losses == [3.0]  # equal shares of the samples
    assert made.breakdown == {"forward": 2.0, "other": 1.0}  # of the rank that works most
    assert critical_rank((one, other)) is other


def test_ranks_without_a_loss_do_not_count() -> None:
    first = Report(rank=0, steps=[1.0], place={"pp": 0}, allocated=7)
    last = Report(rank=1, steps=[1.0], place={"pp": 1}, losses=[5.0], allocated=3)
    made = measurement(LENET, "pp2", 8, (first, last))
    assert made.losses == [5.0]
    assert made.memory.by_stage == (7.0, 3.0)


def test_phases_do_not_part_what_is_alike() -> None:
    rows = [
        Collective("all-reduce", ("tp",), 2, 64, 3, "forward"),
        Collective("all-reduce", ("tp",), 2, 64, 5, "backward"),
    ]
    assert whenever(rows) == [Collective("all-reduce", ("tp",), 2, 64, 8)]


def test_the_program_of_a_pipeline_differs_from_place_to_place() -> None:
    setting = Assignment(model="llama:layers=2,hidden=32,heads=4,ffn=48,vocab=40,seq=8", plan="pp2:1f1b +m2", batch=4)
    program = expand(lower(setting.setting))
    assert {one.kind for one in expected(program, 0)} == {"send", "receive"}
    assert [one.count for one in expected(program, 1)] == [2, 2]


# records


def _recorded(folder: Path, **changes: Any) -> Path:
    report = Report(rank=0, steps=[1.0], losses=[1.0], allocated=1000, resting=10, phases={"forward": [1.0]})
    made = measurement(LENET, "dp2", 8, (report, msgspec.structs.replace(report, rank=1)))
    content = {"assignment": msgspec.to_builtins(LENET), "measurement": msgspec.to_builtins(made), "place": 0}
    kind = changes.pop("kind", "run")
    return write(folder, record(kind, {**content, **changes}, model="lenet", plan="dp2", cluster="8xcpu"))


def test_a_record_is_predicted_again_and_subtracted(tmp_path: Path) -> None:
    found = of_record(read(_recorded(tmp_path)), "here", calibration="none")
    assert found.error.step_seconds == found.predicted.step_seconds - 1.0
    assert found.error.breakdown["forward"] == found.predicted.breakdown["forward"] - 1.0
    assert found.error.relative["memory_bytes"] == found.predicted.memory_bytes / 1000 - 1
    assert [one.kind for one in found.collectives.missing] == ["all-reduce"]  # this run has none


def test_what_is_no_whole_record_of_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a record of a prediction, not of a run"):
        of_record(read(_recorded(tmp_path, kind="prediction")), "here")
    with pytest.raises(BadInput, match="not a whole record"):
        of_record(read(_recorded(tmp_path, measurement={})), "here")


def test_a_cluster_that_is_too_small_is_not_predicted(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="dp2 has 2 ranks, and cpu has 1"):
        of_record(read(_recorded(tmp_path)), "here", "1xcpu")


# places


def test_a_process_alone_has_no_place() -> None:
    assert place({}) is None
    assert place({"SLURM_STEP_ID": "0", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}) is None
    shell = {"SLURM_STEP_ID": "4294967290", "SLURM_NTASKS": "16", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
    assert place(shell) is None  # that salloc opened on the first node


def test_torchrun_and_slurm_give_places() -> None:
    torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert place(torchrun) == RankPlace(5, 8, 1, 4)
    alone = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}
    assert place(alone) == RankPlace(3, 4, 1, by_srun=True)
    step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "11", "SLURM_LOCALID": "1"}
    nodes = {"SLURM_NTASKS": "32", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}
    assert place({**step, **nodes, "SLURM_NODEID": "2"}) == RankPlace(9, 11, 1, 3, by_srun=True)
    assert place({**step, **nodes, "SLURM_NODEID": "1"}) == RankPlace(9, 11, 1, 4, by_srun=True)
    assert by_srun(alone) and not by_srun({**alone, **torchrun}) and not by_srun({"SLURM_PROCID": "0"})
    with pytest.raises(BadInput, match="RANK=x"):
        place({"RANK": "x", "WORLD_SIZE": "8"})


def test_ranks_meet_at_the_first_node() -> None:
    assert meeting_point({"MASTER_ADDR": "given"}) == {}
    assert meeting_point({"SLURM_STEP_NODELIST": "gpu07,gpu09"})["MASTER_ADDR"] == "gpu07"
    assert meeting_point({"SLURM_STEP_NODELIST": "gpu[07-09,12]", "PATH": ""})["MASTER_ADDR"] == "gpu07"
    assert meeting_point({})["MASTER_ADDR"] == "127.0.0.1"


def test_two_steps_of_slurm_on_one_host_do_not_meet() -> None:
    steps = [{"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": step} for step in ("0", "1")]
    one, other = (meeting_point(step)["MASTER_PORT"] for step in steps)
    assert one != other and meeting_point(steps[0])["MASTER_PORT"] == one
    assert meeting_point({**steps[0], "MASTER_PORT": "29500"})["MASTER_PORT"] == "29500"


@pytest.mark.parametrize(("asked", "sequence"), [(0, 4096), (32, 32)])
def test_a_configuration_runs_with_its_sequence_or_another(asked: int, sequence: int) -> None:
    file = Path(__file__).parents[1] / "data" / "hf" / "Llama-3.2-1B" / "config.json"
    run = Assignment(model=str(file), plan="dp2", batch=4, seq=asked)
    assert f",seq={sequence}," in run.model
    assert facts(run.setting.graph).sequence == sequence
    assert msgspec.json.decode(msgspec.json.encode(run), type=Assignment) == run
