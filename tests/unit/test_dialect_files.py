"""Dialects: their fields by name, scripts as people write them, and files that are none."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from foretell.dialects import Launch, dialect, names, open_configuration, put_together, taken_apart, write
from foretell.dialects._python import read as read_python
from foretell.dialects._shell import read as read_shell
from foretell.errors import BadInput, ForetellError
from foretell.plan.text import parse

MEGATRON = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-4}
TP=2  # inside a node
WORLD=$(($GPUS_PER_NODE*$NNODES))
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
)
GPT_MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --rotary-base 500000
    --untie-embeddings-and-output-weights
    --vocab-size 128256
    --seq-length 8192
)
ARGS="--micro-batch-size 1 \\
      --global-batch-size 128"
ARGS+=" --bf16"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py "${GPT_MODEL_ARGS[@]}" $ARGS \\
    --tensor-model-parallel-size $TP \\
    --pipeline-model-parallel-size 4 \\
    --num-layers-per-virtual-pipeline-stage 4 \\
    --sequence-parallel \\
    --use-distributed-optimizer --overlap-grad-reduce \\
    --recompute-activations --load $1
"""


def opened(folder: Path, name: str, text: str) -> Any:
    file = folder / name
    file.write_text(text)
    return open_configuration(str(file))


def plan(found: Any, ranks: int = 0, batch: int = 0) -> str:
    return str(put_together(found.recipe(Launch(ranks, batch))))


def test_a_script_with_variables_and_arrays(tmp_path: Path) -> None:
    found = opened(tmp_path, "run.sh", MEGATRON)
    recipe = found.recipe(Launch())
    assert found.dialect.name == "megatron-lm"
    assert plan(found) == "pp4:interleaved,v2 dp4:zero1 tp2:sp +m32 +recompute:attention +bf16"
    assert (recipe.model, recipe.sequence, recipe.batch, recipe.ranks) == ("llama3-8b", 8192, 128, 32)


def test_layouts_say_the_layers_of_each_stage(tmp_path: Path) -> None:
    text = "pretrain_gpt.py --pipeline-model-parallel-size 4 --bf16 --micro-batch-size 1 --global-batch-size 8 "
    found = opened(
        tmp_path, "a.sh", text + "--pipeline-model-parallel-layout 'Ettt|t*4|(tt)*2,|ttL' --overlap-grad-reduce"
    )
    assert plan(found, ranks=4) == "pp4:1f1b,split=3/4/4/2 +m8 +bf16"


def test_shell_words() -> None:
    read = read_shell("x=3\npython t.py --a=$x --b ${y:-7} --flag --list 1 2 3 --c $(( (x+1)*2 )) # --no\n")
    assert read == {"()": "t.py", "a": 3, "b": 7, "flag": True, "list": [1, 2, 3], "c": 8}


def test_shell_sums_in_variables() -> None:
    text = "N=4\nG=8\nW=$((N*G))\nH=$(hostname)\nM=$((W / 2))\npython t.py --a $W --b $M --c $H\n"
    assert read_shell(text) == {"()": "t.py", "a": 32, "b": 16, "c": "$(hostname)"}


def test_a_script_whose_variables_never_end() -> None:
    with pytest.raises(BadInput, match="grow without end"):
        read_shell("x=aaaaaaaa\n" + "x=$x$x\n" * 40 + "python t.py --a $x\n")


def test_what_only_a_running_shell_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "TP=${TP:-$TENSOR}\npretrain_gpt.py --tensor-model-parallel-size $TP "
    text += "--micro-batch-size 1 --global-batch-size 8 --bf16"
    found = opened(tmp_path, "a.sh", text)
    with pytest.raises(BadInput, match="only a running shell knows") as problem:
        plan(found, ranks=8)
    assert problem.value.fix == "TENSOR=8 foretell ..."
    monkeypatch.setenv("TENSOR", "4")
    assert plan(opened(tmp_path, "a.sh", text), ranks=8) == "dp2 tp4 +m4 +bf16 +no-overlap"


