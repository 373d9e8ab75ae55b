"""What dialects of fine-tuning share: how modules, bases in few bits, optimizers and checkpoints of the hub are called.

Names of modules are those of Llama and of most decoders since (transformers and torchtune). A plan says where adapters
stand in words (`+adapt:attention`); files list modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from foretell.dialects._model import named
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import NOTES, Document, Figures, Formula, KeyChoice
from foretell.errors import BadInput
from foretell.model.adapters import EMBEDDINGS

ATTENTION: Final = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
FEED_FORWARD: Final = ("gate_proj", "up_proj", "down_proj")

ALSO: Final = {"output_proj": "o_proj", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
"""torchtune's names of the same."""

TABLES: Final = ("embed_tokens", "lm_head")
"""The embedding and the head, where they are trained as a whole beside adapters (PEFT's `modules_to_save`)."""


def modules(where: Iterable[str]) -> list[str]:
    """The modules that words stand for; none: all dense layers."""
    words = set(where)
    if "attention" in words:
        words |= set(ATTENTION)
    found = [module for word, module in ATTENTION.items() if word in words]
    return found + (list(FEED_FORWARD) if "feed_forward" in words else [])


def words(said: Iterable[str]) -> tuple[str, ...]:
    """The words that modules stand for; none: they are all dense layers."""
    given = {ALSO.get(str(one), str(one)) for one in said}
    strange = sorted(given - set(ATTENTION.values()) - set(FEED_FORWARD))
    some = given & set(FEED_FORWARD)
    if strange or len(some) not in (0, len(FEED_FORWARD)):
        fix = f"modules of {', '.join(ATTENTION.values())}, with or without all of {', '.join(FEED_FORWARD)}"
        raise BadInput(f"adapters beside {', '.join(strange or sorted(some))} alone: no plan has a word", fix=fix)
    found = [word for word, module in ATTENTION.items() if module in given]
    full = len(found) == len(ATTENTION)
    if full and some:
        return ()
    return (*(("attention",) if full else tuple(found)), *(("feed_forward",) if some else ()))


def listed(value: Any) -> list[str]:
    """A list as files write it: a list, or words with commas."""
    if isinstance(value, str):
        return [one.strip() for one in value.split(",") if one.strip()]
    return [str(one) for one in cast("list[Any]", value or [])]


def targets(key: str, every: str, saved: str = "", as_text: bool = False) -> Formula:
    """Where adapters stand: a list of modules under a key, or a word for all; and tables that are trained beside."""

    def write(recipe: Recipe) -> Document:
        if not recipe.adapter:
            return {}
        found = modules(recipe.adapted)
        document: Document = {key: (",".join(found) if as_text else found) if found else every}
        tables = ",".join(TABLES) if as_text else list(TABLES)
        return document | ({saved: tables} if saved and EMBEDDINGS in recipe.adapted else {})

    def read(document: Document) -> Figures:
        said = document.get(key)
        notes: list[str] = []
        found = () if said in (None, every, [every]) else words(listed(said))
        if said is None and document.get(saved):
            notes.append(f"{key} is not set: taken as all dense layers")
        beside = listed(document.get(saved)) if saved else []
        whole = [one for one in beside if one in TABLES]
        if len(whole) < len(beside):
            others = ", ".join(one for one in beside if one not in TABLES)
            notes.append(f"{saved} has {others}, which no plan has a word for: not counted among what is trained")
        return {"adapted": (*found, *((EMBEDDINGS,) if whole else ())), NOTES: tuple(notes)}

    return Formula((key, saved) if saved else (key,), write, read)


_OPTIMIZERS: Final = {
    "adamw": "adamw_torch_fused",
    "adamw8bit": "adamw_bnb_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
    "lion": "lion_32bit",
}

_PAGED: Final = "%s moves states to the host when memory is short: taken as states that stay on the device"


