"""vTrain's published A100 runs of Megatron-DeepSpeed, one node and many.

The same columns for both. What they do not record is the same for all: 1F1B, full recompute, a
vocabulary of 50,257, four ports of 200 Gb/s a node (README of the data); plain data parallelism and
16-bit training with a dropout of 0.1, as Megatron-DeepSpeed does them unless asked. Axes lie as Megatron
lays them: tensor ranks innermost, then data, then stages.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretell.validation.study import Line, MeasuredRun, NotScored, Unmapped, mapped, real, row, spec, whole, written

COLUMNS = frozenset(
    {
        "# GPUs",
        "global batch",
        "micro batch",
        "hidden size",
        "attention heads",
        "# layers",
        "sequence length",
        "tensor parallelism",
        "data parallelism",
        "pipeline parallelism",
        "iteration time (ms)",
    }
)

TRAINER = "megatron-deepspeed"
VOCABULARY = 50257
NODE = 8


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """Every run has a time and finished."""
    return mapped(((f"{at}", line) for at, line in enumerate(lines, 2)), _row)


def _row(name: str, line: Line) -> MeasuredRun:
    gpus, batch, micro = whole(line, "# GPUs"), whole(line, "global batch"), whole(line, "micro batch")
    tensor, data = whole(line, "tensor parallelism"), whole(line, "data parallelism")
    stages = whole(line, "pipeline parallelism")
    if tensor * data * stages != gpus:
        raise Unmapped("the ranks of the axes do not multiply to the GPUs")
    if batch % (micro * data):
        raise Unmapped("micro-batches do not add up to the batch")
    seconds = real(line, "iteration time (ms)") / 1e3
    if not seconds:
        raise Unmapped("no time was measured")
    model = spec(
        "gpt",
        layers=whole(line, "# layers"),
        hidden=whole(line, "hidden size"),
        heads=whole(line, "attention heads"),
        vocab=VOCABULARY,
        seq=whole(line, "sequence length"),
        dropout=0.1,
        attention="math",
    )
    m = batch // (micro * data)
    plan = written(
        f"pp{stages}:1f1b", f"dp{data}", f"tp{tensor}", f"+m{m}" if m > 1 else "", "+recompute:block", "+fp16"
    )
    cluster = f"{gpus}xa100-80" if gpus <= NODE else f"{gpus // NODE}x{NODE}xa100-80,4xib-hdr"
    return row(
        name,
        model,
        plan,
        cluster,
        batch=batch,
        trainer=TRAINER,
        sequence=whole(line, "sequence length"),
        step_seconds=seconds,
        subsets=("one node" if gpus <= NODE else "many nodes", f"hidden {line['hidden size']}", f"tp{tensor}"),
    )