def test_models_that_sizes_do_not_tell_are_not_guessed(tmp_path: Path) -> None:
    sizes = "num_hidden_layers: 2, hidden_size: 64, num_attention_heads: 4, intermediate_size: 256, vocab_size: 512"
    text = "parallelism: {{dp: 2, tp: 1, pp: 1}}\ntokens: {{micro_batch_size: 1, sequence_length: 32}}\n"
    text += "model: {{model_config: {{{kind}: true, {sizes}}}}}\n"
    llama = opened(tmp_path, "a.yaml", text.format(kind="is_llama_config", sizes=sizes)).recipe(Launch())
    assert llama.model.startswith("llama:layers=2,hidden=64")
    assert not opened(tmp_path, "b.yaml", text.format(kind="is_qwen2_config", sizes=sizes)).recipe(Launch()).model


def test_torchtitan_toml(tmp_path: Path) -> None:
    text = """
[model]
name = "llama3"
flavor = "70B"
[training]
local_batch_size = 8
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
[compile]
enable = true
"""
    found = opened(tmp_path, "llama3_70b.toml", text)
    assert plan(found, ranks=64) == "dp8:zero3 tp8:sp +recompute:block +bf16 +compiled"
    assert found.recipe(Launch(64)).model == "llama3-70b"
    selective = opened(tmp_path, "b.toml", text.replace('"full"', '"selective"'))
    assert plan(selective, ranks=64) == "dp8:zero3 tp8:sp +recompute:nth2 +bf16 +compiled"
    fourth = opened(tmp_path, "d.toml", text.replace('"full"', '"selective"\nselective_ac_option = "4"'))
    assert "+recompute:nth4" in plan(fourth, ranks=64)
    each = opened(tmp_path, "e.toml", text.replace('"full"', '"selective"\nselective_ac_option = "1"'))
    assert "+recompute:block" in plan(each, ranks=64)
    by_operator = text.replace('"full"', '"selective"\nselective_ac_option = "op"')
    assert "+recompute:operators" in plan(opened(tmp_path, "c.toml", by_operator), ranks=64)
    with pytest.raises(BadInput, match="how many ranks"):
        plan(found)
    with pytest.raises(BadInput, match="60 ranks are not a multiple of the 8"):
        plan(found, ranks=60)


def test_torchtitan_python_follows_functions(tmp_path: Path) -> None:
    text = """
def base():
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=2, seq_len=4096),
        parallelism=ParallelismConfig(tensor_parallel_degree=2),
        activation_checkpoint=FullAC.Config(),
    )

def mine():
    config = base()
    config.parallelism.tensor_parallel_degree = 4
    return config
"""
    (tmp_path / "c.py").write_text(text)
    with pytest.raises(BadInput, match="2 functions") as problem:
        open_configuration(str(tmp_path / "c.py"))
    assert "FILE.py:base" in problem.value.fix
    found = open_configuration(f"{tmp_path / 'c.py'}:mine")
    assert found.dialect.name == "torchtitan"
    assert plan(found, ranks=8) == "dp2:zero3 tp4:sp +recompute:block +bf16 +captured"


def test_python_is_read_and_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = (
        f"open({str(mark)!r}, 'w')\ncfg = make(x=__import__('os').getpid())\ncfg.model.tensor_model_parallel_size = 2\n"
    )
    assert read_python(text)["model.tensor_model_parallel_size"] == 2
    assert not mark.exists()


def test_deepspeed_solves_the_batch_as_it_does_itself(tmp_path: Path) -> None:
    text = json.dumps(
        {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}
    )
    assert plan(opened(tmp_path, "ds.json", text), ranks=8) == "dp8:zero2 +m4 +fp32"
    whole = json.dumps({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}})
    assert plan(opened(tmp_path, "ds.json", whole), ranks=8) == "dp8 +m4 +bf16"
    with pytest.raises(BadInput, match="does not divide"):
        plan(opened(tmp_path, "ds.json", whole), ranks=3)


