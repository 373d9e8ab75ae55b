"""Published training runs of language models, one table for all sources.

Columns are explained in `studies/published/README.md`. A blank recompute, precision, micro-batch or
layout is a reason, never a default. What a row runs under is found from its framework and year.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from foretell.plan.schedule import find
from foretell.plan.syntax import spelled_list
from foretell.plan.trainer import Trainer, allows, trainer
from foretell.validation.hardware_words import ClusterText, cluster, device
from foretell.validation.studies._llm_models import model_of
from foretell.validation.study import (
    GIB,
    Line,
    MeasuredPeak,
    MeasuredRun,
    NotScored,
    Number,
    Outcome,
    Rank,
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
        "source",
        "year",
        "model",
        "family",
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "ffn_hidden",
        "vocab",
        "seq_len",
        "gated_mlp",
        "tied_embeddings",
        "n_experts",
        "top_k",
        "gpu",
        "n_gpus",
        "framework",
        "precision",
        "dp",
        "tp",
        "pp",
        "vpp",
        "cp",
        "ep",
        "zero_stage",
        "micro_batch",
        "global_batch",
        "act_ckpt",
        "iter_time_s",
        "tokens_per_s_per_gpu",
        "mem_gib_per_gpu",
        "outcome",
    }
)

PRINTED: Final[dict[str, tuple[Number, Rank]]] = {
    "simumax-b200": ("allocated", "worst"),
    "zero-bubble": ("reserved", "worst"),
    "bigscience": ("device", "worst"),
    "torchtitan": ("reserved", "worst"),
    "nanotron": ("reserved", "first stage"),
    "colossalai": ("device", "worst"),
}
"""The memory number that a source printed, and of which rank. Sources that do not say are not compared."""


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """Every run of every source."""
    return mapped(((line["id"], line) for line in lines), _row)


def _row(name: str, line: Line) -> MeasuredRun:
    outcome = _outcome(line)
    layout = _layout(line)
    runs = _trainer(line, layout)
    where = cluster(
        stated(line, "gpu"),
        whole(line, "n_gpus"),
        whole_or(line, "gpus_per_node", 0),
        line.get("intra_link", ""),
        line.get("inter_link", ""),
    )
    seconds = _seconds(line) if outcome == "ok" else 0.0
    memory = _memory(line)
    model = model_of(line, runs)
    if outcome == "ok" and not seconds and not memory:
        raise Unmapped("neither time nor memory was measured")
    if outcome == "ok" and line.get("usable") == "0":
        raise Unmapped("marked not usable where it was collected")
    return row(
        name,
        model,
        _plan(line, layout, runs),
        where.text,
        batch=layout.batch,
        trainer=runs.name,
        optimizer="lamb" if "LAMB" in line.get("comment", "") else "",
        sequence=whole(line, "seq_len"),
        step_seconds=seconds,
        memory=memory,
        outcome=outcome,
        subsets=_subsets(line, runs, where),
    )


def _subsets(line: Line, runs: Trainer, where: ClusterText) -> tuple[str, ...]:
    kind = "experts" if whole_or(line, "n_experts", 0) else "dense"
    low = line["precision"] if line["precision"] in ("fp8", "mxfp8", "nvfp4") else ""
    return (line["source"], runs.name, device(line["gpu"]), kind, low, *where.subsets)


def _outcome(line: Line) -> Outcome:
    word = line["outcome"] or "ok"
    if word == "error":
        return "failed"
    if word not in ("ok", "oom", "failed"):
        raise Unmapped(f"outcome {word} is not known")
    return "ok" if word == "ok" else "oom" if word == "oom" else "failed"


# time and memory


def _seconds(line: Line) -> float:
    """The step as printed, else from tokens or samples a second, else from FLOP/s where their formula is known."""
    if real(line, "iter_time_s"):
        return real(line, "iter_time_s")
    batch, gpus = whole(line, "global_batch"), whole(line, "n_gpus")
    if real(line, "tokens_per_s_per_gpu"):
        return batch * whole(line, "seq_len") / (real(line, "tokens_per_s_per_gpu") * gpus)
    if real(line, "samples_per_s"):
        return batch / real(line, "samples_per_s")
    if real(line, "tflops_per_gpu") and line.get("flops_formula_note", "").startswith("SC21 eq.3"):
        return _sc21_flops(line) / (real(line, "tflops_per_gpu") * 1e12 * gpus)
    return 0.0


def _sc21_flops(line: Line) -> float:
    """Narayanan et al. 2021, equation 3: the work of a step with full recompute."""
    b, s, n = whole(line, "global_batch"), whole(line, "seq_len"), whole(line, "layers")
    h, v = whole(line, "hidden"), whole(line, "vocab")
    return 96 * b * s * n * h**2 * (1 + s / (6 * h) + v / (16 * n * h))


def _memory(line: Line) -> list[MeasuredPeak]:
    size, source = real(line, "mem_gib_per_gpu"), line["source"]
    if not size or source not in PRINTED:
        return []
    return [MeasuredPeak(size * GIB, *PRINTED[source])]


# the layout


class StudyLayout(NamedTuple):
    """Ranks of each axis, and how the batch is cut."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    micro: int
    m: int
    batch: int