def optimizers(key: str) -> KeyChoice:
    """Optimizers as transformers calls them (training_args.py, OptimizerNames), and those who build on it."""
    return KeyChoice(
        "optimizer",
        {name: {key: word} for name, word in _OPTIMIZERS.items()},
        default="adamw",
        also=(
            ("adamw", {key: "adamw_torch"}),
            ("adamw", {key: "adamw_hf"}),
            ("adamw8bit", {key: "adamw_8bit"}),
            ("adamw8bit", {key: "adamw_torch_8bit"}),
            ("adamw4bit", {key: "adamw_torch_4bit"}),
            ("lion", {key: "lion"}),
        ),
        near=(
            ("adamw8bit", {key: "paged_adamw_8bit"}, _PAGED % "paged_adamw_8bit"),
            ("adamw", {key: "paged_adamw_32bit"}, _PAGED % "paged_adamw_32bit"),
            ("adamw", {key: "paged_adamw"}, _PAGED % "paged_adamw"),
        ),
    )


def variants(**keys: str) -> Formula:
    """Variants of LoRA by the keys that turn them on; what a file has no key for is refused."""

    def write(recipe: Recipe) -> Document:
        return {keys[word]: True for word in recipe.variant if word in keys}

    def read(document: Document) -> Figures:
        return {"variant": tuple(word for word, key in keys.items() if document.get(key))}

    return Formula(tuple(keys.values()), write, read)


HUB: Final[Mapping[str, str]] = {
    "deepseek-v2": "deepseek-ai/DeepSeek-V2",
    "deepseek-v2-lite": "deepseek-ai/DeepSeek-V2-Lite",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "gemma2-27b": "google/gemma-2-27b",
    "gemma2-2b": "google/gemma-2-2b",
    "gemma2-9b": "google/gemma-2-9b",
    "gemma3-12b": "google/gemma-3-12b-pt",
    "gemma3-1b": "google/gemma-3-1b-pt",
    "gemma3-270m": "google/gemma-3-270m",
    "gemma3-27b": "google/gemma-3-27b-pt",
    "gemma3-4b": "google/gemma-3-4b-pt",
    "glm-4.5": "zai-org/GLM-4.5",
    "glm-4.5-air": "zai-org/GLM-4.5-Air",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "gpt2": "openai-community/gpt2",
    "kimi-k2": "moonshotai/Kimi-K2-Base",
    "llama2-13b": "meta-llama/Llama-2-13b-hf",
    "llama2-70b": "meta-llama/Llama-2-70b-hf",
    "llama2-7b": "meta-llama/Llama-2-7b-hf",
    "llama3-405b": "meta-llama/Llama-3.1-405B",
    "llama3-70b": "meta-llama/Llama-3.1-70B",
    "llama3-8b": "meta-llama/Llama-3.1-8B",
    "llama3.2-1b": "meta-llama/Llama-3.2-1B",
    "llama3.2-3b": "meta-llama/Llama-3.2-3B",
    "llama4-maverick": "meta-llama/Llama-4-Maverick-17B-128E",
    "llama4-scout": "meta-llama/Llama-4-Scout-17B-16E",
    "mamba-codestral-7b": "mistralai/Mamba-Codestral-7B-v0.1",
    "mamba2-1.3b": "state-spaces/mamba2-1.3b",
    "mamba2-130m": "state-spaces/mamba2-130m",
    "mamba2-2.7b": "state-spaces/mamba2-2.7b",
    "mamba2-370m": "state-spaces/mamba2-370m",
    "mamba2-780m": "state-spaces/mamba2-780m",
    "minimax-m2": "MiniMaxAI/MiniMax-M2",
    "mistral-7b": "mistralai/Mistral-7B-v0.1",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "nemotron-h-8b": "nvidia/Nemotron-H-8B-Base-8K",
    "olmo2-13b": "allenai/OLMo-2-1124-13B",
    "olmo2-1b": "allenai/OLMo-2-0425-1B",
    "olmo2-32b": "allenai/OLMo-2-0325-32B",
    "olmo2-7b": "allenai/OLMo-2-1124-7B",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B",
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-1.7b": "Qwen/Qwen3-1.7B",
    "qwen3-14b": "Qwen/Qwen3-14B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-8b": "Qwen/Qwen3-8B",
}
"""Models of the zoo, and an id of the Hugging Face hub under which their weights are."""


def checkpoint(key: str) -> Formula:
    """The model: an id of the hub, or a folder."""

    def write(recipe: Recipe) -> Document:
        return {key: HUB.get(recipe.model, recipe.model)} if recipe.model else {}

    def read(document: Document) -> Figures:
        said = document.get(key)
        return {"model": named(said) or said} if isinstance(said, str) else {}

    return Formula((key,), write, read)