@pytest.mark.parametrize(("ranks", "told"), [(1, False), (4, True)])
def test_deepspeed_shares_saved_activations_out_among_ranks_of_a_layer(ranks: int, told: bool, tmp_path: Path) -> None:
    document = {
        "train_batch_size": 8,
        "activation_checkpointing": {"partition_activations": True},
        "tensor_parallel": {"autotp_size": ranks},
    }
    notes = " ".join(opened(tmp_path, "ds.json", json.dumps(document)).notes)
    assert ("+partitioned if so" in notes) == told
    document["pipeline"] = {"activation_checkpoint_interval": 1}
    found = plan(opened(tmp_path, "ds.json", json.dumps(document)), ranks=8)
    assert found == ("dp2 tp4 +recompute:block +partitioned +fp32" if told else "dp8 +recompute:block +fp32")
    assert "may change the cost" not in notes


def test_megatron_shares_saved_activations_out(tmp_path: Path) -> None:
    again = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    sizes = "--tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 2"
    text, more = f"python pretrain_gpt.py --bf16 {sizes} {again}", "--distribute-saved-activations"
    found = [plan(opened(tmp_path, "a.sh", f"{text} {own}"), ranks=8) for own in ("", more)]
    assert found[0].replace("+recompute:block", "+recompute:block +partitioned") == found[1]
    recipe = taken_apart(parse("tp4 +recompute:block +partitioned +bf16"), batch=2, model="llama3-8b", per_node=8)
    assert more in write(dialect("megatron-lm"), recipe).text


@pytest.mark.parametrize(
    ("said", "optimizer"),
    [
        ("", "adamw"),
        ("--use-precision-aware-optimizer", "adamw"),
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", "adamw16bit"),
        ("--use-precision-aware-optimizer --exp-avg-dtype fp16 --exp-avg-sq-dtype fp16", "adamw16bit"),
        ("--optimizer adam --use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8", "adamw8bit"),
    ],
)
def test_megatron_keeps_moments_in_other_types(said: str, optimizer: str, tmp_path: Path) -> None:
    text = f"python pretrain_gpt.py --bf16 --micro-batch-size 1 --global-batch-size 8 {said}"
    found = opened(tmp_path, "a.sh", text)
    recipe = found.recipe(Launch(8, 8))
    assert recipe.optimizer == optimizer
    again = write(dialect("megatron-lm"), recipe).text if optimizer != "adamw8bit" else "--exp-avg-dtype fp8"
    assert ("--exp-avg-dtype" in again) == (optimizer != "adamw")


def test_what_a_training_script_fills_in(tmp_path: Path) -> None:
    text = json.dumps({
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"},
    })  # fmt: skip
    found = opened(tmp_path, "ds.json", text)
    assert plan(found, ranks=8, batch=32) == "dp8:zero3 +fp32"
    assert len(found.notes) == 4
    with pytest.raises(BadInput, match="does not say its batch"):
        plan(found, ranks=8)


def test_a_model_without_a_sequence_has_no_length(foretell: Any) -> None:
    question = ("resnet50", "--on", "8xh100", "--plan", "dp8 +bf16", "--batch", "64", "--json")
    for name in ("deepspeed", "megatron-lm", "nanotron", "torchtitan-toml"):
        answer = json.loads(foretell("export", *question, "--to", name).out)
        assert "seq" not in answer["text"].replace("sequence_parallel", "")
        assert "model" in {one["figure"] for one in answer["unsaid"]}


