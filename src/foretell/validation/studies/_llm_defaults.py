"""What published runs of language models leave unsaid: a stated default, or every answer that it may have been.

One table, first match first. `who` is looked for in "source trainer", so that a source whose scripts are public comes
before what its trainer does by default. An entry with several values has no default: the run is predicted with each.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from foretell.plan.recomputation import RECOMPUTATIONS
from foretell.plan.trainer import Trainer, allows
from foretell.validation.studies._llm_stages import SCHEDULES, layers_of, said_schedule
from foretell.validation.study import Line, whole, whole_or


class Answer(NamedTuple):
    """What a blank column is taken to be, and why."""

    column: str
    who: str  # pattern
    values: tuple[str, ...]
    why: str


_RECIPES: Final = "Megatron-Bridge 067f987 (2026), perf_recipes: nothing, or modules that cost little to run again"
_ZERO_BUBBLE: Final = "examples/pretrain_zero_bubble.sh of sail-sg/zero-bubble-pipeline-parallelism"
_FLASH: Final = "training scripts of Dao-AILab/flash-attention"
_FLASH_PILE: Final = "training/configs/experiment/pile of Dao-AILab/flash-attention, on 80 GB"
_TORCHTUNE: Final = "recipes/configs/llama3 of torchtune: enable_activation_checkpointing is on, dtype is bf16"
_QWEN: Final = "finetune/finetune_lora_ds.sh of QwenLM/Qwen: ds_config_zero2.json"
_LITGPT: Final = "litgpt/finetune/lora.py: activation_checkpointing_policy is for several devices alone"
_EITHER: Final = "not known"

ANSWERS: Final[tuple[Answer, ...]] = (
    Answer("act_ckpt", r"^zero-bubble", ("none",), _ZERO_BUBBLE),
    Answer("act_ckpt", r"nemo$", ("none",), _RECIPES),
    Answer("act_ckpt", r"^torchtune", ("full",), _TORCHTUNE),
    Answer("act_ckpt", r"^flash-attention", ("none",), _FLASH_PILE),
    Answer("states_precision", r"^torchtune", ("bf16",), _TORCHTUNE),
    Answer("act_ckpt", r"^litgpt.* pytorch$", ("none",), _LITGPT),
    Answer("act_ckpt", r"^litgpt.* litgpt$", ("full",), _LITGPT),
    Answer("act_ckpt", r"maxtext$", ("full", "none"), "MaxText's base.yml says full; scripts set other policies"),
    Answer("act_ckpt", r"", ("none", "full"), _EITHER),
    Answer("precision", r"^zero-bubble", ("fp16",), _ZERO_BUBBLE),
    Answer("precision", r"^flash-attention", ("fp16",), _FLASH),
    Answer("precision", r"", ("bf16",), "usual for language models; fp16 takes as long"),
    Answer("zero_stage", r"^qwen-readme", ("2",), _QWEN),
    Answer("zero_stage", r"nemo$|internevo$", ("1",), "the distributed optimizer is on in its recipes"),
    Answer(
        "zero_stage", r"fsdp$|litgpt$|torchtitan(-\d+)?$|llm-foundry$|maxtext$", ("3",), "fully sharded, its default"
    ),
    Answer("zero_stage", r"pytorch$|nanotron$|torchtune$", ("0",), "plain data parallelism, its default"),
    Answer("zero_stage", r"megatron", ("0", "1"), _EITHER),
    Answer("zero_stage", r"", ("1", "3"), _EITHER),
    Answer("sequence_parallel", r"nemo$", ("1",), "on in its recipes with tensor parallelism"),
    Answer("sequence_parallel", r"", ("1", "0"), _EITHER),
    Answer("global_batch", r"^flash-attention", ("256",), "0.5 M tokens, the smaller of the two that it prints"),
    Answer("tied_embeddings", r"^megatron-readme", ("0",), "the printed parameters have the table twice"),
    Answer("vocab", r"^zero-bubble", ("32000",), "the printed parameters of its four models allow 27,000 to 35,000"),
    Answer("schedule", r"", ("zb-h1", "zb-v"), "ZB-2p keeps twice as much: its bubble is less than that of the first"),
    Answer("lora_rank", r"^torchtune", ("8",), "torchtune's configurations of Llama 3"),
    Answer("lora_rank", r"", ("8", "64"), _EITHER),
    Answer("micro_batch", r"", ("1", "2", "4"), _EITHER),
)
"""Answers that depend on the trainer or the source alone; the others are functions below."""

VOCABULARIES: Final[tuple[tuple[str, str], ...]] = (
    (r"llama-?4", "202048"),
    (r"llama-?3", "128256"),
    (r"llama|mistral|mixtral|vicuna", "32000"),
    (r"qwen", "151936"),
    (r"deepseek-?v2", "102400"),
    (r"deepseek", "129280"),
    (r"kimi", "163840"),
    (r"gpt-?oss", "201088"),
    (r"nemotron", "256000"),
    (r"bloom", "250880"),
    (r"opt", "50272"),
    (r"bert", "30528"),
    (r"gpt", "51200"),
)
"""Entries of the public tokenizers, as they are padded (GPT-2's 50,257 by Megatron)."""

FLASH_BATCHES: Final = (("125M", "32"), ("355M", "16"), ("760M", "16"), ("1.3B", "8"), ("2.7B", "4"))
"""Samples that a GPU of 80 GB takes at once in those configurations."""

TIED: Final = re.compile(r"gpt(?!-?oss)|bert|bloom|opt-|llama-?3\.2-[13]b|qwen(2|2\.5|3)-(0\.|1\.|3b|4b)")
"""Models whose output layer is the table of their tokens."""

LONGEST: Final = re.compile(r"longest sample (\d{1,9}) tokens")

LATENT: Final = "perf_recipes of Megatron-Bridge 067f987 (2026) for DeepSeek-V3 and Kimi-K2, most of them"

MODULES: Final = (("mla_up_proj", r"mla_up_proj"), ("layernorm", r"layernorm"), ("moe_act", r"swiglu in moe|moe_act"),
                  ("mlp", r"/mlp\b"), ("moe", r"/moe\b|whole moe"))  # fmt: skip
"""Words of plans, and how comments on recomputed modules name them."""


def filled(line: Line, runs: Trainer) -> tuple[list[Line], tuple[str, ...]]:
    """The line with every blank answered, once for each combination of answers; and what was assumed, in words."""
    found = list(_answers(line, runs))
    choices = itertools.product(*(answer.values for answer in found))
    columns = [answer.column for answer in found]
    lines: list[Line] = [{**line, **dict(zip(columns, values, strict=True))} for values in choices]
    return lines, tuple(f"{one.column}: {' or '.join(one.values)} ({one.why})" for one in found)


def _answers(line: Line, runs: Trainer) -> Iterator[Answer]:
    said = f"{line.get('source', '')} {runs.name}"
    for column, asked in QUESTIONS.items():
        if asked(line, runs):
            yield OWN[column](line, runs) if column in OWN else _listed(column, said)


def _listed(column: str, said: str) -> Answer:
    return next(one for one in ANSWERS if one.column == column and re.search(one.who, said))


def _blank(column: str) -> Callable[[Line, Trainer], bool]:
    return lambda line, runs: not line.get(column)


def _open_recompute(line: Line, runs: Trainer) -> bool:
    """A blank, or a selective one that is not Megatron's first: attention alone."""
    word = line.get("act_ckpt", "")
    return not word or (word == "selective" and (not _by_attention(runs) or bool(_modules(line))))


def _by_attention(runs: Trainer) -> bool:
    """Whether selective means the attention core, as in Megatron."""
    return "megatron" in runs.name or runs.name == "nemo"


def _modules(line: Line) -> str:
    """The modules that a comment says to run again, as plans write them."""
    comment = line.get("comment", "")
    if not re.search(r"recompute mla|selective modules", comment):
        return ""
    said = {word for word, pattern in MODULES if re.search(pattern, comment)}
    return ",".join(word for word in RECOMPUTATIONS if word in said)


def _open_batch(line: Line, runs: Trainer) -> bool:
    unsaid = re.search(r"micro-batch size not stated|whose size is not stated", line.get("comment", ""))
    return not line.get("micro_batch") or bool(unsaid)


def _open_storage(line: Line, runs: Trainer) -> bool:
    return not line.get("zero_stage") and whole_or(line, "dp", 1) > 1


def _open_sequence(line: Line, runs: Trainer) -> bool:
    optional = runs.legal.sequence_parallel == "optional"
    return optional and not line.get("sequence_parallel") and whole_or(line, "tp", 1) > 1


def _open_stages(line: Line, runs: Trainer) -> bool:
    may = SCHEDULES.get(said_schedule(line), "interleaved") == "interleaved"
    interleaves = allows(runs.pipeline.schedules, "interleaved")
    return not line.get("vpp") and may and interleaves and whole_or(line, "pp", 1) > 1


def _open_schedule(line: Line, runs: Trainer) -> bool:
    return said_schedule(line).startswith("zb-2p")


def _open_rank(line: Line, runs: Trainer) -> bool:
    return "lora" in line.get("method", "").lower() and not line.get("lora_rank")


def _open_states(line: Line, runs: Trainer) -> bool:
    return not line.get("states_precision") and line.get("source", "").startswith("torchtune")


def _open_length(line: Line, runs: Trainer) -> bool:
    return not line.get("seq_len") and bool(LONGEST.search(line.get("comment", "")))


def _open_batches(line: Line, runs: Trainer) -> bool:
    return not line.get("global_batch") and line.get("source", "").startswith("flash-attention")


def _open_tie(line: Line, runs: Trainer) -> bool:
    return not line.get("tied_embeddings") and bool(line.get("layers"))


def _open_words(line: Line, runs: Trainer) -> bool:
    return not line.get("vocab") and bool(line.get("layers")) and any(_vocabulary(line, runs).values)


QUESTIONS: Final[dict[str, Callable[[Line, Trainer], bool]]] = {
    "vocab": _open_words,
    "tied_embeddings": _open_tie,
    "precision": _blank("precision"),
    "zero_stage": _open_storage,
    "sequence_parallel": _open_sequence,
    "schedule": _open_schedule,
    "vpp": _open_stages,
    "lora_rank": _open_rank,
    "seq_len": _open_length,
    "act_ckpt": _open_recompute,
    "states_precision": _open_states,
    "global_batch": _open_batches,
    "micro_batch": _open_batch,
}
"""Columns that are filled in, and when they are open."""


def _of_source(column: str, line: Line) -> Answer | None:
    source = line.get("source", "")
    return next((one for one in ANSWERS if one.column == column and re.search(one.who, source)), None)


def _vocabulary(line: Line, runs: Trainer) -> Answer:
    own = _of_source("vocab", line)
    name = line.get("model", "").lower()
    found = next((size for pattern, size in VOCABULARIES if re.search(pattern, name)), "")
    return own or Answer("vocab", "", (found,) if found else (), f"the tokenizer of {line.get('model', '')}")


def _tied(line: Line, runs: Trainer) -> Answer:
    tied = "1" if TIED.search(line.get("model", "").lower()) else "0"
    said = f"as in {line.get('model', '') or 'its family'}"
    return _of_source("tied_embeddings", line) or Answer("tied_embeddings", "", (tied,), said)


def _recompute(line: Line, runs: Trainer) -> Answer:
    modules = _modules(line)
    if modules:
        return Answer("act_ckpt", "", (modules,), "the modules that the source names")
    if line.get("act_ckpt"):
        return Answer("act_ckpt", "", ("operators",), "torchtitan's selective checkpointing by operator")
    if runs.name == "nemo" and re.search(r"deepseek-?v3|kimi", line.get("model", "").lower()):
        return Answer("act_ckpt", "", ("mla_up_proj",), LATENT)
    return _listed("act_ckpt", f"{line.get('source', '')} {runs.name}")


def _micro_batch(line: Line, runs: Trainer) -> Answer:
    stages = whole_or(line, "pp", 1)
    if "torchtitan" in runs.name and stages > 1:
        own = whole(line, "global_batch") // (whole(line, "dp") * stages)
        why = "as many micro-batches as stages, torchtitan's default of 2024"
        return Answer("micro_batch", "", (str(max(1, own)),), why)
    if line.get("source", "").startswith("flash-attention"):
        size = next((size for name, size in FLASH_BATCHES if name in line.get("model", "")), "")
        return Answer("micro_batch", "", (size,), _FLASH_PILE) if size else _listed("micro_batch", "")
    return _listed("micro_batch", "")


def _virtual_stages(line: Line, runs: Trainer) -> Answer:
    """Between none and one layer on each."""
    if "torchtitan" in runs.name:
        return Answer("vpp", "", ("2",), "two stages a rank, its default")
    most = layers_of(line) // whole(line, "pp")
    return Answer("vpp", "", ("1", str(most)) if most > 1 else ("1",), "from none to one layer on each")


def _longest(line: Line, runs: Trainer) -> Answer:
    found = LONGEST.search(line.get("comment", ""))
    return Answer("seq_len", "", (found[1] if found else "",), "its longest sample, where memory peaks")


OWN: Final[dict[str, Callable[[Line, Trainer], Answer]]] = {
    "seq_len": _longest,
    "vocab": _vocabulary,
    "tied_embeddings": _tied,
    "act_ckpt": _recompute,
    "micro_batch": _micro_batch,
    "vpp": _virtual_stages,
}