def _layout(line: Line) -> StudyLayout:
    dp, tp, pp = whole(line, "dp"), whole(line, "tp"), whole(line, "pp")
    cp, ep = whole_or(line, "cp", 1), whole_or(line, "ep", 1)
    if dp * tp * pp * cp != whole(line, "n_gpus"):
        raise Unmapped("the ranks of the axes do not multiply to the GPUs")
    micro, batch = whole(line, "micro_batch"), whole(line, "global_batch")
    if "micro-batch size not stated" in line.get("comment", "") or "whose size is not stated" in line.get(
        "comment", ""
    ):
        raise Unmapped("the pipeline's micro-batch is not stated")
    m = whole_or(line, "grad_accum", 0) or batch // (micro * dp)
    if micro * m * dp != batch:
        raise Unmapped("micro-batches do not add up to the batch")
    return StudyLayout(dp, tp, pp, cp, ep, micro, m, batch)


def _plan(line: Line, layout: StudyLayout, runs: Trainer) -> str:
    comment = line.get("comment", "")
    tensor = f"tp{layout.tp}{':sp' if _sequence(line, layout, runs) else ''}"
    context = f"cp{layout.cp}:{'alltoall' if 'CP all-to-all' in comment else 'ring'}"
    policies = (
        f"+m{layout.m}" if layout.m > 1 else "",
        _recompute(line, runs),
        f"+{_precision(line)}",
        "+compiled" if line.get("compile") == "1" else "",
        "+no-overlap" if "communication overlap off" in comment else "",
    )
    return written(_pipeline(line, layout, runs), _data(line, layout), context, tensor, *policies)


def _sequence(line: Line, layout: StudyLayout, runs: Trainer) -> bool:
    if layout.tp == 1:
        return False
    said = line.get("sequence_parallel", "")
    if not said and runs.legal.sequence_parallel == "optional":
        raise Unmapped("sequence_parallel is not stated")
    return said == "1" or (not said and runs.legal.sequence_parallel == "always")


def _data(line: Line, layout: StudyLayout) -> str:
    if layout.dp > 1:
        stated(line, "zero_stage")
    zero = whole_or(line, "zero_stage", 0)
    options = [f"zero{zero}"] if zero > 0 and layout.dp * layout.ep > 1 else []
    group = re.search(r"zero1=([1-9][0-9]{0,8})\b", line.get("comment", ""))
    ranks = layout.dp
    if options and group and int(group[1]) < layout.dp:  # states in shares among some ranks only
        if layout.dp % int(group[1]):
            raise Unmapped("the sharding group does not divide the data ranks")
        ranks = layout.dp // int(group[1])
        options.append(f"shard{group[1]}")
    if layout.ep > 1:
        options += [f"ep{layout.ep}"] + (["etp1"] if layout.tp > 1 and layout.ep > layout.dp else [])
    text = f"dp{ranks}{':' if options else ''}{','.join(options)}"
    return text if layout.dp > 1 or layout.ep > 1 else ""