def test_accelerate_alone_is_automatic_mixed_precision(tmp_path: Path) -> None:
    text = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 4\nnum_machines: 1\n"
    assert plan(opened(tmp_path, "a.yaml", text), batch=8) == "dp4 +amp_bf16"
    with pytest.raises(BadInput, match="does not say its batch"):
        plan(opened(tmp_path, "a.yaml", text))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b"{"),
        ("a.json", b"[1, 2]"),
        ("a.json", b"[" * 100_000),
        ("a.toml", b"= 3"),
        ("a.toml", b"a = " + b"[" * 5000 + b"]" * 5000),
        ("a.yaml", b"a: 2001-13-45"),
        ("a.yaml", b"a: [1"),
        ("a.yaml", b"- 1\n- 2\n"),
        ("a.py", b"def f(:"),
        ("a.py", b"x = 1\0"),
        ("a.sh", b'echo "never closed'),
        ("a.sh", b"ls -l"),
        ("a.bin", b"\x00\xff\xfe"),
        ("a.toml", b"[parallelism]\ntensor_parallel_degree = 'two'\ndata_parallel_shard_degree = 1\n"),
        ("a.toml", b"[parallelism]\ntensor_parallel_degree = -4\ndata_parallel_shard_degree = 1\n"),
        ("a.yaml", b"parallelism: {dp: 2, tp: [], pp: {}}\ntokens: {micro_batch_size: 1}\n"),
        ("a.json", b'{"zero_optimization": {"stage": 9}, "train_batch_size": 8}'),
        ("a.json", b'{"zero_optimization": 7, "train_batch_size": "many"}'),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ForetellError):
        open_configuration(str(tmp_path / name)).recipe(Launch(8, 8))


def test_yaml_that_names_itself_into_billions(tmp_path: Path) -> None:
    lines = [
        "a0: &a0 {x: 1}",
        *(f"a{n}: &a{n} {{{', '.join(f'k{k}: *a{n - 1}' for k in range(9))}}}" for n in range(1, 12)),
    ]
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    with pytest.raises(BadInput, match="keys"):
        open_configuration(str(tmp_path / "a.yaml"))


def test_messages_stay_short(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 7))]
    for large in ("*a6", f"[{'1, ' * 9000}]", "x" * 9000):
        text = "\n".join(lines) if large == "*a6" else ""
        text += f"\nparallelism: {{dp: 2, tp: {large}, pp: 1}}\ntokens: {{micro_batch_size: 1}}\n"
        with pytest.raises(BadInput) as problem:
            opened(tmp_path, "a.yaml", text).recipe(Launch(8, 8))
        assert len(str(problem.value)) < 1000


def test_every_dialect_tells_what_it_was_looked_up_in() -> None:
    for name in names():
        found = dialect(name)
        assert found.name == name
        assert any(char.isdigit() for char in found.version)
        assert found.summary


# --- the command line


