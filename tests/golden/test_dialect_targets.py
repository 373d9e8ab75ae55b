"""What a dialect writes, given to the trainer's own reader. One that is not installed is skipped."""

from __future__ import annotations

import contextlib
import itertools
import json
import shlex
from pathlib import Path
from unittest import mock

import pytest

from foretell.dialects import dialect, taken_apart, write
from foretell.dialects._model import shape_of
from foretell.dialects._shell import arguments as written_arguments
from foretell.errors import BadInput
from foretell.plan.text import parse
from laws.test_dialects import legal

pytestmark = pytest.mark.slow

MODEL = "llama3-8b"


def written(name: str, plan: str, folder: Path) -> Path:
    """The file of a plan with 64 samples a step."""
    recipe = taken_apart(parse(plan), batch=64, model=MODEL, shape=shape_of(MODEL), sequence=2048)
    file = folder / dialect(name).file
    file.write_text(write(dialect(name), recipe).text)
    return file


def test_accelerate(tmp_path: Path) -> None:
    args = pytest.importorskip("accelerate.commands.config.config_args", reason="pip install accelerate")
    parallel = pytest.importorskip("accelerate.parallelism_config")
    found = args.ClusterConfig.from_yaml_file(written("accelerate", "dp2:zero3,shard4 tp2:sp +bf16", tmp_path))
    assert (found.distributed_type.value, found.num_processes, found.mixed_precision) == ("FSDP", 16, "bf16")
    prefix = "parallelism_config_"
    sizes = {name.removeprefix(prefix): size for name, size in found.parallelism_config.items()}
    mesh = parallel.ParallelismConfig(**sizes)
    assert (mesh.dp_replicate_size, mesh.dp_shard_size, mesh.tp_size) == (2, 4, 2)


def test_accelerate_takes_random_legal_plans(tmp_path: Path) -> None:
    args = pytest.importorskip("accelerate.commands.config.config_args", reason="pip install accelerate")
    parallel = pytest.importorskip("accelerate.parallelism_config")
    file, taken = tmp_path / "accelerate.yaml", 0
    for _, recipe in itertools.islice(legal("accelerate"), 60):
        with contextlib.suppress(BadInput):
            file.write_text(write(dialect("accelerate"), recipe).text)
            found = args.ClusterConfig.from_yaml_file(file)
            assert found.num_processes == recipe.ranks
            sizes = {name.removeprefix("parallelism_config_"): size for name, size in found.parallelism_config.items()}
            sizes.pop("cp_comm_strategy", None)  # which is given to the mesh by the launcher
            mesh = parallel.ParallelismConfig(**sizes)
            if sizes:
                assert (mesh.tp_size, mesh.cp_size) == (recipe.tensor, recipe.context)
                assert mesh.dp_replicate_size * mesh.dp_shard_size == recipe.data
            taken += 1
    assert taken >= 5


def test_deepspeed(tmp_path: Path) -> None:
    config = pytest.importorskip("deepspeed.runtime.config", reason="pip install deepspeed")
    file = written("deepspeed", "dp8:zero3 +m2 +bf16 +offload:optimizer", tmp_path)
    with mock.patch("deepspeed.comm.get_world_size", lambda *_: 8), mock.patch("deepspeed.comm.get_rank", lambda *_: 0):
        found = config.DeepSpeedConfig(str(file))
    assert (found.train_batch_size, found.gradient_accumulation_steps, found.zero_optimization_stage) == (64, 2, 3)
    assert found.bfloat16_config.enabled
    assert found.zero_config.offload_optimizer.device == "cpu"


def test_torchtitan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchtitan.trainer", reason="pip install torchtitan, which needs triton")
    written("torchtitan", "pp2:interleaved,v2 dp2:zero3 tp2:sp +m8 +bf16 +recompute:block", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import planned  # pyright: ignore[reportMissingImports]

    found = planned.planned()
    degrees = found.parallelism
    assert (degrees.tensor_parallel_degree, degrees.pipeline_parallel_degree) == (2, 2)
    assert degrees.pipeline_parallel_schedule == "Interleaved1F1B"
    assert (found.training.global_batch_size, found.training.local_batch_size) == (64, 32)


def test_nanotron(tmp_path: Path) -> None:
    config = pytest.importorskip("nanotron.config", reason="nanotron is installed from its repository")
    found = config.get_config_from_file(
        str(written("nanotron", "pp2:1f1b dp4:zero1 tp2:sp +m8 +bf16 +recompute:block", tmp_path))
    )
    degrees = found.parallelism
    assert (degrees.dp, degrees.pp, degrees.tp, degrees.recompute_layer) == (4, 2, 2, True)
    assert (found.tokens.micro_batch_size, found.tokens.batch_accumulation_per_replica) == (2, 8)
    assert found.model.model_config.num_hidden_layers == 32


def test_lightning(tmp_path: Path) -> None:
    strategies = pytest.importorskip("lightning.pytorch.strategies", reason="pip install lightning")
    yaml = pytest.importorskip("yaml")
    said = yaml.safe_load(written("lightning", "dp2:zero3,shard4 +bf16", tmp_path).read_text())["trainer"]
    name = said["strategy"]["class_path"].rpartition(".")[2]
    given = {**said["strategy"]["init_args"], "device_mesh": tuple(said["strategy"]["init_args"]["device_mesh"])}
    assert getattr(strategies, name)(**given).sharding_strategy.name == "HYBRID_SHARD"


def test_torchtitan_toml(tmp_path: Path) -> None:
    manager = pytest.importorskip("torchtitan.config.job_config", reason="pip install 'torchtitan<0.3'")
    assert manager.JobConfig
    from torchtitan.config.manager import ConfigManager  # pyright: ignore[reportMissingImports]

    file = written("torchtitan-toml", "pp2:interleaved,v2 dp2:zero3 tp2:sp +m8 +bf16 +recompute:block", tmp_path)
    found = ConfigManager().parse_args(["--job.config_file", str(file)])
    assert (found.parallelism.pipeline_parallel_schedule, found.training.local_batch_size) == ("Interleaved1F1B", 32)
    assert found.activation_checkpoint.mode == "full"


def test_megatron_lm(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = pytest.importorskip(
        "megatron.training.arguments", reason="Megatron-LM is installed from its repository"
    )
    plan = "pp2:interleaved,v2 dp2:zero1 tp2:sp +m8 +bf16 +recompute:block"
    recipe = taken_apart(parse(plan), batch=64, model=MODEL, shape=shape_of(MODEL), sequence=2048)
    options = written_arguments(write(dialect("megatron-lm"), recipe).document)
    monkeypatch.setattr("sys.argv", ["pretrain_gpt.py", *(word for one in options for word in shlex.split(one))])
    found = arguments.parse_args()
    assert (found.tensor_model_parallel_size, found.num_virtual_stages_per_pipeline_rank) == (2, 2)
    assert (found.global_batch_size, found.recompute_granularity, found.swiglu) == (64, "full", True)


def test_json_is_json(tmp_path: Path) -> None:
    """No comment and no trailing comma ever comes into a JSON file."""
    assert json.loads(written("deepspeed", "dp8:zero1 +bf16", tmp_path).read_text())["zero_optimization"] == {
        "stage": 1
    }