def _pipeline(line: Line, layout: StudyLayout, runs: Trainer) -> str:
    if layout.pp == 1:
        return ""
    schedule, comment = "1f1b", line.get("comment", "")
    named = re.search(r"schedule ([\w*-]+(?: 1F1B)?)", comment)
    chunks = whole_or(line, "vpp", 0)
    if named:
        schedule = _schedule(named[1])
    elif not chunks and allows(runs.pipeline.schedules, "interleaved"):
        raise Unmapped("virtual stages are not stated")
    elif chunks > 1:
        schedule = "interleaved"
    options = [schedule, f"v{chunks}"] if schedule == "interleaved" else [schedule]
    split = _split(line, layout.pp * (chunks if schedule == "interleaved" else find(schedule).least_chunks), runs)
    return f"pp{layout.pp}:{','.join([*options, *split])}"


def _schedule(word: str) -> str:
    known = {"1F1B": "1f1b", "Interleaved 1F1B": "interleaved", "ZB-1p": "zb-h1", "ZB-V": "zb-v", "GPipe": "gpipe"}
    if word not in known:
        raise Unmapped(f"schedule {word} is not in the plan grammar")
    return known[word]


def _split(line: Line, stages: int, runs: Trainer) -> list[str]:
    """Where embedding and head count as a layer each, first and last stage hold one layer less.

    A run with Megatron whose layers do not divide, but do with these two, can only have been so.
    """
    layers = whole(line, "layers")
    slots, rest = divmod(layers + 2, stages)
    said = re.search(r"embedding slots|as pipeline slots|one layer less", line.get("comment", ""))
    only_way = runs.legal.layers_divide and runs.legal.uneven_stages and layers % stages
    if rest or slots < 1 or not (said or only_way):
        return []
    counts = [slots - 1, *[slots] * (stages - 2), slots - 1]
    return [f"split={spelled_list(counts)}"]


def _recompute(line: Line, runs: Trainer) -> str:
    word = stated(line, "act_ckpt")
    if word == "selective":
        if "megatron" in runs.name or runs.name == "nemo":
            if "recompute mla" in line.get("comment", ""):
                raise Unmapped("recompute of chosen modules cannot be written in the plan grammar")
            return "+recompute:attention"  # Megatron's own meaning of the word
        raise Unmapped(f"selective recompute of {runs.name} cannot be written in the plan grammar")
    known = {"none": "", "full": "+recompute:block"}  # `full` keeps the input of each layer
    if word not in known:
        raise Unmapped(f"act_ckpt {word} is not known")
    return known[word]


def _precision(line: Line) -> str:
    word = stated(line, "precision")
    if word not in ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32", "tf32"):
        raise Unmapped(f"precision {word} is not known")
    return word


# the trainer


def _trainer(line: Line, layout: StudyLayout) -> Trainer:
    name = _trainer_name(line["framework"].lower(), whole(line, "year"), line, layout)
    if not name:
        raise Unmapped(f"no trainer describes {line['framework'] or 'a blank framework'}")
    return trainer(name)


FRAMEWORKS: Final[tuple[tuple[str, str], ...]] = (
    (r"maxtext|jax|xla", ""),
    (r"metaseq|megascale|colossal", ""),
    (r"composer|llm-foundry|llm foundry", "llm-foundry"),
    (r"torchtitan", "torchtitan"),
    (r"nanotron", "nanotron"),
    (r"neox|megatron-deepspeed|megatron\+deepspeed", "megatron-deepspeed"),
    (r"deepspeed", "deepspeed"),
    (r"nemo megatron", "megatron-lm-2023"),
    (r"nemo|bridge", "nemo"),
    (r"megatron-core|\bte \d", "megatron-core"),
    (r"megatron", "megatron-lm"),
    (r"fsdp", "fsdp"),
    (r"internevo", "internevo"),
    (r"pytorch|ddp", "pytorch"),
)
"""Pattern to trainer, the first that is found; empty for frameworks that no trainer describes."""


def _trainer_name(framework: str, year: int, line: Line, layout: StudyLayout) -> str:
    found = next((name for pattern, name in FRAMEWORKS if re.search(pattern, framework)), "")
    if found == "deepspeed" and year <= 2021:
        return "deepspeed-2021"
    if found == "megatron-deepspeed" and year <= 2022:
        return "megatron-deepspeed-2022"
    if found != "megatron-lm":
        return found
    if year >= 2024:
        return "megatron-core"
    newer = line.get("sequence_parallel") == "1" or (whole_or(line, "zero_stage", 0) > 0)
    if year >= 2023 or newer:
        return "megatron-lm-2023"
    return "megatron-lm-2021" if year >= 2021 or layout.pp > 1 else "megatron-lm-2019"
