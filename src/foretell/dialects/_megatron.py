"""What Megatron-LM, Megatron-Bridge and NeMo have in common: Megatron-Core's words, each under keys of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, Final, cast

from foretell.dialects._formats import Code
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import NOTES, Correspondence, Document, Figures, Formula, KeyChoice, PipelineEnds, Same
from foretell.errors import BadInput
from foretell.plan.policies.recompute import Recompute
from foretell.plan.recomputation import RECOMPUTATIONS, recomputations

GRADIENT: Final = 4
"""Bytes of a gradient as it travels (fp32): buckets are counted in elements."""

DISTRIBUTED = ("pp", "dp", "cp", "tp")
REPLICAS_OUTSIDE = ("dp", "pp", "cp", "tp")
"""With use_tp_pp_dp_mapping the stages of a pipeline are nearer to each other than its copies."""

Place = Callable[[str], str]
"""Where a dialect has one of Megatron-Core's words."""


def common(at: Place, absent: Any = None) -> tuple[Correspondence, ...]:
    """The part of the table that all three share. `absent` is how a switch that is off is written, if it is.

    It is where a file changes a recipe: what the recipe says otherwise must not stay.
    """
    return (
        Same(at("tensor_model_parallel_size"), "tensor", 1),
        KeyChoice("sequence_parallel", _switch(at("sequence_parallel"), absent), default=False),
        Same(at("context_parallel_size"), "context", 1, told=absent is not None),
        KeyChoice(
            "exchange",
            {"ring": {at("cp_comm_type"): "p2p"}, "alltoall": {at("cp_comm_type"): "a2a"}},
            default="ring",
            when="context",
        ),
        Same(at("expert_model_parallel_size"), "experts", 1, told=absent is not None),
        Formula(
            (at("expert_tensor_parallel_size"),),
            lambda recipe: {at("expert_tensor_parallel_size"): recipe.expert_tensor} if recipe.expert_tensor else {},
            lambda document: {"expert_tensor": int(document.get(at("expert_tensor_parallel_size")) or 0)},
        ),
        _dispatch(at),
        _a2a_overlap(at, absent),
        _stages(at, absent),
        _storage(at, absent),
        KeyChoice(
            "order",
            {REPLICAS_OUTSIDE: {at("use_tp_pp_dp_mapping"): True}},
            default=DISTRIBUTED,
            also=((DISTRIBUTED, {at("use_tp_pp_dp_mapping"): False}),),
        ),
        _recompute(at, absent),
        Formula(
            (at("distribute_saved_activations"),),
            lambda recipe: {at("distribute_saved_activations"): True} if recipe.partitioned else {},
            lambda document: {"partitioned": bool(document.get(at("distribute_saved_activations")))},
        ),
        KeyChoice(
            "offload", {("optimizer",): {at("optimizer_cpu_offload"): True}}, default=(),
            also=(((), {at("optimizer_cpu_offload"): False}),),
        ),
        Formula(
            (at("overlap_grad_reduce"), at("overlap_param_gather")),
            lambda recipe: _overlapped(recipe, at, absent),
            lambda document: {"overlap": "trainer" if document.get(at("overlap_grad_reduce")) else "never"},
        ),
        Formula(
            (at("bucket_size"),),
            lambda recipe: {at("bucket_size"): recipe.bucket // GRADIENT} if recipe.bucket else {},
            lambda document: {"bucket": GRADIENT * int(document.get(at("bucket_size")) or 0)},
        ),
        Same(at("micro_batch_size"), "micro_batch"),
        Same(at("global_batch_size"), "batch"),
        Same(at("seq_length"), "sequence"),
    )  # fmt: skip


def _switch(key: str, absent: Any) -> Mapping[Any, Mapping[str, Any]]:
    return {True: {key: True}, False: {key: absent}}


def _overlapped(recipe: Recipe, at: Place, absent: Any) -> Document:
    """Gradients, and with shares of the states the new weights, travel beside the computation."""
    on = recipe.overlap != "never"
    keys = [at("overlap_grad_reduce"), *([at("overlap_param_gather")] if recipe.storage != "replicated" else [])]
    return {key: True if on else absent for key in keys if on or absent is not None}


# --- experts ------------------------------------------------------------------------------------

FLEX: Final = "flex"
"""Megatron's dispatcher whose messages another library sends."""

LIBRARIES: Final = ("deepep", "hybridep")
"""Those libraries, as the plan and Megatron call them."""


def _dispatch(at: Place) -> Formula:
    """How rows reach experts. Its own all-to-all is what a plan means that says nothing."""
    way, library, older = at("moe_token_dispatcher_type"), at("moe_flex_dispatcher_backend"), at("moe_enable_deepep")

    def write(recipe: Recipe) -> Document:
        if recipe.dispatch in LIBRARIES:
            return {way: FLEX, library: recipe.dispatch}
        return {way: recipe.dispatch} if recipe.dispatch else {}

    def read(document: Document) -> Figures:
        said = document.get(way)
        named = "deepep" if document.get(older) else document.get(library)
        if said == FLEX and named in LIBRARIES:
            return {"dispatch": named}
        return {"dispatch": said} if said == "allgather" else {}

    return Formula((way, library, older), write, read)


def _a2a_overlap(at: Place, absent: Any) -> Formula:
    """Whether rows travel beside a pass of another micro-batch; of models without experts nothing is said."""
    key = at("overlap_moe_expert_parallel_comm")

    def write(recipe: Recipe) -> Document:
        if recipe.a2a_overlap:
            return {key: True}
        return {key: absent} if absent is not None and recipe.experts > 1 else {}

    return Formula((key,), write, lambda document: {"a2a_overlap": bool(document.get(key))})


# --- stages -------------------------------------------------------------------------------------


def _stages(at: Place, absent: Any) -> Formula:
    degree, chunks, each, layout = (
        at("pipeline_model_parallel_size"),
        at("virtual_pipeline_model_parallel_size"),
        at("num_layers_per_virtual_pipeline_stage"),
        at("pipeline_model_parallel_layout"),
    )
    ends = tuple(
        at(f"{word}_pipeline_{what}") for word, what in (
            ("num_layers_in_first", "stage"), ("num_layers_in_last", "stage"),
            ("account_for_embedding_in", "split"), ("account_for_loss_in", "split"),
        )
    )  # fmt: skip

    def write(recipe: Recipe) -> Document:
        keys: Document = {degree: recipe.pipeline}
        if recipe.split:
            keys[layout] = _layout(recipe.split)
        elif recipe.schedule == "interleaved":
            keys[chunks] = recipe.chunks
        if absent is None:
            return keys
        # the recipe of Llama-3-405B counts embedding and loss, which a layout does not go with
        return {**keys, chunks: recipe.chunks or Code("None"), **dict.fromkeys(ends[2:], absent)}

    def read(document: Document) -> Figures:
        ranks = int(document.get(degree) or 1)
        split = _split(document.get(layout))
        count = int(document.get(chunks) or 1)
        if document.get(each):
            layers = document.get(at("num_layers"))
            if not layers:
                raise BadInput(f"{each} without {at('num_layers')}", fix=f"{chunks}: stages of a rank")
            count = int(layers) // (ranks * int(document[each]))
        if split:
            count = len(split) // ranks
        schedule = "interleaved" if count > 1 else "1f1b"
        figures: Figures = {
            "pipeline": ranks,
            "schedule": schedule,
            "chunks": count if count > 1 else 0,
            "split": split,
        }
        first, last, embedding, head = (document.get(key) for key in ends)
        if any((first, last, embedding, head)) and not split:
            figures["ends"] = PipelineEnds(int(first or 0), int(last or 0), bool(embedding), bool(head))
            figures["layers"] = document.get(at("num_layers"))
        mtp = "multi-token-prediction layers of the layout are not priced"
        return figures | ({NOTES: (mtp,)} if _letters(document.get(layout)).count("m") else {})

    return Formula((degree, chunks, each, layout, *ends), write, read)


def _layout(split: tuple[int, ...]) -> str:
    """Layers of each stage as Megatron-Core writes them, equal stages in a row as a run: Et|(tt|)*62,tL."""
    first, *inner, last = (f"t*{layers}" if layers > 3 else "t" * layers for layers in split)
    runs = ((stage, len(list(same))) for stage, same in groupby(inner))
    between = (f"({stage}|)*{times}," if times > 2 else f"{stage}|" * times for stage, times in runs)
    return f"E{first}|{''.join(between)}{last}L"


_LETTERS: Final = {"embedding": "E", "decoder": "t", "loss": "L", "mtp": "m"}
"""Words of layers in a layout that is a list of lists."""


def _letters(layout: Any) -> str:
    """A layout in letters: E for the embedding, t for a layer, m for one of multi-token prediction, L for the loss."""
    if isinstance(layout, list):
        stages = cast("list[list[str]]", layout)
        return "|".join("".join(_LETTERS.get(str(word), "?") for word in stage) for stage in stages)
    if not isinstance(layout, str):
        return ""
    text = layout.replace(",", "")
    for pattern in (r"\(([^()]+)\)\*([0-9]{1,3})", r"(.)\*([0-9]{1,3})"):
        text = re.sub(pattern, lambda match: match[1] * int(match[2]), text)
    return text


def _split(layout: Any) -> tuple[int, ...]:
    """Layers of each stage; nothing where no layout is given."""
    text = _letters(layout)
    if not text:
        return ()
    if set(text) - set("EtmL|"):
        raise BadInput(f"the layout {layout!r} has layers that no plan has a word for", fix="E, t, m, L and |")
    counts = tuple(stage.count("t") for stage in text.split("|"))
    if 0 in counts[1:-1]:
        raise BadInput(
            f"the layout {layout!r} has a stage without layers", fix="a layer in each stage but the first and the last"
        )
    return counts


# --- shares of weights, gradients and states ----------------------------------------------------

STRATEGIES: Final = {"zero1": "optim", "zero2": "optim_grads", "zero3": "optim_grads_params"}


def _storage(at: Place, absent: Any) -> Formula:
    optimizer, fsdp, strategy, groups, stage = (
        at("use_distributed_optimizer"),
        at("use_megatron_fsdp"),
        at("data_parallel_sharding_strategy"),
        at("num_distributed_optimizer_instances"),
        at("zero_stage"),  # of Megatron-DeepSpeed
    )

    def write(recipe: Recipe) -> Document:
        if recipe.storage == "replicated":
            return {} if absent is None else {optimizer: absent}
        keys: Document = {optimizer: True}
        if recipe.storage != "zero1":
            keys |= {fsdp: True, strategy: STRATEGIES[recipe.storage]}
        if recipe.shard:
            keys[groups] = recipe.replicas
        return keys

    def read(document: Document) -> Figures:
        replicas = int(document.get(groups) or 1)
        figures: Figures = {"replicas": replicas}
        if document.get(stage):
            return figures | {"storage": f"zero{document[stage]}"}
        if document.get(fsdp):
            said = document.get(strategy) or "optim_grads_params"
            words = {name: word for word, name in STRATEGIES.items()} | {"no_shard": "replicated"}
            if said not in words:
                raise BadInput(f"{strategy} is {said!r}", fix=", ".join(words))
            return figures | {"storage": words[said]}
        return figures | {"storage": "zero1" if document.get(optimizer) else "replicated"}

    return Formula((optimizer, fsdp, strategy, groups, stage), write, read)


# --- recomputation ------------------------------------------------------------------------------

USUAL: Final = ("core_attn",)
"""What Megatron recomputes where no modules are named."""


def _selected(modules: Any) -> Figures:
    """Selective recomputation: by the rules of these modules."""
    given = cast("list[Any]", modules) if isinstance(modules, list) else [modules] if modules else [*USUAL]
    words = {name: word for word, rule in recomputations().items() for name in rule.modules}
    unknown = [str(one) for one in given if str(one) not in words]
    if unknown:
        raise BadInput(f"recompute_modules {', '.join(unknown)}: no plan can express it", fix=", ".join(words))
    chosen = {words[str(one)] for one in given}
    return {"recompute": ",".join(word for word in RECOMPUTATIONS if word in chosen)}  # as plans spell them


def _modules(words: str) -> list[str]:
    """What Megatron calls the rules of a plan; none where one of them is no module of its own."""
    rules = [recomputations().get(word) for word in words.split(",")]
    return (
        [name for rule in rules if rule for name in rule.modules]
        if all(rule and rule.modules for rule in rules)
        else []
    )


def _recompute(at: Place, absent: Any) -> Formula:
    granularity, method, layers = at("recompute_granularity"), at("recompute_method"), at("recompute_num_layers")
    short, modules = at("recompute_activations"), at("recompute_modules")
    older = tuple(
        map(at, ("activations_checkpoint_method", "checkpoint_activations", "activations_checkpoint_granularity"))
    )

    def write(recipe: Recipe) -> Document:
        named = _modules(recipe.recompute)
        if named:
            return {granularity: "selective", **({} if tuple(named) == USUAL else {modules: named})}
        said = Recompute.of_option(recipe.recompute)
        if said.first:
            return {granularity: "full", method: "block", layers: said.first}
        every = 1 if recipe.recompute == "block" else said.every
        if not every:
            return {} if absent is None else {granularity: Code("None")}
        return {granularity: "full", method: "uniform", layers: every}

    def read(document: Document) -> Figures:
        said = document.get(granularity) or ("selective" if document.get(short) else None)
        if said is None:
            return {"recompute": "block" if any(document.get(key) for key in older) else "none"}
        if said == "selective":
            return _selected(document.get(modules))
        count = int(document.get(layers) or 1)
        if document.get(method) == "block":
            return {"recompute": f"first{count}"}
        return {"recompute": "block" if count == 1 else f"every{count}"}

    return Formula((granularity, method, layers, short, modules, *older), write, read)
