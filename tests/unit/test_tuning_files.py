"""Files of TRL, Axolotl, LLaMA-Factory and torchtune as people write them: read as the plans they are, or refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from foretell.dialects import (
    Configuration,
    Launch,
    dialect,
    open_configuration,
    put_together,
    taken_apart,
    write,
)
from foretell.dialects._adapters import HUB
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.plan.policies.loss import Loss
from foretell.plan.text import parse

TRL = """
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: my/data
dtype: bfloat16
bf16: true
max_length: 4096
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
gradient_checkpointing: true
use_peft: true
lora_r: 32
lora_alpha: 16
lora_target_modules: [q_proj, v_proj]
load_in_4bit: true
optim: paged_adamw_8bit
"""

AXOLOTL = """
base_model: meta-llama/Llama-3.1-8B
load_in_8bit: false
load_in_4bit: true
adapter: qlora
sequence_len: 2048
sample_packing: true
lora_r: 64
lora_alpha: 16
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_bnb_8bit
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
fsdp_version: 2
fsdp_config:
  reshard_after_forward: true
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
"""

FACTORY = """
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: identity
template: llama3
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
bf16: true
"""

TUNE = """
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  apply_lora_to_output: False
  lora_rank: 8
  lora_alpha: 16
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 2048
batch_size: 2
gradient_accumulation_steps: 8
optimizer:
  _component_: torch.optim.AdamW
  fused: True