def test_export_and_back(foretell: Any, tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    question = ("llama3-8b", "--on", "64xh100", "--plan", "dp8:zero1 tp8:sp +bf16", "--batch", "64")
    ran = foretell("export", *question, "--to", "megatron-lm", "--out", str(file), "--launch", "sbatch")
    assert ran.code == 0
    assert "#SBATCH --nodes=8" in ran.out
    assert "--tensor-model-parallel-size 8" in file.read_text()
    there = json.loads(foretell("predict", *question, "--trainer", "megatron-core", "--json").out)
    back = json.loads(foretell("predict", "--from-config", str(file), "--on", "64xh100", "--json").out)
    assert back["step_seconds"] == there["step_seconds"]
    assert back["plan"] == there["plan"]
    assert back["notes"][0].endswith("batch 64, sequences of 8192, llama3-8b")


def test_what_a_file_does_not_say_is_told(foretell: Any) -> None:
    question = ("llama3-8b", "--on", "8xh100", "--plan", "dp8:zero3 +m2 +bf16", "--batch", "32", "--to", "accelerate")
    answer = json.loads(foretell("export", *question, "--json").out)
    assert {one["figure"] for one in answer["unsaid"]} == {"model", "microbatches", "micro_batch", "sequence"}
    assert "fsdp_version: 2" in answer["text"]
    assert foretell("export", *question).err.count("note:") == 4


def test_what_it_cannot_say_is_refused(foretell: Any) -> None:
    ran = foretell(
        "export", "llama3-8b", "--on", "8xh100", "--plan", "pp2:1f1b dp4 +m4", "--batch", "16", "--to", "accelerate"
    )
    assert ran.code == 2
    assert "cannot express this plan: data 4; pipeline 2" in ran.err
    assert foretell("export", "llama3-8b", "--plan", "dp2", "--batch", "2", "--to", "torchtian").code == 2
    assert "torchtitan" in foretell("export", "llama3-8b", "--plan", "dp2", "--batch", "2").err


def test_a_better_configuration(foretell: Any, tmp_path: Path) -> None:
    file, better = tmp_path / "ds.json", tmp_path / "better.json"
    file.write_text(
        json.dumps({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},
                    "bf16": {"enabled": True}, "wall_clock_breakdown": True})
    )  # fmt: skip
    model = "gpt:layers=4,hidden=256,heads=4,vocab=1024,seq=128"
    question = ("plan", model, "--from-config", str(file), "--on", "4xh100", "--only", "dp")
    answer = json.loads(foretell(*question, "--out", str(better), "--json").out)
    assert answer["today"]["plan"] == "dp4:zero3 +m8 +bf16"
    assert answer["today"]["better_seconds"] < answer["today"]["step_seconds"]
    said = json.loads(better.read_text())
    assert said["wall_clock_breakdown"] is True
    assert said["train_micro_batch_size_per_gpu"] > 1
    page = foretell(*question).out
    assert "times as fast" in page
    assert foretell("plan", "gpt2", "--on", "4xh100", "--batch", "8", "--out", "x").code == 2


def test_the_same_from_python(foretell: Any) -> None:
    import foretell as package

    plan = "dp8:zero1 tp2:sp +bf16"
    there = package.export("llama3-8b", "16xh100", plan, 16, to="megatron-lm")
    ran = foretell(
        "export", "llama3-8b", "--on", "16xh100", "--plan", plan, "--batch", "16", "--to", "megatron-lm", "--json"
    )
    said = [line for line in json.loads(ran.out)["text"].splitlines() if not line.startswith("#")]
    assert said == there.text.splitlines()[1:]
    with pytest.raises(BadInput, match="cannot express"):
        package.export("llama3-8b", "16xh100", "pp2:1f1b dp8 +m2", 32, to="accelerate")


def test_dialects_are_listed(foretell: Any) -> None:
    assert set(json.loads(foretell("list", "dialects", "--json").out)["dialects"]) == set(names())
    assert "Megatron-LM main" in foretell("list", "dialects").out


# --- what is kept of a file that is changed


def rewritten(folder: Path, name: str, text: str, ranks: int = 8) -> str:
    """A file with the plan that it has already."""
    found = opened(folder, name, text)
    return write(found.dialect, found.recipe(Launch(ranks, 8)), base=found.document).text


PLAIN = "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 --bf16"


def test_no_secret_of_the_environment_enters_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", 'it\'s "hush"')
    text = rewritten(tmp_path, "a.sh", f"{PLAIN} --wandb-api-key $MY_SECRET --wandb-name ${{MY_SECRET:-x}}\n")
    assert "hush" not in text
    assert "--wandb-api-key $MY_SECRET" in text
    assert "--wandb-name ${MY_SECRET:-x}" in text


def test_options_that_are_kept_stand_as_they_stood(tmp_path: Path) -> None:
    kept = """--data-path $DATA_PATH --seed 007 --name="my run" --split '9,1 $0' --paths "$A" b --log-throughput"""
    text = rewritten(tmp_path, "a.sh", f"{PLAIN} {kept}\n")
    for word in ("--data-path $DATA_PATH", "--seed 007", '--name "my run"', "--split '9,1 $0'", '--paths "$A" b'):
        assert f"    {word} \\\n" in text
    assert "--log-throughput" in text


