"""The ultra-scale playbook's H100 sweep of nanotron: throughput, memory and failures on 8 to 512 GPUs.

What the columns do not record, and how it is known:

tied embeddings   nanotron's script ties them where the feed-forward is narrower than 10,000: 1B and 3B;
                  the printed MFU agrees
heads of 3B       listed as 24, but runs with 16 and 32 tensor ranks finished: 32
recompute         none: memory and time of the runs are those of keeping everything
sequence shares   on: memory without them would be half as large again
memory            GiB of world rank 0, so of the first stage; both numbers that the trainer writes were
                  divided by 2^30, and the data look like the reserved one
failures          out of memory for the most part; no reason was recorded, so the outcome is `failed`; where a run
                  that needs at least as much memory finished, another reason is certain (`needs_no_more`)

Part of the runs met a fault of the cluster: `cluster_faults` finds them from measurements alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from foretell.validation.sources import FAULT, OTHERWISE
from foretell.validation.study import (
    GIB,
    Line,
    MeasuredPeak,
    MeasuredRun,
    NotScored,
    Outcome,
    Unmapped,
    mapped,
    real,
    row,
    spec,
    stated,
    whole,
    whole_or,
    written,
)

COLUMNS = frozenset(
    {
        "model",
        "hidden",
        "layers",
        "heads",
        "ffn",
        "vocab",
        "seq_len",
        "gpu",
        "n_gpus",
        "micro_batch",
        "grad_accum",
        "global_batch",
        "dp",
        "pp",
        "tp",
        "zero",
        "tokens_per_s_per_gpu",
        "mem_gb",
        "outcome",
    }
)

TRAINER = "nanotron"
NODE = 8
TIED_BELOW = 10_000
"""nanotron, scripts/scaling_benchmarks.py: embeddings are tied in models with a narrower feed-forward."""

SLOW_SECONDS = 0.4
"""Seconds a pipeline slot that a run may lie above its fastest sibling. Healthy runs lie under 0.3, slow ones
mostly at 0.5 to 0.6 (two stages) or 0.9 to 1.2 (more)."""

FAULTY_NODES = 64
"""On 64 nodes 45 of 48 pipelines are slow by that rule, and 9 of 11 runs without a pipeline 3 to 5 times slow."""


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """Runs with a time, and failures, which say only whether a plan runs."""
    names = identities(lines)
    faulty = cluster_faults(lines)
    finished = [line for line in lines if line["outcome"] == "ok" and all(_counts(line[key]) for key in LAYOUT)]

    def one(name: str, line: Line) -> MeasuredRun:
        if line["outcome"] == "ok":
            return _row(name, line, FAULT if name in faulty else "healthy")
        return _row(name, line, OTHERWISE if any(needs_no_more(line, other) for other in finished) else "")

    return mapped(zip(names, lines, strict=True), one)


def identities(lines: Sequence[Line]) -> list[str]:
    """A name for each line: its model and layout, and which of several like it."""
    seen: dict[str, int] = {}
    names: list[str] = []
    for line in lines:
        layout = "dp{dp}-pp{pp}-tp{tp}-zero{zero}-b{micro_batch}-m{grad_accum}".format(**line)
        name = f"{line['model']}-{line['n_gpus']}-{layout}"
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}-again{seen[name]}")
    return names


def _row(name: str, line: Line, health: str) -> MeasuredRun:
    gpus, batch, micro, m = (whole(line, key) for key in ("n_gpus", "global_batch", "micro_batch", "grad_accum"))
    data, stages, tensor = (whole(line, key) for key in ("dp", "pp", "tp"))
    if data * stages * tensor != gpus:
        raise Unmapped("the ranks of the axes do not multiply to the GPUs")
    if micro * m * data != batch:
        raise Unmapped("micro-batches do not add up to the batch")
    if gpus % min(NODE, gpus):
        raise Unmapped("the GPUs are not whole nodes")
    outcome = _outcome(line)
    seconds = step_seconds(line) if outcome == "ok" else 0.0
    if outcome == "ok" and not seconds:
        raise Unmapped("no time was measured")
    memory = [MeasuredPeak(real(line, "mem_gb") * GIB, "reserved", "first stage")] if real(line, "mem_gb") else []
    zero = f":zero{line['zero']}" if whole_or(line, "zero", 0) and data > 1 else ""
    plan = written(f"pp{stages}:1f1b", f"dp{data}{zero}", f"tp{tensor}:sp", f"+m{m}" if m > 1 else "", "+bf16")
    return row(
        name,
        _model(line),
        plan,
        f"{gpus}xh100" if gpus < NODE else "aws-p5" if gpus == NODE else f"{gpus // NODE}xaws-p5",
        batch=batch,
        trainer=TRAINER,
        sequence=whole(line, "seq_len"),
        step_seconds=seconds,
        memory=memory,
        outcome=outcome,
        subsets=(health, line["model"], f"pp{min(stages, 2)}{'+' if stages > 1 else ''}", _reach(tensor)),
    )


def _reach(tensor: int) -> str:
    return "tensor in the node" if tensor <= NODE else "tensor over nodes"


def _outcome(line: Line) -> Outcome:
    word = stated(line, "outcome")
    if word not in ("ok", "oom", "failed"):
        raise Unmapped(f"outcome {word} is not known")
    return "ok" if word == "ok" else "oom" if word == "oom" else "failed"


def step_seconds(line: Line) -> float:
    """From the printed rate: utilisation is rounded to a tenth of a per cent."""
    rate = real(line, "tokens_per_s_per_gpu") * whole(line, "n_gpus")
    return whole(line, "global_batch") * whole(line, "seq_len") / rate if rate else 0.0


def _model(line: Line) -> str:
    hidden, heads, ffn = whole(line, "hidden"), whole(line, "heads"), whole(line, "ffn")
    heads = 32 if (hidden, heads) == (3072, 24) else heads
    return spec(
        "llama",
        layers=whole(line, "layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        ffn=ffn,
        vocab=whole(line, "vocab"),
        seq=whole(line, "seq_len"),
        tied=ffn < TIED_BELOW,
    )


LAYOUT = ("dp", "pp", "tp", "micro_batch", "grad_accum")
"""What says how much memory a run of a model needs."""


def needs_no_more(line: Line, other: Line) -> bool:
    """Whether a run needs no more memory than another: the same model and stages, no fewer ranks that share a layer or
    the states, micro-batches no larger, no more of them in flight, no sums of gradients where the other has none.

    No prediction takes part. Of pairs that finished, 1.4 % print over 1 % more all the same, 0.5 % over 5 %, one 37 %.
    """
    if line["model"] != other["model"] or not all(_counts(line[key]) for key in LAYOUT):
        return False
    data, stages, tensor, micro, many = (int(line[key]) for key in LAYOUT)
    data_of, stages_of, tensor_of, micro_of, many_of = (int(other[key]) for key in LAYOUT)
    if stages != stages_of or tensor < tensor_of or micro > micro_of or min(many, stages) > min(many_of, stages):
        return False
    if many > 1 == many_of:
        return False
    shared, shared_of = (int(one["dp"]) > 1 and whole_or(one, "zero", 0) > 0 for one in (line, other))
    if shared or shared_of:  # a smaller part of the states, by the same copies
        return shared and shared_of and data >= data_of
    return data == 1 or data_of > 1  # buckets


# runs that met a fault of the cluster


def cluster_faults(lines: Sequence[Line]) -> frozenset[str]:
    """Runs in the slow mode of the cluster, found without any prediction.

    A healthy pipeline takes some time per layer and slot that depends on the model, the tensor ranks and
    the micro-batch only. The fastest run of a model with these tensor ranks bounds it from above: a
    micro-batch k times as large takes at most k times as long. Runs that take more than `SLOW_SECONDS`
    longer for each of their slots had a fault (or a time-out) in their exchanges; so had all on
    `FAULTY_NODES`. A model and tensor ranks with slow runs only cannot be told.
    """
    names = identities(lines)
    finished = [(name, line) for name, line in zip(names, lines, strict=True) if _finished(line)]
    pipelines = [(name, line) for name, line in finished if int(line["pp"]) > 1]
    slow = {name for name, line in pipelines if _excess(line, [other for _, other in pipelines]) > SLOW_SECONDS}
    large = {name for name, line in finished if int(line["n_gpus"]) >= FAULTY_NODES * NODE}
    return frozenset(slow | large)


COUNTED = ("micro_batch", "grad_accum", "dp", "pp", "tp", "n_gpus", "layers", "global_batch", "seq_len")


def _counts(cell: str) -> bool:
    """Whether a cell is a number of something, 1 or more."""
    return re.fullmatch(r"0*[1-9][0-9]{0,11}", cell) is not None


def _finished(line: Line) -> bool:
    """Whether it has a time that can be trusted: micro-batches of some runs do not add up to the batch."""
    if line["outcome"] != "ok" or not all(_counts(line[key]) for key in COUNTED):
        return False
    if not re.fullmatch(r"(?=.*[1-9])[0-9]{1,12}(\.[0-9]{0,12})?", line["tokens_per_s_per_gpu"]):
        return False
    return int(line["micro_batch"]) * int(line["grad_accum"]) * int(line["dp"]) == int(line["global_batch"])


def _excess(line: Line, others: Sequence[Line]) -> float:
    """Seconds a slot above what the fastest sibling allows. A fault costs (m + 0.4 stages) such slots."""
    alike = [other for other in others if (other["model"], other["tp"]) == (line["model"], line["tp"])]
    micro, stages, m = int(line["micro_batch"]), int(line["pp"]), int(line["grad_accum"])
    layer = min(max(1.0, micro / int(other["micro_batch"])) * _layer_slot(other) for other in alike)
    healthy = layer * int(line["layers"]) / stages * (m + stages - 1)
    return (step_seconds(line) - healthy) / (m + 0.4 * stages)


def _layer_slot(line: Line) -> float:
    """Seconds of one layer in one slot, if all of the step were slots."""
    stages = int(line["pp"])
    slots = int(line["grad_accum"]) + stages - 1
    return step_seconds(line) / slots * stages / int(line["layers"])
