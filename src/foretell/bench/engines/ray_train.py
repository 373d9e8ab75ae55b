# pyright: basic
"""Ray Train: its TorchTrainer starts the ranks as actors, makes their group and prepares the module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.bench.engine import Engine

if TYPE_CHECKING:
    from foretell.runtime.assignment import Assignment, RunOutcome
    from foretell.runtime.subject import Subject

ENGINE = Engine(
    title="Ray Train",
    plan="dp{n}",
    one_host=True,
    package="ray[train]",
    extras=("pandas", "pyarrow"),
    environment={"RAY_TRAIN_V2_ENABLED": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"},
)


def apply(subject: Subject) -> None:
    from ray.train.torch import prepare_model  # pyright: ignore[reportMissingImports]

    from foretell.bench.wrapping import in_buckets, optimizer_of, wrap

    optimizer = optimizer_of(subject)
    wrap(subject, prepare_model(subject.parts[0]), optimizer, lambda loss: loss.backward(), "module.")
    in_buckets(subject)


def outcome(assignment: Assignment, folder: Path) -> RunOutcome:
    """Ray starts the ranks; each leaves its report in a folder of its own run."""
    import tempfile

    import msgspec
    import ray  # pyright: ignore[reportMissingImports]
    from ray.train import RunConfig, ScalingConfig  # pyright: ignore[reportMissingImports]
    from ray.train.torch import TorchConfig, TorchTrainer  # pyright: ignore[reportMissingImports]

    from foretell.processes import same_signals
    from foretell.runtime.assignment import Failure, Report, RunOutcome

    ranks = assignment.setting.plan.ranks
    with tempfile.TemporaryDirectory(dir=folder) as meeting:
        with same_signals():  # Ray takes SIGTERM for itself
            ray.init(num_cpus=ranks + 1, include_dashboard=False, log_to_driver=False)
        trainer: Any = TorchTrainer(
            _rank,
            train_loop_config={"assignment": msgspec.json.encode(assignment).decode(), "folder": meeting},
            scaling_config=ScalingConfig(num_workers=ranks, use_gpu=assignment.device == "cuda"),
            torch_config=TorchConfig(backend="nccl" if assignment.device == "cuda" else "gloo"),
            run_config=RunConfig(storage_path=meeting, name="bench"),
        )
        try:
            trainer.fit()
        except Exception as problem:
            return RunOutcome(failure=Failure("BadInput", f"Ray Train ended with an error:\n{problem}"[:2000]))
        finally:
            ray.shutdown()
        files = (Path(meeting) / f"report-{rank}.json" for rank in range(ranks))
        return RunOutcome(tuple(msgspec.json.decode(file.read_bytes(), type=Report) for file in files))


def _rank(told: dict[str, str]) -> None:
    import msgspec
    import ray.train  # pyright: ignore[reportMissingImports]

    from foretell.runtime.assignment import Assignment
    from foretell.runtime.training import trained

    assignment = msgspec.json.decode(told["assignment"], type=Assignment)
    rank = ray.train.get_context().get_world_rank()
    report, _ = trained(assignment, assignment.setting, rank, apply)
    (Path(told["folder"]) / f"report-{rank}.json").write_bytes(msgspec.json.encode(report))