dtype: bf16
enable_activation_checkpointing: True
compile: False
"""

READ = {
    "trl": (TRL, 1, "dp1 +m8 +recompute:block +bf16 +lora32 +adapt:query,value +fp32-adapters +nf4"),
    "axolotl": (AXOLOTL, 2, "dp2:zero3 +m4 +recompute:block +bf16 +lora64 +fp32-adapters +nf4-dq"),
    "llama-factory": (FACTORY, 2, "dp2 +m8 +recompute:block +bf16 +lora8 +fp32-adapters"),
    "torchtune": (
        TUNE,
        2,
        "dp2:zero3 +m8 +recompute:block +bf16:pure +lora8 +adapt:query,value,output,feed_forward",
    ),
}


def opened(folder: Path, text: str) -> Configuration:
    file = folder / "run.yaml"
    file.write_text(text)
    return open_configuration(str(file))


@pytest.mark.parametrize("name", READ)
def test_is_read_as_the_plan_it_is(name: str, tmp_path: Path) -> None:
    text, ranks, plan = READ[name]
    found = opened(tmp_path, text)
    assert found.dialect.name == name
    recipe = found.recipe(Launch(ranks, 0))
    assert str(put_together(recipe)) == plan
    assert recipe.sequence == (4096 if name == "trl" else 2048)
    assert recipe.model == ("qwen2.5-7b" if name == "trl" else "llama3-8b")
    assert recipe.optimizer == ("adamw8bit" if name in ("trl", "axolotl") else "adamw")
    assert not [note for note in found.notes if note.startswith("not read")]


def test_what_is_not_as_it_says_is_told(tmp_path: Path) -> None:
    notes = " ".join(opened(tmp_path, TRL).notes)
    assert "paged_adamw_8bit moves states" in notes
    assert "bf16 is auto" in " ".join(opened(tmp_path, AXOLOTL).notes)
    assert "dtype is not set" in " ".join(opened(tmp_path, TRL.replace("dtype: bfloat16\n", "")).notes)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"{TRL}deepspeed: ds.json\n", "DeepSpeed"),
        (TRL.replace("[q_proj, v_proj]", "[q_proj, gate_proj]"), "no plan has a word"),
        (f"{AXOLOTL}rl: kto\n", "rl = .kto"),
        (AXOLOTL.replace("adapter: qlora", "adapter: vera"), "vera"),
        (FACTORY.replace("stage: sft", "stage: kto"), "stage = .kto"),
        (FACTORY.replace("finetuning_type: lora", "finetuning_type: galore"), "galore"),
        (f"{FACTORY}deepspeed: my.json\n", "stage"),
        (f"{TUNE}optimizer_in_bwd: true\n", "backward"),
        (TUNE.replace("apply_lora_to_output: False", "apply_lora_to_output: True"), "head"),
    ],
)
def test_what_no_plan_has_is_refused(text: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=what) as caught:
        opened(tmp_path, text).recipe(Launch(2, 0))
    assert caught.value.fix


PLAIN = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/Capybara\noutput_dir: out\n"


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        (AXOLOTL.replace("load_in_4bit: true\n", "load_in_4bt: true\n"), "is in 4 bits", "in place of load_in_4bt"),
        (AXOLOTL.replace("load_in_4bit: true\n", ""), "is in 4 bits", "load_in_4bit: true, or lora"),
        (f"{PLAIN}per_device_train_batch_size: two\n", "per_device_train_batch_size is 'two'", "a whole number"),
        (f"{PLAIN}max_length: many\n", "at max_length", "as the trainer"),
    ],
)
def test_errors_name_keys_of_the_file(text: str, what: str, fix: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=what) as caught:
        opened(tmp_path, text).recipe(Launch(2, 0))
    assert fix in caught.value.fix


@pytest.mark.parametrize(("data", "storage"), [("dp2:zero3", "bfloat16"), ("dp2", None)])
def test_a_base_in_4_bits_lies_in_shares_as_floats(data: str, storage: str | None) -> None:
    """FSDP takes shares of no others (bitsandbytes, docs/source/fsdp_qlora)."""
    recipe = taken_apart(parse(f"{data} +bf16 +lora8 +fp32-adapters +nf4"), batch=2, model="llama3-8b", sequence=512)
    assert write(dialect("trl"), recipe).document.get("bnb_4bit_quant_storage") == storage


def test_what_a_file_means_instead_is_told_in_words_of_a_plan() -> None:
    recipe = taken_apart(parse("dp2:zero3 +bf16 +lora8"), batch=2, model="llama3-8b", sequence=512)
    (unsaid,) = write(dialect("trl"), recipe).unsaid
    assert unsaid.figure == "wide_adapters"
    assert "--plan '... +fp32-adapters' predicts what it runs" in unsaid.where


def test_axes_that_a_file_has_not_are_named() -> None:
    recipe = taken_apart(parse("tp8 dp2 +bf16"), batch=32, model="llama3-8b", sequence=512)
    with pytest.raises(BadInput, match="trl cannot express this plan: its files have no tensor parallelism") as caught:
        write(dialect("trl"), recipe)
    assert caught.value.fix == "another target, or --plan 'dp16:zero3 +bf16'"
    write(dialect("trl"), taken_apart(parse("dp16:zero3 +bf16"), batch=32, model="llama3-8b", sequence=512))


def test_an_empty_file_is_empty() -> None:
    with pytest.raises(BadInput, match="the file is empty"):
        dialect("trl").format.read("")


def test_a_key_that_is_nearly_one_is_told_with_it(tmp_path: Path) -> None:
    lora = AXOLOTL.replace("adapter: qlora", "adapter: lora").replace("load_in_4bit: true", "load_in_4bt: true")
    assert "may change the cost: load_in_4bt (load_in_4bit?)" in " ".join(opened(tmp_path, lora).notes)


def test_without_adapters(tmp_path: Path) -> None:
    """The precision that weights are in: Axolotl's loader takes 16 bits, autocast of the others does not."""
    full = AXOLOTL.replace("adapter: qlora\n", "").replace("load_in_4bit: true\n", "")
    assert str(put_together(opened(tmp_path, full).recipe(Launch(2, 0)))) == "dp2:zero3 +m4 +recompute:block +bf16:pure"
    full = FACTORY.replace("finetuning_type: lora", "finetuning_type: full")
    assert str(put_together(opened(tmp_path, full).recipe(Launch(2, 0)))) == "dp2 +m8 +recompute:block +amp_bf16"
    zero = f"{full}deepspeed: examples/deepspeed/ds_z2_offload_config.json\n"
    plan = "dp2:zero2 +m8 +recompute:block +bf16 +offload:optimizer"
    assert str(put_together(opened(tmp_path, zero).recipe(Launch(2, 0)))) == plan