@pytest.mark.parametrize(
    "text",
    [
        f'{PLAIN}\necho "done"\n',
        f"{PLAIN} 2>&1 | tee log\n",
        f"pip install -U x --a 1 --b 2 --c 3 --d 4 --e 5\n{PLAIN}",
        f"mkdir -p x && {PLAIN}\nrm --recursive x\n",
        PLAIN.replace(" --", "\n--"),
    ],
)
def test_the_command_that_trains_is_read(tmp_path: Path, text: str) -> None:
    assert plan(opened(tmp_path, "a.sh", text), ranks=8) == "dp4 tp2 +m2 +bf16 +no-overlap"


TITAN = """
import os
from mine import Metrics

PROJECT = "big"

def planned():
    config = Trainer.Config(
        model_spec=model_registry("8B", attn_backend="flex"),
        metrics=Metrics.Config(Inner(2), name=f"{PROJECT}-run", **EXTRA),
        training=TrainingConfig(local_batch_size=2, seq_len=4096, steps=50 * 1000, dtype_of=torch.bfloat16),
        parallelism=ParallelismConfig(tensor_parallel_degree=DEGREE),
    )
    config.training.seed = SEED
    return config
"""

BRIDGE = """
import torch
cfg = llama3_8b_pretrain_config(dir="/x")
cfg.model.tensor_model_parallel_size = 2
cfg.train.train_iters = 50 * 1000
cfg.train.micro_batch_size = 1
cfg.train.global_batch_size = 8
cfg.model.pipeline_dtype = torch.bfloat16
cfg.logger = Logger(project=PROJECT, every=[1, two])
"""


def test_expressions_that_are_kept_stay_expressions(tmp_path: Path) -> None:
    text = rewritten(tmp_path, "a.py", BRIDGE)
    for line in (
        "import torch",
        "cfg = llama3_8b_pretrain_config(dir='/x')",
        "cfg.train.train_iters = 50 * 1000",
        "cfg.model.pipeline_dtype = torch.bfloat16",
        "cfg.logger = Logger(project=PROJECT, every=[1, two])",
    ):
        assert line in text.splitlines()


def test_a_python_configuration_is_written_anew(tmp_path: Path) -> None:
    text = rewritten(tmp_path, "a.py", TITAN.replace("DEGREE", "2"))
    compile(text, "a.py", "exec")
    (made,) = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Return))
    assert isinstance(made, ast.Call)
    given = {one.arg: ast.unparse(one.value) for one in made.keywords}
    assert ast.unparse(made.func) == "Trainer.Config"
    quote = given["metrics"][len("Metrics.Config(Inner(2), name=f")]  # from Python 3.12 on either will do
    assert given["metrics"] == f"Metrics.Config(Inner(2), name=f{quote}{{'big'}}-run{quote}, **EXTRA)"
    assert given["model_spec"] == "model_registry('8B', attn_backend='flex')"
    assert "steps=50 * 1000, dtype_of=torch.bfloat16, seed=SEED" in given["training"]
    assert "from mine import Metrics" in text


def test_why_a_better_configuration_is_not_written(foretell: Any, tmp_path: Path) -> None:
    file, out = tmp_path / "a.py", tmp_path / "b.py"
    file.write_text(TITAN.replace("DEGREE", "2").replace("config.training.seed", "config.faults.often"))
    ran = foretell("plan", "--from-config", str(file), "--on", "8xh100", "--only", "dp,tp", "--out", str(out))
    assert ran.code == 0
    assert "the file does not say what makes faults" in " ".join(ran.out.split())
    assert not out.exists()


