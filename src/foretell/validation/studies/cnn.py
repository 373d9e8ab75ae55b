"""Published training runs of convolutional networks, other vision models and BERT, one table for all sources.

Columns are explained in `studies/published/README.md`. The prefix of an id names the source. An optimizer that is not
stated is taken to be the usual one, and said so; recompute, precision and batch must be stated; models and frameworks
that nothing here describes are reasons, by name. Some sources timed forward and backward passes alone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from foretell.hardware import members
from foretell.model.optimizer import OPTIMIZERS
from foretell.plan.text import parse
from foretell.validation.hardware_words import ClusterText, cluster, device
from foretell.validation.studies._cnn_models import (
    ORACLE_PAPER,
    SENTENCE,
    SEQUENCES,
    TRANSLATION,
    model_of,
    source,
)
from foretell.validation.studies._cnn_trainers import trainer_of, year_of
from foretell.validation.studies._llm_memory import number_of
from foretell.validation.studies._spelling import plain_vision, update_rule
from foretell.validation.studies.paradl import SEGMENTS
from foretell.validation.study import (
    GIB,
    Line,
    MeasuredPeak,
    MeasuredRun,
    NotScored,
    Unmapped,
    mapped,
    real,
    row,
    stated,
    whole,
    whole_or,
    written,
)

COLUMNS = frozenset(
    {
        "id",
        "model",
        "task_dataset",
        "input_shape",
        "gpu",
        "n_gpus",
        "gpus_per_node",
        "framework",
        "precision",
        "strategy",
        "partitions",
        "micro_batches",
        "per_gpu_batch",
        "global_batch",
        "optimizer",
        "iter_time_s",
        "samples_per_s",
        "mem_gib_per_gpu",
        "act_ckpt",
        "usable",
    }
)

MEAN_MEMORY: Final = ("tgp", "gpp")
"""Sources whose memory is a mean over ranks or a sum of parts (torchgpipe, GPipe); others print that of a device."""


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """Every run of every source."""
    return mapped(((line["id"], line) for line in lines), _row)


def _row(name: str, line: Line) -> MeasuredRun:
    line = plain_vision(line)
    out_of_memory = "out of memory" in line.get("comment", "").lower() and not line["samples_per_s"]
    if line["usable"] == "0":
        raise Unmapped("marked not usable where it was collected")
    model, said = model_of(line), ()
    if line["model"] in TRANSLATION:
        line, said = _in_sentences(line), (f"sentences of {SENTENCE} tokens",)
    ranks = whole(line, "n_gpus")
    line, unsaid = _answered(line, ranks)
    runs = trainer_of(line)
    where = _cluster(line, ranks)
    first, *others = _counts(line)
    batch = _batch({**line, "micro_batches": first}, ranks)
    seconds = _seconds(line, batch, model.seq)
    memory = _memory(line)
    if not seconds and not memory and not out_of_memory:
        raise Unmapped("neither time nor memory was measured")
    shared = "+syncbn" if ranks > 1 and "SyncBN" in line.get("comment", "") else ""
    policies = (
        f"+{_precision(line)}",
        _execution(line),
        shared,
    )
    again = (
        ("", "+recompute:full") if others and ranks > 1 else (_recompute(line),)
    )  # torchgpipe's default is the second
    plans = [
        written(*_axes(line, ranks), f"+m{m}" if m > 1 else "", word, *policies)
        for m, word in itertools.product((batch.m, *map(int, others)), again)
    ]
    optimizer = _optimizer(line)
    found = row(
        name,
        model.text,
        plans[0],
        where.text,
        batch=batch.samples,
        trainer=runs,
        optimizer=optimizer.name,
        sequence=model.seq,
        image=model.image,
        step_seconds=seconds,
        memory=memory,
        outcome="oom" if out_of_memory else "ok",
        subsets=(
            source(line),
            runs,
            device(line["gpu"]),
            line["strategy"],
            model.family,
            *where.subsets,
        ),
    )
    timed = "passes" if optimizer.left_out else "step"
    either = ", with recompute and without" if len(again) > 1 else ""
    cut = (f"{', '.join((first, *others))} micro-batches{either}",) if others else ()
    assumed, may = (*optimizer.assumed, *said, *unsaid, *cut), tuple(map(parse, plans[1:]))
    return msgspec.structs.replace(found, assumed=assumed, timed=timed, others=may)


def _counts(line: Line) -> list[str]:
    """Micro-batches as stated, or each number of them that such batches are usually cut into."""
    unsaid = "micro-batch count not stated" in line.get("comment", "") and not line["micro_batches"]
    return [str(count) for count in SEGMENTS] if unsaid else [line["micro_batches"]]


def _answered(line: Line, ranks: int) -> tuple[Line, tuple[str, ...]]:
    """The line with its blanks answered, and what was assumed: what such runs usually are."""
    each = real(line, "per_gpu_batch")
    usual = {
        "strategy": "data" if ranks > 1 else "single",
        "framework": "PyTorch",
        "act_ckpt": "" if source(line) in ORACLE_PAPER else "none",
        "global_batch": f"{each * ranks:.0f}" if each and "accumulation" not in line.get("comment", "") else "",
    }
    found = {column: word for column, word in usual.items() if word and not line.get(column)}
    said = tuple(f"{column}: {found[column]}" for column in ("framework", "act_ckpt") if column in found)
    return {**line, **found}, said


def _in_sentences(line: Line) -> Line:
    """A line whose batches are in tokens."""
    sizes = {name: str(whole(line, name) // SENTENCE) for name in ("per_gpu_batch", "global_batch")}
    return {**line, **sizes}


# what was measured


class StudyBatch(NamedTuple):
    """Samples of a step over all ranks, and micro-batches."""

    samples: int
    m: int


def _batch(line: Line, ranks: int) -> StudyBatch:
    """As stated, and what multiplies out where micro-batches are left out.

    Pipelines round the last micro-batch up (25,000 samples in 1,667): the step is scaled with it.
    """
    gathered = re.search(r"gradient accumulation to a (\d+) global batch", line.get("comment", ""))
    samples = int(gathered[1]) if gathered and not line["global_batch"] else whole(line, "global_batch")
    each, m = real(line, "per_gpu_batch"), whole_or(line, "micro_batches", 0)
    if line["strategy"] == "pipeline":
        if not m:
            raise Unmapped("micro_batches is not stated")
        return StudyBatch(-(-samples // m) * m, m)
    if not each:
        return StudyBatch(samples, max(1, m))
    if not m:
        m = max(1, round(samples / (each * ranks)))
    if each * ranks * m != samples:
        raise Unmapped("micro-batches do not add up to the batch")
    return StudyBatch(samples, m)


def _seconds(line: Line, batch: StudyBatch, seq: int) -> float:
    if real(line, "iter_time_s"):
        return real(line, "iter_time_s") * batch.samples / whole_or(line, "global_batch", batch.samples)
    if not real(line, "samples_per_s"):
        return 0.0
    if line.get("throughput_unit", "") == "tokens/s":
        if line["model"] not in (*SEQUENCES, *TRANSLATION):
            raise Unmapped("throughput is in tokens of variable length")
        return batch.samples * seq / real(line, "samples_per_s")
    return batch.samples / real(line, "samples_per_s")


def _memory(line: Line) -> list[MeasuredPeak]:
    size = real(line, "mem_gib_per_gpu")
    kind = line.get("mem_kind", "").lower()
    filled = "upper bound" in line.get("comment", "")  # batches chosen to fill the device: its size, not the run's need
    compared = size and source(line) not in MEAN_MEMORY and not filled
    return [MeasuredPeak(size * GIB, number_of(kind), "worst")] if compared else []


# how it ran


def _cluster(line: Line, ranks: int) -> ClusterText:
    if source(line) in ORACLE_PAPER:
        return ClusterText(f"abci:{ranks}", ())
    node = whole_or(line, "gpus_per_node", 0)
    return cluster(stated(line, "gpu"), ranks, node, line.get("intra_link", ""), line.get("inter_link", ""))


COSMOFLOW_PART: Final = {
    "4x512x512x512": "[CONV1..APOOL2]",
    "4x256x256x256": "[layers.0.conv..layers.1.pool]",
}
"""The oracle paper splits CosmoFlow's volume up to the second pooling, and gathers it there."""


