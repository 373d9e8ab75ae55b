"""The questions of a replay: rows of studies, drawn plans, refused ones, searches, simulations, programs, commands.

A case is plain data, texts and numbers, so that any tree can answer it with its own `run.py`; nothing is imported here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

Case = dict[str, Any]

PLANS: Final = Path(__file__).with_name("plans.tsv")
"""Written by `draw.py`."""


def cases(size: float = 1.0) -> list[Case]:
    """All cases, or this share of each kind."""
    every = max(1, round(1 / size))
    asked: dict[str, list[Case]] = {}
    for case in (*drawn(), *searches(), *commands()):
        asked.setdefault(case["ask"], []).append(case)
    return [{"id": "study", "ask": "study", "every": every}, *(one for own in asked.values() for one in own[::every])]


def drawn() -> Iterator[Case]:
    """What is asked about each plan: `predict`, and of some `simulate` or `program`; or its refusal."""
    with PLANS.open(newline="") as file:
        for at, line in enumerate(csv.DictReader(file, delimiter="\t")):
            for ask in line["ask"].split(","):
                yield {**line, "id": f"{ask}/{at:04}", "ask": ask, "batch": int(line["batch"])}
                if ask == "program":
                    yield {**line, "id": f"memory/{at:04}", "ask": "memory", "batch": int(line["batch"])}


# searches

SEARCHED: Final = (
    ("llama3-8b", "8xh100", 64, ("pytorch", "fsdp", "megatron-core", "deepspeed", "nanotron"), "dp,tp,pp,recompute"),
    ("llama3.2-1b", "16xa100-80", 32, ("pytorch", "torchtitan", "megatron-lm-2023", "nemo"), "dp,tp,pp,cp,recompute"),
    ("llama3-70b", "32xh100", 64, ("megatron-core", "torchtitan", "nanotron"), "dp,tp,pp"),
    ("gpt3-13b", "16xv100-32", 64, ("megatron-lm-2021", "megatron-deepspeed", "pytorch", "deepspeed"), "dp,tp,pp"),
    ("gpt2-xl", "4x4xv100-16,eth-10", 32, ("pytorch", "axonn", "deepspeed", "pytorch-1"), "dp,pp,offload"),
    ("bert-large", "8xa100-40", 256, ("pytorch", "nvidia-bert", "megatron-lm-2019", "horovod"), "dp,tp,recompute"),
    ("mixtral-8x7b", "16xh100", 32, ("megatron-core", "nemo", "pytorch"), "dp,tp,pp"),
    ("deepseek-v2-lite", "16xh200", 64, ("megatron-core", "pytorch"), "dp,tp"),
    ("resnet50", "8xv100-16", 64, ("pytorch", "chainer", "horovod", "tensorflow", "mxnet"), "dp,spatial,filter"),
    ("vgg16", "abci:8", 32, ("chainer", "pytorch", "pytorch-channels-last"), "dp,filter,channel,pp"),
    ("cosmoflow128", "lassen:8", 16, ("lbann", "chainer", "pytorch"), "dp,spatial,filter,channel"),
    ("vit-b-16", "8xmi300x", 128, ("pytorch", "pytorch-compiled"), "dp,tp,pp,recompute"),
    ("swin-t", "4xrtx4090", 64, ("pytorch", "pytorch-1"), "dp,recompute,offload"),
    ("convnext-tiny", "8xb200", 128, ("pytorch", "pytorch-channels-last"), "dp,pp,recompute"),
    ("t5-large", "8xh100", 64, ("pytorch", "megatron-core"), "dp,tp,recompute"),
    ("lstm-medium", "4xp100", 32, ("pytorch", "tensorflow"), "dp,pp,tp"),
    ("lenet", "2xdgx1", 96, ("chainer", "pytorch"), "dp,spatial,channel,filter"),
    ("gpt:layers=12,hidden=256,heads=8,vocab=1000,seq=128", "16xh100", 64, ("pytorch", "megatron-core"), "dp,pp"),
    ("mlp", "8xcpu", 64, ("pytorch",), ""),
    ("llama3-8b", "8xgb200", 64, ("megatron-core", "torchtitan"), "dp,tp,cp"),
)  # fmt: skip
"""Model, cluster, batch, trainers, words that are searched (empty: all). Each takes a second or two."""

BESIDES: Final = (
    ("llama3-8b", "8xh100", 64, "pytorch", {"max_memory": "40 GiB", "only": "dp,tp,recompute"}),
    ("llama3-8b", "8xh100", 64, "megatron-core", {"fix": "tp2:sp", "only": "dp,tp,pp"}),
    ("llama3-8b", "16xh100", 128, "torchtitan", {"precision": "bf16:pure", "only": "dp,tp"}),
    ("llama3-70b", "8xa100-40", 8, "pytorch", {"only": "dp,tp,recompute"}),
    ("gpt2", "4xh100", 32, "pytorch", {"also": "local,gossip,ring,ps", "only": "dp"}),
    ("resnet50", "8xh100", 32, "pytorch", {"batch_per_rank": 32, "only": "dp"}),
    ("llama3.2-1b", "8xh100", 8, "pytorch", {"batch_per_rank": 2, "only": "dp,tp"}),
    ("gpt3-1.3b", "8xa100-80", 64, "pytorch", {"seq": 1024, "without": "pp,cp"}),
)  # fmt: skip


def searches() -> Iterator[Case]:
    """Small spaces of many models, clusters and trainers."""
    asked: list[tuple[str, str, int, str, dict[str, Any]]] = [
        (model, cluster, batch, name, {"only": only} if only else {})
        for model, cluster, batch, names, only in SEARCHED
        for name in names
    ]
    for at, (model, cluster, batch, name, said) in enumerate((*asked, *BESIDES)):
        yield {
            "id": f"search/{at:02}", "ask": "search", "model": model, "cluster": cluster, "batch": batch,
            "trainer": name, "said": said,
        }  # fmt: skip


# commands

TINY: Final = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
COMMANDS: Final = (
    "analyze llama3-8b --batch 4",
    "analyze resnet50 --batch 32",
    "predict llama3-8b --on 64xh100 --plan 'dp8:zero1 tp8:sp +m8 +bf16' --batch 64 --trainer megatron-core",
    "predict llama3-8b --on 64xh100 --plan 'dp8:zero3 tp8:sp +bf16' --batch 64 --tokens 1e12 --price 2",
    "predict llama3-70b --on 512xh100 --plan 'pp4:1f1b dp16:zero1 tp8:sp +m16 +bf16' --batch 1024",
    "predict resnet50 --on 16xv100-16 --plan 'dp16' --batch-per-rank 32 --samples 1.28e6 --epochs 90",
    "predict gpt2 --on 1xv100-16 --plan dp1 --batch 256",
    "predict gpt3-1.3b --on 8xa100-80 --plan 'pp2:zb-h1 dp4 +m8' --batch 64 --seq 1024 --slow-rank 0:2",
    "predict mixtral-8x7b --on 64xh100 --plan 'dp32:zero1,ep8 tp2:sp +m4' --batch 256 --trainer megatron-core",
    "predict llama3-8b --on 64xh100 --plan 'dp7 tp8' --batch 64",
    "plan llama3.2-1b --on 8xh100 --batch 32 --only dp,tp,recompute",
    "plan llama3-8b --on 16xh100 --batch 64 --only dp,tp,pp --trainer megatron-core --top 20",
    "plan llama3-70b --on 8xa100-40 --batch 8 --only dp,tp",
    "plan llama3.2-1b --on h100 --gpus 1..8 --batch-per-rank 2 --only dp,tp --by money --price 2",
    "plan llama3.2-1b --on 8xh100 --batch 64..512 --noise-scale '256 samples' --only dp,tp",
    "fit llama3-8b --on 8xh100",
    "fit llama3-70b --on 16xa100-80 --batch 64 --trainer megatron-core",
    "fit llama3-8b --on 8xh100 --batch 16 --plan 'tp8:sp +bf16'",
    "why llama3-8b --on 8xh100 --batch 64 --plan 'tp8 +bf16' --only dp,tp",
    "why llama3-8b --on 8xh100 --batch 63 --plan 'dp8 +bf16' --only dp,tp",
    "diff llama3-8b --on 64xh100 --batch 64 'dp8:zero3 tp8:sp +bf16' 'dp64:zero3 +bf16'",
    "diff gpt3-13b --on 16xa100-80 --batch 64 'pp2:1f1b tp8 +m8' 'dp4:zero1 tp4 +m2'",
    "scale llama3.2-1b --on h100 --batch 64 --gpus 1..16 --only dp,tp",
    "scale resnet50 --on v100-16 --batch-per-rank 32 --gpus 1..16 --only dp",
    "whatif llama3-8b --on 64xh100 --batch 64 --plan 'dp8:zero3 tp8:sp +bf16'",
    f"sweep --model {TINY} --on 1xh100,2xh100 --batch 8 --plan 'dp2,dp1' --jobs 1",
    f"sweep --model {TINY},lenet --on 2xh100 --batch 8,16 --only dp,tp --jobs 1",
    "program llama3-8b --on 64xh100 --plan 'dp8:zero1 tp8:sp +m8 +bf16' --batch 64",
    "program gpt2 --plan 'pp4:interleaved,v2 dp2 +m8' --batch 32",
    "export llama3-8b --on 64xh100 --plan 'dp8:zero3 tp8:sp +bf16' --batch 64 --to torchtitan",
    "export llama3-8b --on 64xh100 --plan 'pp2:1f1b dp4:zero1 tp8:sp +m8 +bf16' --batch 64 --to megatron-lm",
    "goodput --mtbf 3h --checkpoint 40s",
    "simulate lenet --on 4xv100-16 --learn squares --workers 2 --algorithms sync,async",
    "systems --plan 'pp4:1f1b +m4'",
    "systems --bytes lenet",
    "describe h100",
    "describe dp8:zero3",
    "describe 64xh100",
    "list schedules",
)
"""What people type. `--json` is added; every number and word of the answer is compared."""


def commands() -> Iterator[Case]:
    for at, text in enumerate(COMMANDS):
        yield {"id": f"command/{at:02}", "ask": "command", "text": text}
