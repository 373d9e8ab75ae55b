"""What both configurations of torchtitan have in common: degrees, batches and types under the same keys."""

from __future__ import annotations

import itertools
from typing import Any, Final, cast

from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Correspondence, Document, Figures, Formula, KeyChoice, Same
from foretell.errors import BadInput

_DEGREES = "parallelism"
_FQNS = f"{_DEGREES}.module_fqns_per_model_part"
_PER_STAGE = f"{_DEGREES}.pipeline_parallel_layers_per_stage"
_ORDER = f"{_DEGREES}.pipeline_parallel_schedule"

FLAVORS: Final = {
    "llama3.2-1b": "1B",
    "llama3.2-3b": "3B",
    "llama3-8b": "8B",
    "llama3-70b": "70B",
    "llama3-405b": "405B",
}
"""Names of the zoo, and what `torchtitan/models/llama3/__init__.py` calls the same sizes."""

REGISTRIES: Final = {
    "llama3": FLAVORS,
    "qwen3": {
        **{f"qwen3-{size.lower()}": size for size in ("0.6B", "1.7B", "4B", "8B", "14B", "32B")},
        "qwen3-30b-a3b": "30B-A3B",
        "qwen3-235b-a22b": "235B-A22B",
    },
    "deepseek_v3": {"deepseek-v2-lite": "16B", "deepseek-v2": "236B", "deepseek-v3": "671B"},
}
"""The same for other folders of `torchtitan/models`."""

SCHEDULES: Final = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
"""torch.distributed.pipelining.schedules: those that keep the order of one of ours."""

STAGES_PER_RANK: Final = 2
"""Of looped schedules where no number of layers a stage is given: torchtitan/distributed/pipeline_parallel.py."""


def _degrees(recipe: Recipe) -> Document:
    """Data ranks as replicas of shards. `default` lets gathered weights go unless there is a pipeline."""
    shard = 1 if recipe.storage == "replicated" else recipe.shard or recipe.data
    reshard = {"zero3": "default", "zero2": "never"}.get(recipe.storage)
    keys = {
        f"{_DEGREES}.data_parallel_replicate_degree": recipe.data // shard,
        f"{_DEGREES}.data_parallel_shard_degree": shard,
    }
    return keys | ({f"{_DEGREES}.fsdp_reshard_after_forward": reshard} if reshard else {})


def _data(document: Document) -> Figures:
    replicas = int(document.get(f"{_DEGREES}.data_parallel_replicate_degree", 1))
    shard = int(document.get(f"{_DEGREES}.data_parallel_shard_degree", -1))
    never = document.get(f"{_DEGREES}.fsdp_reshard_after_forward", "default") == "never"
    context = int(document.get(f"{_DEGREES}.context_parallel_degree", 1))  # they share with the data ranks
    storage = "replicated" if shard == context == 1 else "zero2" if never else "zero3"
    if storage != "replicated" and shard == 1 < replicas:
        raise BadInput(
            "shares among the context ranks alone, which no plan has a word for",
            where=f"{_DEGREES}.data_parallel_replicate_degree",
            fix=f"data_parallel_shard_degree = {replicas}",
        )
    if shard < 0:  # all that is left
        if replicas > 1:
            raise BadInput(
                "data_parallel_shard_degree = -1 beside replicas", fix="the number of ranks of a shard group"
            )
        return {"storage": storage, "replicas": replicas}
    return {"storage": storage, "data": replicas * shard, "shard": shard if replicas > 1 and shard > 1 else 0}


def _batches(recipe: Recipe) -> Document:
    """With a pipeline all micro-batches of a replica are one local batch; without one each is."""
    local = recipe.micro_batch * (recipe.microbatches if recipe.pipeline > 1 else 1)
    keys: Document = {"training.local_batch_size": local, "training.global_batch_size": recipe.batch}
    if recipe.pipeline > 1:
        keys[f"{_DEGREES}.pipeline_parallel_microbatch_size"] = recipe.micro_batch
    return keys