def _axes(line: Line, ranks: int) -> tuple[str, ...]:
    strategy, parts = line["strategy"], line["partitions"]
    if strategy in ("single", "data"):
        if (strategy == "single") != (ranks == 1):
            raise Unmapped(f"{strategy} on {ranks} GPUs")
        return (f"dp{ranks}",)
    if strategy == "pipeline":
        return (f"pp{ranks}:gpipe",)
    if strategy in ("filter", "channel", "spatial"):
        return (f"{strategy}{ranks}",)
    if strategy == "ps":
        return (_servers(line, ranks),)
    inner = re.fullmatch(r"(\d+) (filter|spatial|channel) x (\d+) data", parts)
    if inner:
        part = (
            COSMOFLOW_PART.get(line["input_shape"], "") if (line["model"], inner[2]) == ("CosmoFlow", "spatial") else ""
        )
        return f"dp{inner[3]}", f"{inner[2]}{inner[1]}{part}"
    head = re.fullmatch(r"backbone (\d+) data; FC split by class over \1", parts)
    if head:
        return (f"filter{head[1]}[head]:data",)
    outer = re.fullmatch(r"(filter|spatial|channel) (\d+) x data (\d+)", parts)
    if outer:
        return f"dp{outer[3]}", f"{outer[1]}{outer[2]}"
    raise Unmapped(f"no plan is written for {strategy}{': ' if parts else ''}{re.sub(r'[0-9]+', 'n', parts)}")


