"""The questions of a replay: rows of studies, drawn legal plans, refused ones, searches, simulations and programs.

A case is plain data (texts and numbers), so that any tree can answer it with its own `answer.py`. The draw is seeded:
the same tree and the same size give the same cases.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
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
from foretell.validation import published
from foretell.validation.study import read, typed

Case = dict[str, Any]

PLANS: Final = 3000
REFUSALS: Final = 300
SIMULATIONS: Final = 300
PROGRAMS: Final = 300

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
TRAINERS: Final = (
    "axonn", "axonn-2021", "chainer", "deepspeed", "deepspeed-0.3", "deepspeed-2021", "fsdp", "horovod", "internevo",
    "lbann", "llm-foundry", "megatron-core", "megatron-deepspeed", "megatron-deepspeed-2022", "megatron-lm-2019",
    "megatron-lm-2021", "megatron-lm-2023", "mxnet", "mxnet-nhwc", "nanotron", "nemo", "nvidia-bert",
    "nvidia-bert-2020", "pipedream", "pytorch", "pytorch-1", "pytorch-1-survey", "pytorch-channels-last",
    "pytorch-compiled", "tensorflow", "tensorflow-xla", "torchgpipe", "torchtitan",
)  # fmt: skip
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


def cases(size: float = 1.0) -> list[Case]:
    """All cases, or this share of each kind."""

    def some(count: int) -> int:
        return max(1, round(count * size))

    drawn = list(plans(some(PLANS)))
    return [
        *_every(study_rows(), size),
        *drawn,
        *refused(some(REFUSALS)),
        *_every(searches(), size),
        *_asked(drawn, "simulate", some(SIMULATIONS)),
        *_asked(drawn, "program", some(PROGRAMS)),
    ]


def _every(all_of_them: Iterator[Case], size: float) -> Iterator[Case]:
    """A share of them, spread evenly."""
    taken = 0.0
    for one in all_of_them:
        taken += size
        if taken >= 1 - 1e-9:
            taken -= 1
            yield one


def study_rows() -> Iterator[Case]:
    """Every row that is scored."""
    for path in (*published.files(), *published.own_files()):
        study = read(path)
        for at, row in enumerate(study.rows):
            yield {"id": f"study/{path.stem}/{at}", "ask": "study", "file": path.name, "at": at, "row": row.id}


# plans


def plans(count: int) -> Iterator[Case]:
    """Legal plans, as many of each trainer."""
    draw = random.Random("legal plans")
    at = 0
    while at < count:
        name = TRAINERS[at % len(TRAINERS)]
        for _ in range(400):
            case = _drawn(draw, name)
            if case is not None and legal(case):
                yield {"id": f"plan/{at:04}", "ask": "predict", **case}
                at += 1
                break
        else:
            raise AssertionError(f"400 plans for {name}, none of them legal")


def refused(count: int) -> Iterator[Case]:
    """Plans that a rule refuses, whose texts are compared."""
    draw = random.Random("refused plans")
    at = 0
    while at < count:
        case = _drawn(draw, draw.choice(TRAINERS))
        if case is not None and legal(case) is False:
            yield {"id": f"refused/{at:04}", "ask": "refusal", **case}
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
    if where.ranks < plan.ranks:
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
    if some() < 0.4:
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


MOST_SLOTS: Final = 600
"""Slots of all kinds of rank times kinds of layer that a simulation or a program may have, to stay quick."""


def _asked(drawn: list[Case], ask: str, count: int) -> Iterator[Case]:
    """The same question about some of the plans."""
    small = [case for case in drawn if _slots(case) <= MOST_SLOTS]
    chosen = random.Random(ask).sample(small, min(count, len(small)))
    for case in chosen:
        yield {**case, "id": case["id"].replace("plan", ask), "ask": ask}


def _slots(case: Case) -> int:
    plan = parse(case["plan"])
    return (
        plan.microbatches
        * next((axis.ranks for axis in plan.axes if axis.word == "pp"), 1)
        * len(_models[case["model"]].blocks)
    )


# searches

SEARCHED: Final = (
    ("llama3-8b", "8xh100", 64, ("pytorch", "fsdp", "megatron-core", "deepspeed", "nanotron"), "dp,tp,pp,recompute"),
    ("llama3.2-1b", "16xa100-80", 32, ("pytorch", "torchtitan", "megatron-lm-2023", "nemo"), "dp,tp,pp,cp,recompute"),
    ("llama3-70b", "64xh100", 128, ("megatron-core", "torchtitan", "nanotron"), "dp,tp,pp"),
    ("gpt3-13b", "16xv100-32", 64, ("megatron-lm-2021", "megatron-deepspeed", "pytorch", "deepspeed"), "dp,tp,pp"),
    ("gpt2-xl", "4x4xv100-16,eth-10", 32, ("pytorch", "axonn", "deepspeed", "pytorch-1"), "dp,pp,offload"),
    ("bert-large", "8xa100-40", 256, ("pytorch", "nvidia-bert", "megatron-lm-2019", "horovod"), "dp,tp,recompute"),
    ("mixtral-8x7b", "32xh100", 64, ("megatron-core", "nemo", "pytorch"), "dp,tp,pp"),
    ("deepseek-v2-lite", "16xh200", 64, ("megatron-core", "pytorch"), "dp,tp"),
    ("resnet50", "16xv100-16", 256, ("pytorch", "chainer", "horovod", "tensorflow", "mxnet"), ""),
    ("vgg16", "abci:8", 64, ("chainer", "pytorch", "pytorch-channels-last"), "dp,filter,channel,spatial,pp"),
    ("cosmoflow128", "lassen:8", 16, ("lbann", "chainer", "pytorch"), "dp,spatial,filter,channel"),
    ("vit-b-16", "8xmi300x", 128, ("pytorch", "pytorch-compiled"), "dp,tp,pp,recompute"),
    ("swin-t", "4xrtx4090", 64, ("pytorch", "pytorch-1"), ""),
    ("convnext-tiny", "8xb200", 128, ("pytorch", "pytorch-channels-last"), ""),
    ("t5-large", "8xh100", 64, ("pytorch", "megatron-core"), "dp,tp,recompute"),
    ("lstm-medium", "4xp100", 32, ("pytorch", "tensorflow"), ""),
    ("lenet", "2xdgx1", 96, ("chainer", "pytorch"), "dp,spatial,channel,filter"),
    ("gpt:layers=12,hidden=256,heads=8,vocab=1000,seq=128", "16xh100", 64, ("pytorch", "megatron-core"), "dp,pp"),
    ("mlp", "8xcpu", 64, ("pytorch",), ""),
    ("llama3-8b", "8xgb200", 64, ("megatron-core", "torchtitan"), "dp,tp,cp"),
)  # fmt: skip
"""Model, cluster, batch, trainers, words that are searched (empty: all)."""

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