def _batch(document: Document) -> Figures:
    if _in_tokens(document):
        return _batch_of_tokens(document)
    local = int(document.get("training.local_batch_size", 8))
    batch = int(document.get("training.global_batch_size", -1))
    piped = int(document.get(f"{_DEGREES}.pipeline_parallel_degree", 1)) > 1
    micro = int(document.get(f"{_DEGREES}.pipeline_parallel_microbatch_size", 1)) if piped else local
    figures: Figures = {"micro_batch": micro}
    return figures | ({"batch": batch} if batch > 0 else {"microbatches": local // micro})


_TOKENS: Final = (
    "training.num_tokens_per_microbatch_per_dp_rank",
    "training.max_context_length",
    "training.num_tokens_per_train_step",
    f"{_DEGREES}.num_pp_microbatches",
)
"""Batches in tokens, as torchtitan has them after 0.3 (config/configs.py of 2026-08, b5bcd76)."""


_SEQUENCE: Final = Same("training.seq_len", "sequence", 2048)


def _in_tokens(document: Document) -> bool:
    return any(document.get(key) is not None for key in _TOKENS)


def _batch_of_tokens(document: Document) -> Figures:
    """Samples are tokens over the context; without a word of it 8 x 2,048, torchtitan's own."""
    each, context, step, count = (document.get(key) for key in _TOKENS)
    sequence = int(context or 2048)
    tokens, whole = int(each or 16384), int(step or -1)
    if tokens % sequence or (whole > 0 and whole % sequence):
        raise BadInput(f"{tokens} tokens of a micro-batch are no whole samples of {sequence}", fix="a multiple")
    figures: Figures = {"micro_batch": tokens // sequence, "sequence": sequence}
    if whole > 0:
        return figures | {"batch": whole // sequence}
    piped = int(document.get(f"{_DEGREES}.pipeline_parallel_degree", 1)) > 1
    return figures | {"microbatches": int(count or 1) if piped else 1}


def _stages(recipe: Recipe) -> Document:
    """Looped schedules have two stages a rank unless the layers of a stage are given."""
    if recipe.pipeline == 1:
        return {}
    name = SCHEDULES.get(recipe.schedule)
    keys: Document = {_ORDER: name} if name else {}
    if recipe.chunks > STAGES_PER_RANK and recipe.shape is not None and not recipe.split:
        stages = recipe.pipeline * recipe.chunks
        both_ends = recipe.shape.layers + 2  # the embedding and the head count as a layer each
        keys[_PER_STAGE] = -(-both_ends // stages)
    return keys


def _modules(recipe: Recipe, head: str) -> Document:
    """The modules of each stage where a plan says its layers; the embedding is in the first, the head in the last."""
    if not recipe.split:
        return {}
    ends = [0, *itertools.accumulate(recipe.split)]
    stages = [[f"layers.{layer}" for layer in range(*pair)] for pair in itertools.pairwise(ends)]
    stages[0].insert(0, "tok_embeddings")
    stages[-1] += ["norm", head]
    return {_FQNS: stages}


def _split(stages: Any) -> tuple[int, ...]:
    """The layers of each stage."""
    lists = cast("list[Any]", stages) if isinstance(stages, list) else []
    counts = tuple(sum(str(module).startswith("layers.") for module in stage) for stage in lists)
    if 0 in counts[1:-1]:
        raise BadInput(f"{_FQNS} has a stage without layers", fix="a layer in each stage but the first and the last")
    return counts


def _schedule(document: Document) -> Figures:
    said = str(document.get(_ORDER, "1F1B"))
    words = {name.lower(): word for word, name in SCHEDULES.items()}
    if said.lower() not in words:
        raise BadInput(
            f"pipeline_parallel_schedule = {said!r}: no plan has a word for it", fix=", ".join(SCHEDULES.values())
        )
    word = words[said.lower()]
    figures: Figures = {"schedule": word, "chunks": STAGES_PER_RANK if word == "interleaved" else 0}
    layers, split = document.get(_PER_STAGE), _split(document.get(_FQNS))
    if split:
        ranks = int(document.get(f"{_DEGREES}.pipeline_parallel_degree", 1))
        return figures | {"split": split} | ({"chunks": len(split) // ranks} if word == "interleaved" else {})
    if layers and word == "interleaved":
        figures["layers_per_stage"] = int(layers)
    return figures


def stages(head: str) -> Formula:
    """The order of a pipeline and its stages. `head` is the module that makes the logits."""
    return Formula((_ORDER, _PER_STAGE, _FQNS), lambda recipe: _stages(recipe) | _modules(recipe, head), _schedule)


COMMON: Final[tuple[Correspondence, ...]] = (
    Formula(
        (
            f"{_DEGREES}.data_parallel_replicate_degree",
            f"{_DEGREES}.data_parallel_shard_degree",
            f"{_DEGREES}.fsdp_reshard_after_forward",
        ),
        _degrees,
        _data,
    ),
    Same(f"{_DEGREES}.tensor_parallel_degree", "tensor", 1),
    Same(f"{_DEGREES}.context_parallel_degree", "context", 1),
    Same(f"{_DEGREES}.pipeline_parallel_degree", "pipeline", 1),
    Same(f"{_DEGREES}.expert_parallel_degree", "experts", 1, told=False),
    Formula(
        (
            "training.local_batch_size",
            "training.global_batch_size",
            f"{_DEGREES}.pipeline_parallel_microbatch_size",
            *_TOKENS,
        ),
        _batches,
        _batch,
    ),
    Formula(_SEQUENCE.keys, _SEQUENCE.write, lambda document: {} if _in_tokens(document) else _SEQUENCE.read(document)),
    KeyChoice(
        "offload",
        {("optimizer", "weights"): {"training.enable_cpu_offload": True}},
        default=(),
        also=(((), {"training.enable_cpu_offload": False}),),
    ),
)