@pytest.mark.parametrize(
    ("more", "plan"),
    [
        ("", "dp1 +recompute:block +amp_bf16"),
        ("bf16: auto\n", "dp1 +recompute:block +amp_bf16"),
        ("bf16: false\ngradient_checkpointing: false\n", "dp1 +fp32"),
        ("fp16: true\n", "dp1 +recompute:block +amp_fp16"),
        ("dtype: bfloat16\n", "dp1 +recompute:block +bf16:pure"),
        ("dtype: bfloat16\nuse_peft: true\n", "dp1 +recompute:block +bf16 +lora16 +fp32-adapters"),
    ],
)
def test_what_a_file_of_trl_does_not_say_is_as_its_config_has_it(more: str, plan: str, tmp_path: Path) -> None:
    """SFTConfig computes in bf16 and runs blocks again, unless it is told otherwise."""
    found = opened(tmp_path, PLAIN + more)
    assert found.dialect.name == "trl"
    assert str(put_together(found.recipe(Launch(1, 0)))) == plan


def test_blocks_that_fsdp_runs_again_are_run_again(tmp_path: Path) -> None:
    text = f"{PLAIN}fsdp: full_shard auto_wrap\ngradient_checkpointing: false\n"
    assert str(put_together(opened(tmp_path, text).recipe(Launch(2, 0)))) == "dp2:zero3 +bf16"
    text += "fsdp_config:\n  activation_checkpointing: true\n"
    assert str(put_together(opened(tmp_path, text).recipe(Launch(2, 0)))) == "dp2:zero3 +recompute:block +bf16"


def test_a_file_is_of_the_program_whose_words_it_has(tmp_path: Path) -> None:
    """Model, batch and precision have the same keys in both."""
    same = "model_name_or_path: Qwen/Qwen3-0.6B\nbf16: true\n"
    assert opened(tmp_path, f"{same}dataset_name: a/b\n").dialect.name == "trl"
    assert opened(tmp_path, f"{same}dataset: identity\ntemplate: qwen\n").dialect.name == "llama-factory"
    with pytest.raises(BadInput, match="DeepSpeed"):
        opened(tmp_path, f"{same}dataset_name: a/b\ndeepspeed: zero2.json\n").recipe(Launch(2, 0))


@pytest.mark.parametrize("said", ["embed_tokens,lm_head", "[embed_tokens, lm_head]"])
def test_modules_that_are_trained_whole_beside_adapters(said: str, tmp_path: Path) -> None:
    found = opened(tmp_path, f"{FACTORY}additional_target: {said}\n")
    plan = put_together(found.recipe(Launch(2, 0)))
    assert str(plan) == "dp2 +m8 +recompute:block +bf16 +lora8 +adapt:embeddings +fp32-adapters"
    assert "not counted" not in " ".join(found.notes)
    assert "has norm, which no plan has a word for" in " ".join(
        opened(tmp_path, f"{FACTORY}additional_target: embed_tokens,norm\n").notes
    )


def test_plugins_are_told(tmp_path: Path) -> None:
    """Kernels of Liger beside its loss, and a loss that is cut, change what a step costs, and no plan has them."""
    text = f"{AXOLOTL}plugins:\n  - {LIGER}\n  - axolotl.integrations.cut_cross_entropy.CutPlugin\nliger_rope: true\n"
    told = " ".join(opened(tmp_path, text).notes)
    assert "CutPlugin, which may change the cost" in told and "may change the cost: liger_rope" in told
    assert "not read" not in " ".join(opened(tmp_path, AXOLOTL).notes)


LIGER = "axolotl.integrations.liger.LigerPlugin"
FUSED = "liger_fused_linear_cross_entropy: true\n"


@pytest.mark.parametrize(
    ("text", "form", "note"),
    [
        (f"{AXOLOTL}{FUSED}plugins: [{LIGER}]\n", "chunks", ""),
        (f"{AXOLOTL}{FUSED}", "", "plugins has no"),
        (f"{FACTORY}enable_liger_kernel: true\n", "chunks", "norms, rotary positions and SwiGLU"),
        (f"{FACTORY}enable_liger_kernel: false\n", "", ""),
        (f"{PLAIN}use_liger_kernel: true\n", "chunks", "norms, rotary positions and SwiGLU"),
    ],
)
def test_losses_in_chunks_are_read(text: str, form: str, note: str, tmp_path: Path) -> None:
    found = opened(tmp_path, text)
    assert put_together(found.recipe(Launch(2, 0))).policy(Loss).form == form
    assert note in " ".join(found.notes)