def _servers(line: Line, ranks: int) -> str:
    node = whole_or(line, "gpus_per_node", 0)
    if "sync PS on the workers" not in line.get("comment", "") or not node or ranks <= node:
        raise Unmapped("parameter servers in host memory have no word in the plan grammar")
    return f"ps{ranks}:sync,k{ranks // node},group{node}"


def _recompute(line: Line) -> str:
    if not line["act_ckpt"] and source(line) in ORACLE_PAPER:
        return ""
    word = stated(line, "act_ckpt")
    if word not in ("none", "full"):
        raise Unmapped(f"act_ckpt {word} is not known")
    return "" if word == "none" else "+recompute:full"  # GPipe keeps the input of each stage


def _execution(line: Line) -> str:
    """MLPerf's RetinaNet records steps, element-wise neighbours fused (training_results_v2.0, NVIDIA/benchmarks/ssd:
    --cuda-graphs --jit)."""
    return "+captured" if line["model"].startswith("RetinaNet") and source(line) == "mlp" else ""


PRECISIONS: Final = {"fp32": "fp32", "tf32": "tf32", "fp16": "fp16", "fp16 mixed": "fp16", "bf16": "amp_bf16"}


def _precision(line: Line) -> str:
    word = stated(line, "precision").lower()
    chip = members.device(device(stated(line, "gpu")))
    if word == "tf32" and "rocm" in line["framework"].lower():
        # PyTorch of 2025 had TF32 on AMD devices only with HIPBLASLT_ALLOW_TF32 (mila-iqia/milabench, issue 339)
        return "fp32"
    if word == "fp32/tf32":
        if "tf32" not in chip.peak:
            return "fp32"
        if "NGC" not in line["framework"]:
            raise Unmapped("precision is FP32 or TF32")
        return "tf32"  # NVIDIA's containers set TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1; convolutions have it by default
    if word == "amp":
        return "fp16" if _keeps_copies(line) else "amp_fp16"
    if word not in PRECISIONS:
        raise Unmapped(f"precision {line['precision']} cannot be written in the plan grammar")
    return PRECISIONS[word]


OPTIMIZER_WORDS: Final = {
    "sgd": "sgd",
    "sgd (benchmark script default)": "momentum",  # timm, benchmark.py: momentum of 0.9
    "sgd momentum": "momentum",
    "sgd with momentum": "momentum",
    "momentum sgd": "momentum",
    "nag": "momentum",
    "adam": "adam",
    "adamw": "adamw",
    "adam/lamb": "adam",
    "lamb": "lamb",
    "jitlamb": "lamb",
    "lars": "lars",
}


def _keeps_copies(line: Line) -> bool:
    """Whether 16-bit weights have fp32 copies in the optimizer: scripts of MXNet and PaddlePaddle (PaddlePaddle/Perf,
    logs of ResNet-50), and NVIDIA's of BERT and Transformer-XL in PyTorch 1 (apex O2). PyTorch's and TensorFlow's own
    mixed precision casts fp32 weights, to fp16 unless told otherwise."""
    by_apex = line["model"].startswith("BERT") or line["model"] in SEQUENCES
    apex = "PyTorch" in line["framework"] and by_apex and year_of(line) < 2023
    whole = "paddle" in line["framework"].lower() and not line["model"].startswith("BERT")  # level O2, multi_precision
    return apex or whole or "mxnet" in line["framework"].lower()


class StudyOptimizer(NamedTuple):
    """The update rule, what was assumed of it, and whether its step was left out of what was timed."""

    name: str
    assumed: tuple[str, ...] = ()
    left_out: bool = False


def _optimizer(line: Line) -> StudyOptimizer:
    """As stated; where nothing is, what the field trains such a model with."""
    comment, word = line.get("comment", ""), line["optimizer"].lower()
    if "no optimizer step" in comment or (not word and re.search(r"forward .* backward", comment)):
        return StudyOptimizer("sgd", left_out=True)
    if not word:
        usual = "adam" if line["model"].startswith("BERT") else "momentum"
        return StudyOptimizer(usual, (f"optimizer {usual}",))
    found = OPTIMIZER_WORDS.get(word) or update_rule(word)
    if found not in OPTIMIZERS:
        raise Unmapped(f"no update rule is called {line['optimizer']}")
    return StudyOptimizer(found)