@pytest.mark.parametrize(
    ("degree", "found"), [("2 * 4", 8), ("2 ** 3 // 2", 4), ("BASE", 2), ("BASE * 2", 4), ("-(-8) // 2", 4)]
)
def test_degrees_that_are_computed(tmp_path: Path, degree: str, found: int) -> None:
    text = f"BASE = 1\nBASE = 2\n{TITAN.replace('DEGREE', degree)}"
    assert opened(tmp_path, "a.py", text).recipe(Launch(8, 8)).tensor == found


@pytest.mark.parametrize("degree", ["int(os.environ['TP'])", "TP", "args.tp", "2 * n", "4 if big else 2", "10 ** 999"])
def test_degrees_that_nobody_knows_are_refused(tmp_path: Path, degree: str) -> None:
    with pytest.raises(BadInput, match=r"parallelism\.tensor_parallel_degree is .*only the running program knows"):
        plan(opened(tmp_path, "a.py", TITAN.replace("DEGREE", degree)), ranks=8)


@pytest.mark.parametrize(
    ("after", "tensor"),
    [
        ("if False:\n    SET = 4", 2),
        ("if True:\n    SET = 4\nelse:\n    SET = 8", 4),
        ("if big:\n    SET = 4\nelse:\n    SET = 4", 4),
        ("if __name__ == '__main__':\n    SET = 4", 4),
        ("if big:\n    SET = 4", None),
        ("for size in (4, 8):\n    SET = size", 8),
        ("for size in sizes:\n    SET = size", None),
        ("try:\n    SET = 4\nexcept ValueError:\n    pass", None),
        ("SET *= 2", 4),
        ("SET *= n", None),
        ("n = 2\nif big:\n    n = 4\nSET = n", None),
        ("n, m = 4, 8\nSET = n", 4),
    ],
)
def test_what_a_condition_or_a_loop_sets(tmp_path: Path, after: str, tensor: int | None) -> None:
    text = BRIDGE + after.replace("SET", "cfg.model.tensor_model_parallel_size")
    found = opened(tmp_path, "a.py", text)
    if tensor is not None:
        assert found.recipe(Launch(8, 8)).tensor == tensor
        return
    with pytest.raises(BadInput, match="only the running program knows"):
        found.recipe(Launch(8, 8))


# --- what trainers want beside their files


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("dp4 tp2", True), ("dp4 cp2", True), ("dp8", False), ("dp4:zero3 tp2:sp", False), ("dp4:zero1 tp2:sp", True)],
)
@pytest.mark.parametrize("launcher", ["torchrun", "sbatch", "ray"])
def test_megatron_wants_one_connection(foretell: Any, words: str, wanted: bool, launcher: str) -> None:
    question = ("llama3-8b", "--on", "8xh100", "--plan", f"{words} +bf16", "--batch", "8", "--to", "megatron-lm")
    answer = json.loads(foretell("export", *question, "--launch", launcher, "--json").out)
    line = "os.environ.update({'CUDA_DEVICE_MAX_CONNECTIONS': '1'})" if launcher == "ray" else None
    assert ((line or "export CUDA_DEVICE_MAX_CONNECTIONS=1") in answer["launch"]) == wanted
    assert ("export CUDA_DEVICE_MAX_CONNECTIONS=1" in answer["text"].splitlines()) == wanted


def test_nemo_starts_all_nodes() -> None:
    text = write(dialect("nemo"), taken_apart(parse("dp16:zero1 +bf16"), batch=16, model="llama3-8b", per_node=8)).text
    assert "nodes=recipe.trainer.num_nodes" in text
    compile(text, "a.py", "exec")


@pytest.mark.parametrize(("precision", "elements"), [("bf16", 2**20), ("fp32", 2**19)])
def test_buckets_count_gradients_as_they_travel(precision: str, elements: int) -> None:
    recipe = taken_apart(parse(f"dp4:zero1 +{precision} +bucket:2MiB"), batch=4)
    written = write(dialect("deepspeed"), recipe)
    assert written.document["zero_optimization.reduce_bucket_size"] == elements
    assert "bucket" not in {one.figure for one in written.unsaid}
