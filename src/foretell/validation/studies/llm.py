"""Published training runs of language models, one table for all sources.

Columns are explained in docs/validate.md. What a line leaves blank is answered in `_llm_defaults.py`, and said in the
row's `assumed`; what has no answer there is a reason. What a row runs under is found from its framework and year.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from foretell.plan.recomputation import RECOMPUTATIONS
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer
from foretell.validation.hardware_words import ClusterText, cluster, device
from foretell.validation.studies._cnn_models import BINNED, SHORT
from foretell.validation.studies._llm_adapters import adapters, offload, optimizer
from foretell.validation.studies._llm_defaults import filled
from foretell.validation.studies._llm_memory import memory
from foretell.validation.studies._llm_models import model_of
from foretell.validation.studies._llm_stages import pipeline, short_last
from foretell.validation.studies._llm_trainers import trainer_of
from foretell.validation.studies._spelling import plain
from foretell.validation.study import (
    Line,
    MeasuredRun,
    NotScored,
    Outcome,
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
    {"id", "model", "seq_len", "gpu", "n_gpus", "framework", "precision", "dp", "tp", "pp", "micro_batch"}
    | {"global_batch", "act_ckpt"}
)
"""Those that a file must have; docs/validate.md has all."""

OWN: Final = "own runs"
"""The source of lines that name none."""

RECOMPUTE_SAID: Final = "recompute stated"
RECOMPUTE_UNSAID: Final = "recompute not stated"
"""Whether a source says what runs again: if not, memory is that of a default, or of the answer that fits best."""

LIBRARIES: Final = ("hybridep", "deepep")
"""Ways of dispatch that comments name."""

COLLECTED: Final = "validate has no column for adapters"
"""Where this was the reason to mark a line not usable, it is none any more."""


RELEASE: Final = re.compile(r"(?:dgxc-benchmarking @v|NeMo container )([0-9]+(?:\.[0-9]+)*)")


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """Every run of every source."""
    return mapped(((line["id"], line) for line in lines), _row)


class PossiblePlan(NamedTuple):
    """What a line may have been: its blanks answered one way."""

    line: Line
    batch: int
    plan: str


def _row(name: str, line: Line) -> MeasuredRun:
    line = plain(line)
    outcome = _outcome(line)
    _usable(line, outcome)
    runs, stand_in = trainer_of(line)
    said = RECOMPUTE_SAID if line.get("act_ckpt") else RECOMPUTE_UNSAID
    line = _with_ranks(line)
    peaks = memory(line)  # of the line as it was printed: a schedule that stands in for its own keeps less
    lines, assumed = filled(line, runs)
    first, *possible = _possible(lines, runs)
    line = first.line
    model, approximated = model_of(line, runs)
    where = cluster(
        stated(line, "gpu"),
        whole(line, "n_gpus"),
        whole_or(line, "gpus_per_node", 0),
        line.get("intra_link", ""),
        line.get("inter_link", ""),
    )
    updates, replaced = optimizer(line)
    seconds = _seconds(line) if outcome == "ok" else 0.0
    if outcome == "ok" and not seconds and not peaks:
        raise Unmapped("neither time nor memory was measured")
    run = row(
        name,
        model,
        first.plan,
        where.text,
        batch=first.batch,
        trainer=runs.name,
        optimizer=updates,
        sequence=whole(line, "seq_len"),
        step_seconds=seconds,
        memory=peaks,
        outcome=outcome,
        subsets=(*_subsets(line, runs, where), said),
    )
    plans = dict.fromkeys(parse(one.plan) for one in possible if one.batch == first.batch)
    words = (*stand_in, *assumed, *short_last(line, runs), *approximated, *replaced, *adapters(line).assumed)
    others = tuple(plan for plan in plans if plan != run.plan)
    return msgspec.structs.replace(run, assumed=words, others=others, release=_release(line))


def _release(line: Line) -> str:
    """Of the software, in the words of the two sources that measured several."""
    found = RELEASE.search(f"{line.get('source_ref', '')} {line.get('comment', '')}")
    return found[1] if found else ""


def _usable(line: Line, outcome: Outcome) -> None:
    if outcome == "ok" and line.get("usable") == "0" and COLLECTED not in line.get("comment", ""):
        raise Unmapped("marked not usable where it was collected")
    if "NVFuser" in line.get("framework", "") and whole(line, "seq_len") > SHORT:
        raise Unmapped(BINNED)


def _possible(lines: list[Line], runs: Trainer) -> list[PossiblePlan]:
    """Each way to answer the blanks that can be written as a plan; at least one, or the reason of the first."""
    found: list[PossiblePlan] = []
    reason: Unmapped | None = None
    for line in lines:
        try:
            layout = _layout(line)
            found.append(PossiblePlan(line, layout.batch, _plan(line, layout, runs)))
        except Unmapped as problem:
            reason = reason or problem
    if not found:
        raise reason or Unmapped("nothing is stated")
    return found


def _subsets(line: Line, runs: Trainer, where: ClusterText) -> tuple[str, ...]:
    tuned = ("lora" if adapters(line).policy else "full") if line.get("method") else ""
    kind = "experts" if whole_or(line, "n_experts", 0) else "dense"
    low = line["precision"] if line["precision"] in ("fp8", "mxfp8", "nvfp4") else ""
    return (line.get("source", "") or OWN, runs.name, device(line["gpu"]), kind, low, tuned, *where.subsets)


def _outcome(line: Line) -> Outcome:
    word = line.get("outcome", "") or "ok"
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
    work = _stated_flops(line) if real(line, "tflops_per_gpu") else 0.0
    return work / (real(line, "tflops_per_gpu") * 1e12 * gpus) if work else 0.0


def _stated_flops(line: Line) -> float:
    """The work of a step as the source counts it; 0 where its formula is not known.

    Narayanan et al. 2021, equation 3, with full recompute; Megatron-Core counts the same without (full attention,
    all heads with keys of their own, a feed-forward of 4 x hidden).
    """
    note, dense = line.get("flops_formula_note", ""), not whole_or(line, "n_experts", 0)
    b, s, n = whole(line, "global_batch"), whole(line, "seq_len"), whole(line, "layers")
    h, v = whole(line, "hidden"), whole(line, "vocab")
    if note.startswith("SC21 eq.3"):
        return 96 * b * s * n * h**2 * (1 + s / (6 * h) + v / (16 * n * h))
    if note.startswith("Megatron model FLOPs, full attention") and dense:
        return 72 * b * s * n * h**2 * (1 + s / (6 * h) + v / (12 * n * h))
    return 0.0


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


def _with_ranks(line: Line) -> Line:
    """Blank axes have one rank; a blank data axis has the ranks that the others leave."""
    axes = {axis: line.get(axis, "") or "1" for axis in ("tp", "pp", "cp", "ep")}
    alone = whole(line, "n_gpus") == 1
    if not alone and not line.get("dp") and not (line.get("tp") or line.get("pp")):
        raise Unmapped("dp is not stated")
    others = whole(axes, "tp") * whole(axes, "pp") * whole(axes, "cp")
    return {**line, **axes, "dp": line.get("dp") or str(whole(line, "n_gpus") // others)}


def _layout(line: Line) -> StudyLayout:
    dp, tp, pp, cp, ep = (whole(line, axis) for axis in ("dp", "tp", "pp", "cp", "ep"))
    if dp * tp * pp * cp != whole(line, "n_gpus"):
        raise Unmapped("the ranks of the axes do not multiply to the GPUs")
    micro, batch = whole(line, "micro_batch"), whole(line, "global_batch")
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
        _recompute(line),
        f"+{_precision(line)}",
        "+compiled" if line.get("compile") == "1" else "",
        offload(line),
        adapters(line).policy,
        "+no-overlap" if "communication overlap off" in comment else "",
        "+a2a-overlap" if "all-to-all overlap" in comment else "",
        "+captured" if "graphs of the whole step" in comment else "",
    )
    return written(pipeline(line, runs), _data(line, layout), context, tensor, *policies)


def _sequence(line: Line, layout: StudyLayout, runs: Trainer) -> bool:
    if layout.tp == 1:
        return False
    said = line.get("sequence_parallel", "")
    return said == "1" or (not said and runs.legal.sequence_parallel == "always")


def _data(line: Line, layout: StudyLayout) -> str:
    """The data axis; states are in shares among the context ranks too."""
    zero = whole_or(line, "zero_stage", 0)
    options = [f"zero{zero}"] if zero > 0 and layout.dp * layout.cp * layout.ep > 1 else []
    group = re.search(r"(?:zero1=|FSDP group of )([1-9][0-9]{0,8})\b", line.get("comment", ""))
    ranks = layout.dp
    size = int(group[1]) if group else ranks
    if options and size < layout.dp:  # states in shares among some ranks only
        if layout.dp % size:
            raise Unmapped("the sharding group does not divide the data ranks")
        ranks = layout.dp // size
        options.append(f"shard{size}")
    if layout.ep > 1:
        options += [f"ep{layout.ep}"] + (["etp1"] if layout.tp > 1 and layout.ep > layout.dp else [])
        options += [word for word in LIBRARIES if word in line.get("comment", "").lower()][:1]
    return f"dp{ranks}{':' if options else ''}{','.join(options)}"


def _recompute(line: Line) -> str:
    known = {"none": "", "selective": "+recompute:attention", "full": "+recompute:block"}  # selective: Megatron's word
    word = stated(line, "act_ckpt")
    if word in known:
        return known[word]
    if not all(one in RECOMPUTATIONS for one in word.split(",")):
        raise Unmapped(f"act_ckpt {word} is not known")
    return f"+recompute:{word}"


def _precision(line: Line) -> str:
    word = stated(line, "precision")
    if word not in ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32", "tf32"):
        raise Unmapped(f"precision {word} is not known")
    return "bf16:pure" if word == "bf16" and line.get("states_precision", "").startswith("bf16") else word
