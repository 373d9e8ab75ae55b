"""Draws the plans of a replay: legal ones over models, clusters, trainers and schedules, and some that are refused.

python tests/replay/draw.py    writes tests/replay/plans.tsv

The plans are kept and not drawn anew each time: a tree that refuses a plan by mistake must not get another one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from foretell.errors import ForetellError
from foretell.hardware import catalog
from foretell.model.graph import Graph
from foretell.model.resize import ANY, with_samples
from foretell.model.source import load
from foretell.plan.fitness import fits
from foretell.plan.job import batch_ranks, make_job
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.validation.study import typed

Case = dict[str, Any]

FILE: Final = Path(__file__).with_name("plans.tsv")
COLUMNS: Final = ("ask", "trainer", "cluster", "batch", "optimizer", "model", "plan")

PLANS: Final = 3000
REFUSALS: Final = 300
PLAYED: Final = 300
"""Simulations, and as many programs."""

# what is drawn from

DECODERS: Final = (
    "llama3-8b", "llama3-70b", "llama3.2-1b", "llama2-13b:seq=2048", "qwen2.5-7b:seq=4096", "mistral-7b:seq=8192",
    "gpt2", "gpt3-1.3b", "gpt3-13b", "gpt3-175b", "megatron-8.3b", "bloom-7b1", "opt-6.7b", "bert-large", "t5-large",
    "gpt:layers=12,hidden=256,heads=8,vocab=1000,seq=128", "llama:layers=7,hidden=512,heads=8,kv_heads=4,seq=512",
)  # fmt: skip
EXPERTS: Final = (
    "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite",
    "mixture:layers=8,hidden=256,heads=8,kv_heads=4,head_dim=32,ffn=192,vocab=1000,seq=128,experts=8,top_k=2",
)  # fmt: skip
IMAGES: Final = (
    "resnet50", "resnet18:image=64", "wide-resnet50-2", "vgg16", "vgg16-bn", "alexnet", "inception-v3", "densenet121",
    "mobilenet-v2", "efficientnet-b0", "convnext-tiny", "swin-t", "vit-b-16", "unet2d", "cosmoflow128", "lenet",
    "resnet50-paradl", "vgg16-paradl",
)  # fmt: skip
OTHERS: Final = ("lstm-medium", "gru", "mlp")

DEVICES: Final = (
    "h100", "h100", "h100", "a100-80", "a100-80", "a100-40", "v100-16", "v100-32", "h200", "b200", "gb200", "mi300x",
    "mi250x", "h800", "a10", "rtx4090", "p100", "t4", "cpu",
)  # fmt: skip
CLUSTERS: Final = (
    "abci:64", "selene:16", "lassen:8", "dgx1", "dgx2", "aws-p3", "aws-p4d", "dgx-h100", "gb200-nvl72", "workstation",
    "4xdgx-a100", "2x4xv100-16,eth-10", "2x8xa100-80,roce-200",
)  # fmt: skip
PIPELINED: Final = (
    "axonn", "axonn-2021", "chainer", "deepspeed", "megatron-core", "megatron-deepspeed", "megatron-deepspeed-2022",
    "megatron-lm-2021", "megatron-lm-2023", "nanotron", "nemo", "pipedream", "pytorch", "pytorch-1",
    "pytorch-channels-last", "pytorch-compiled", "torchgpipe", "torchtitan",
)  # fmt: skip
TRAINERS: Final = (
    *PIPELINED, *PIPELINED, *PIPELINED,
    "deepspeed-0.3", "deepspeed-2021", "fsdp", "horovod", "internevo", "lbann", "llm-foundry", "megatron-lm-2019",
    "mxnet", "mxnet-nhwc", "nvidia-bert", "nvidia-bert-2020", "pytorch-1-survey", "tensorflow", "tensorflow-xla",
)  # fmt: skip
"""Those with more to choose from come more often."""

SCHEDULES: Final = (
    "gpipe", "1f1b", "1f1b", "interleaved,v2", "interleaved,v4", "stash", "zb-h1", "zb-v", "dualpipe", "dualpipe-v",
)  # fmt: skip
STORAGES: Final = ("", "", ":zero1", ":zero1", ":zero2", ":zero3", ":zero3", ":zero3,shard2", ":zero1,shard4")
LOOSE: Final = ("local{}:tau10", "gossip{}", "ring{}", "ps{}:sync", "ps{}:ssp,s3", "ps{}:async")
PRECISIONS: Final = (
    "",
    "",
    "bf16",
    "bf16",
    "fp16",
    "fp32",
    "tf32",
    "amp_bf16",
    "amp_fp16",
    "bf16:pure",
    "fp8",
    "mxfp8",
)
RECOMPUTE: Final = ("", "", "", "block", "attention", "full", "every2")
OFFLOAD: Final = ("", "", "", "", "optimizer", "optimizer,weights", "activations")
OTHER_POLICIES: Final = (
    "", "", "", "", "+no-overlap", "+overlap", "+bucket:64MiB", "+compiled", "+eager", "+captured", "+lora16",
    "+compress:int8", "+compress:powersgd4", "+compress:topk0.01",
)  # fmt: skip
OPTIMIZERS: Final = ("", "", "", "adamw", "sgd", "lamb")


# plans


def plans(count: int) -> Iterator[Case]:
    """Legal plans, as many of each trainer."""
    draw = random.Random("legal plans")
    at = 0
    while at < count:
        name = TRAINERS[at % len(TRAINERS)]
        for _ in range(20_000):
            case = _drawn(draw, name)
            if case is not None and legal(case):
                yield {"ask": "predict", **case}
                at += 1
                break
        else:
            raise AssertionError(f"20,000 plans for {name}, none of them legal")


def refused(count: int) -> Iterator[Case]:
    """Plans that a rule refuses, whose texts are compared."""
    draw = random.Random("refused plans")
    at = 0
    while at < count:
        case = _drawn(draw, draw.choice(TRAINERS))
        if case is not None and legal(case) is False:
            yield {"ask": "refusal", **case}
            at += 1


def legal(case: Case) -> bool | None:
    """Whether no rule refuses it; None where it cannot even be written, or its device has no such units."""
    try:
        setting, where = _setting(case), catalog.cluster(case["cluster"])
        where.device.matrix_rate(setting.plan.policy(Precision).format.kernels)
        return fits(setting, where)
    except ForetellError:
        return None


_models: dict[str, Graph] = {}


def _setting(case: Case) -> Setting:
    name, plan = case["model"], parse(case["plan"])
    if name not in _models:
        _models[name] = load(name, ANY)
    graph = with_samples(_models[name], max(1, case["batch"] // plan.microbatches))
    job = make_job(case["batch"], trainer=case["trainer"], optimizer=case["optimizer"])
    return Setting(graph, job, plan, trainer(case["trainer"]))


def _drawn(draw: random.Random, name: str) -> Case | None:
    """Some model under some plan on some cluster; None if its words do not go together."""
    model = draw.choice(draw.choices((DECODERS, EXPERTS, IMAGES, OTHERS), (8, 3, 5, 1))[0])
    texts = [*_axes(draw, model), *_policies(draw, model)]
    try:
        plan = parse(" ".join(texts))
        where = catalog.cluster(_cluster(draw, plan.ranks))
        text = typed(model, Setting(_graph(model), make_job(1, trainer=name), plan, trainer(name)).plan)
        batch = batch_ranks(plan) * plan.microbatches * draw.choice((1, 1, 2, 4, 8))
    except ForetellError:
        return None
    if where.ranks < plan.ranks or (plan.ranks == 1 and draw.random() < 0.9):
        return None
    optimizer = draw.choice(OPTIMIZERS)
    return {
        "model": text, "cluster": where.text, "plan": " ".join(texts), "batch": batch, "trainer": name,
        "optimizer": optimizer,
    }  # fmt: skip


def _graph(model: str) -> Graph:
    if model not in _models:
        _models[model] = load(model, ANY)
    return _models[model]


def _cluster(draw: random.Random, ranks: int) -> str:
    if draw.random() < 0.2:
        return draw.choice(CLUSTERS)
    return f"{max(ranks, draw.choice((1, 8, 16, 64)))}x{draw.choice(DEVICES)}"


def _axes(draw: random.Random, model: str) -> Iterator[str]:
    image = model in IMAGES
    some = draw.random
    if some() < 0.6:
        ranks, schedule = draw.choice((2, 2, 4, 8)), draw.choice(SCHEDULES)
        yield f"pp{ranks}:{schedule}"
    if some() < 0.08:
        yield draw.choice(LOOSE).format(draw.choice((2, 4, 8)))
    elif some() < 0.85:
        experts = draw.choice(("", ",ep2", ",ep4", ",ep8", ",ep4,etp1")) if model in EXPERTS else ""
        storage = draw.choice(STORAGES)
        options = f"{storage}{experts}" if storage else experts.replace(",", ":", 1)
        yield f"dp{draw.choice((1, 2, 4, 8, 16))}{options}"
    if image:
        yield from (f"{word}{draw.choice((2, 4))}" for word in ("filter", "channel") if some() < 0.15)
        if some() < 0.2:
            yield draw.choice(("spatial2", "spatial2x2", "spatial4"))
    if not image and some() < 0.15:
        yield f"cp2:{draw.choice(('ring', 'alltoall'))}"
    if some() < (0.1 if image else 0.45):
        yield f"tp{draw.choice((2, 4, 8))}{draw.choice(('', ':sp', ':sp'))}"


def _policies(draw: random.Random, model: str) -> Iterator[str]:
    yield f"+m{draw.choice((1, 1, 2, 4, 8, 16, 32))}"
    for word, choices in (("", PRECISIONS), ("recompute:", RECOMPUTE), ("offload:", OFFLOAD)):
        chosen = draw.choice(choices)
        if chosen:
            yield f"+{word}{chosen}"
    other = draw.choice(OTHER_POLICIES)
    if other:
        yield other
    if model in IMAGES and draw.random() < 0.1:
        yield "+syncbn"
    if model in EXPERTS and draw.random() < 0.2:
        yield "+imbalance1.2"


# what is played through


MOST_SLOTS: Final = 250
"""Slots of all kinds of rank times kinds of layer that a simulation or a program may have, to stay quick."""


def played(drawn: list[Case], ask: str) -> None:
    """Some of the plans are asked about a second time."""
    small = [case for case in drawn if _slots(case) <= MOST_SLOTS]
    for case in random.Random(ask).sample(small, PLAYED):
        case["ask"] += f",{ask}"


def _slots(case: Case) -> int:
    plan = parse(case["plan"])
    return (
        plan.microbatches
        * next((axis.ranks for axis in plan.axes if axis.word == "pp"), 1)
        * len(_models[case["model"]].blocks)
    )


def main() -> None:
    drawn = list(plans(PLANS))
    played(drawn, "simulate")
    played(drawn, "program")
    lines = ["\t".join(str(case[name]) for name in COLUMNS) for case in (*drawn, *refused(REFUSALS))]
    FILE.write_text("\n".join(["\t".join(COLUMNS), *lines]) + "\n")


if __name__ == "__main__":
    main()