@pytest.mark.parametrize("name", ["axolotl", "llama-factory", "trl"])
def test_losses_in_chunks_are_written(name: str) -> None:
    plan = parse("dp2 +m2 +bf16 +recompute:block +lora8 +fp32-adapters +loss:chunks")
    recipe = taken_apart(plan, batch=4, model="llama3-8b", sequence=2048)
    assert "iger" in str(write(dialect(name), recipe).document)


OWN = {
    *("model_name_or_path", "dtype", "use_peft", "lora_r", "lora_alpha", "lora_target_modules", "lora_modules_to_save"),
    *("load_in_4bit", "bnb_4bit_quant_type", "use_bnb_nested_quant", "max_length", "packing", "dataset_name"),
    "bnb_4bit_quant_storage",
}
"""Fields of TRL's own (SFTConfig, ModelConfig, ScriptArguments)."""


def test_the_rest_of_trl_is_fields_of_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    fields = {one.name for one in dataclasses.fields(transformers.TrainingArguments)}
    for text in ("dp4:zero3 +m2 +bf16 +compiled", "dp2 +m2 +bf16 +lora8 +nf4-dq +adapt:embeddings", "dp1 +amp_fp16"):
        plan = parse(text)
        recipe = taken_apart(plan, batch=plan.ranks * plan.microbatches, model="llama3-8b", sequence=2048)
        document = write(dialect("trl"), recipe).document
        assert {key.partition(".")[0] for key in document} - OWN <= fields


def test_ids_of_the_hub_mean_the_models_they_stand_for() -> None:
    assert {name: zoo.canonical(known) for name, known in HUB.items()} == {name: name for name in HUB}


@pytest.mark.parametrize(
    "name", ["gpt-oss-20b", "gemma3-27b", "llama4-scout", "kimi-k2", "glm-4.5", "minimax-m2", "olmo2-7b", "mamba2-2.7b"]
)
def test_models_of_the_hub_are_written_by_their_ids(name: str) -> None:
    document = write(dialect("trl"), taken_apart(parse("dp2 +bf16:pure"), batch=2, model=name, sequence=512)).document
    assert document["model_name_or_path"] == HUB[name]
    assert "/" in HUB[name]


@pytest.mark.parametrize(
    ("name", "task"),
    [
        (name, task)
        for name, last in (("axolotl", "grpo"), ("llama-factory", "ppo"))
        for task in ("dpo", "reward", last)
    ],
)
def test_what_comes_after_pretraining_is_written_and_read(name: str, task: str, tmp_path: Path, foretell: Any) -> None:
    """The file says the method, which `align` takes from it; another verb refuses it and says so."""
    plan = "dp4 +m8 +recompute:block +bf16:pure"
    writes = task in ("grpo", "ppo")
    lengths = ("--lengths", "300,600") if writes else ("--seq", "512")
    many = ("--answers", "4") if task == "grpo" else ()
    place = ("--place", "together") if writes else ()
    asked = ("llama3.2-1b", "--method", task, "--plan", plan, *many, "--on", "4xh100", "--batch", "64", *lengths)
    file = tmp_path / "after.yaml"
    file.write_text(foretell("align", *asked, "--to", name).out)
    again = open_configuration(str(file)).recipe(Launch(4, 0))
    assert (again.task, again.answers, str(put_together(again))) == (task, 4 if many else 0, plan)
    beside = (*place, *lengths) if writes else ()
    told = foretell("align", "--from-config", str(file), "--on", "4xh100", *beside, "--json")
    same = foretell("align", *asked, *place, "--trainer", name, "--json")
    one, other = json.loads(told.out), json.loads(same.out)
    assert one["ways"][0]["step_seconds"] == other["ways"][0]["step_seconds"] > 0
    refused = foretell("predict", "--from-config", str(file), "--on", "4xh100")
    assert refused.code == 2 and "foretell align" in refused.err


def test_frozen_layers_of_llama_factory(tmp_path: Path, foretell: Any) -> None:
    plan = "dp1 +m8 +bf16:pure +train:last4"
    told = foretell("export", "llama3.2-1b", "--on", "1xh100", "--plan", plan, "--batch", "64", "--to", "llama-factory")
    file = tmp_path / "freeze.yaml"
    file.write_text(told.out)
    assert str(put_together(open_configuration(str(file)).recipe(Launch(1, 0)))) == plan
