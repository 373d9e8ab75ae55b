"""JSON and YAML as DeepSpeed, Accelerate and nanotron ship them: what is told, what is taken from another file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretell.dialects import Launch, open_configuration, put_together
from foretell.errors import BadInput


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(("name", "word"), [("OneBitAdam", "adam"), ("ZeroOneAdam", "adam"), ("OneBitLamb", "lamb")])
def test_compressing_optimizers_are_told(tmp_path: Path, name: str, word: str) -> None:
    text = json.dumps({"train_batch_size": 64, "optimizer": {"type": name, "params": {"freeze_step": 23000}}})
    found = open_configuration(written(tmp_path, "ds.json", text))
    assert found.recipe(Launch(8)).optimizer == word
    assert any(note.startswith(f"{name} sends compressed gradients") for note in found.notes)


def test_what_changes_the_cost_of_deepspeed_is_told(tmp_path: Path) -> None:
    text = {"train_batch_size": 64, "steps_per_print": 10, "gradient_clipping": 1.0, "scheduler": {"type": "WarmupLR"}}
    quiet = open_configuration(written(tmp_path, "a.json", json.dumps(text)))
    assert quiet.notes == ()
    dear = text | {"progressive_layer_drop": {"enabled": True, "theta": 0.5}, "communication_data_type": "fp32"}
    told = open_configuration(written(tmp_path, "b.json", json.dumps(dear)))
    words = "progressive_layer_drop.enabled, progressive_layer_drop.theta, communication_data_type"
    assert told.notes == (f"not read, and may change the cost: {words}",)


ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 4\nmixed_precision: bf16\ndeepspeed_config:\n"


def test_accelerate_with_words_of_deepspeed(tmp_path: Path) -> None:
    text = f"{ACCELERATE}  zero_stage: 3\n  gradient_accumulation_steps: 2\n  offload_optimizer_device: cpu\n"
    found = open_configuration(written(tmp_path, "a.yaml", text))
    assert str(put_together(found.recipe(Launch(0, 8)))) == "dp4:zero3 +m2 +bf16 +offload:optimizer"


def test_accelerate_with_a_file_of_deepspeed(tmp_path: Path) -> None:
    text = f"{ACCELERATE}  deepspeed_config_file: ds.json\n"
    with pytest.raises(BadInput, match=r"ds\.json, which it names, is not beside it"):
        open_configuration(written(tmp_path, "a.yaml", text)).recipe(Launch(0, 8))
    own = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
    written(tmp_path, "ds.json", json.dumps(own))
    found = open_configuration(written(tmp_path, "a.yaml", text))
    assert found.dialect.name == "deepspeed"
    assert str(put_together(found.recipe(Launch()))) == "dp4:zero2 +bf16"


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("use_cpu: true", "a run on processors"),
        ("parallelism_config:\n  parallelism_config_sp_size: 4", "sequence parallelism of its own"),
        ("distributed_type: MEGATRON_LM", "distributed_type is MEGATRON_LM"),
    ],
)
def test_what_accelerate_cannot_say_here_is_refused(tmp_path: Path, more: str, what: str) -> None:
    kind = "" if "distributed_type" in more else "distributed_type: FSDP\n"
    file = written(tmp_path, "a.yaml", f"{kind}num_processes: 8\nmixed_precision: bf16\n{more}\n")
    with pytest.raises(BadInput, match=what):
        open_configuration(file).recipe(Launch(0, 8))


def test_replicas_on_devices_of_other_makers(tmp_path: Path) -> None:
    file = written(tmp_path, "a.yaml", "distributed_type: MULTI_XPU\nnum_processes: 4\nnum_machines: 1\n")
    assert str(put_together(open_configuration(file).recipe(Launch(0, 4)))) == "dp4 +fp32"


def test_what_changes_the_cost_of_nanotron_is_told(tmp_path: Path) -> None:
    text = "parallelism: {dp: 2, tp: 1, pp: 1}\ntokens: {micro_batch_size: 1, sequence_length: 32, train_steps: 9}\n"
    assert open_configuration(written(tmp_path, "a.yaml", text)).notes == ()
    told = open_configuration(written(tmp_path, "b.yaml", f"{text}doremi: {{domain_names: a}}\n"))
    assert told.notes == ("not read, and may change the cost: doremi.domain_names",)
