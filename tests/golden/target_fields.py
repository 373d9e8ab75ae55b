"""The fields that other trainers' own sources have, as `tests/data/targets.json` keeps them.

    python tests/golden/target_fields.py SOURCES

SOURCES has a folder for each release, unpacked from its wheel, archive or repository (`PLACES`). Nothing of it is
run: classes, arguments of functions and options of parsers are read from the text.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from foretell.dialects import Recipe, dialect, taken_apart
from foretell.dialects._model import shape_of
from foretell.plan.text import parse

KEPT = Path(__file__).parents[1] / "data" / "targets.json"


class Place(NamedTuple):
    """Where fields are: those of a class, the arguments of a function, a parser's options, or constants."""

    prefix: str  # of their keys in a configuration
    file: str
    name: str  # Class, Class.Inner, function, Class.__init__; of a whole file "options", "constants", "functions"


def under(folder: str, *places: tuple[str, str, str]) -> tuple[Place, ...]:
    return tuple(Place(prefix, f"{folder}/{file}", name) for prefix, file, name in places)


MEGATRON = "megatron-lm-d98e8a6/megatron"
CORE = "megatron_core-0.16.1/megatron/core"
BRIDGE = "megatron_bridge-0.3.1/megatron/bridge"
NEMO = "nemo-8cfedd7/nemo"
NANOTRON = "nanotron-2411b02/src/nanotron/config"
SPEED = "deepspeed-0.19.8/deepspeed/runtime"
LIGHTNING = "lightning-2.6.6/lightning/pytorch"
DDP = "distributed/distributed_data_parallel_config.py"
GIVEN = "trainer.strategy.init_args"

PLACES: dict[str, tuple[Place, ...]] = {
    "torchtitan": under(
        "torchtitan-0.3.0/torchtitan",
        ("", "trainer.py", "Trainer.Config"),
        ("model_spec", "models/llama3/__init__.py", "model_registry"),
        ("training", "config/configs.py", "TrainingConfig"),
        ("parallelism", "config/configs.py", "ParallelismConfig"),
        ("compile", "config/configs.py", "CompileConfig"),
    ),
    "torchtitan-toml": under(
        "torchtitan-0.2.2/torchtitan/config",
        ("job", "job_config.py", "Job"),
        ("model", "job_config.py", "Model"),
        ("optimizer", "job_config.py", "Optimizer"),
        ("training", "job_config.py", "Training"),
        ("parallelism", "job_config.py", "Parallelism"),
        ("compile", "job_config.py", "Compile"),
        ("activation_checkpoint", "job_config.py", "ActivationCheckpoint"),
    ),
    "megatron-lm": under(
        MEGATRON,
        ("", "training/arguments.py", "options"),
        ("", "core/transformer/transformer_config.py", "TransformerConfig"),
        ("", "core/model_parallel_config.py", "ModelParallelConfig"),
        ("", "training/config/training_config.py", "TrainingConfig"),
        ("", "training/config/training_config.py", "LoggerConfig"),
        ("", "training/config/training_config.py", "SchedulerConfig"),
        ("", "training/config/common_config.py", "DistributedInitConfig"),
        ("", "training/config/training_config.py", "TokenizerConfig"),
    ),
    "megatron-bridge": (
        *under(
            BRIDGE,
            ("", "training/config.py", "ConfigContainer"),
            ("()", "recipes/llama/llama3.py", "functions"),
            ("()", "recipes/llama/llama2.py", "functions"),
            ("mixed_precision", "training/mixed_precision.py", "functions"),
            ("dataset", "training/config.py", "GPTDatasetConfig.__init__"),
            ("train", "training/config.py", "TrainingConfig"),
            ("dist", "training/config.py", "DistributedInitConfig"),
            ("dataset", "training/config.py", "GPTDatasetConfig"),
            ("ddp", "training/config.py", "DistributedDataParallelConfig"),
            ("optimizer", "training/config.py", "OptimizerConfig"),
            ("model", "models/gpt_provider.py", "GPTModelProvider"),
        ),
        *under(
            CORE,
            ("ddp", DDP, "DistributedDataParallelConfig"),
            ("optimizer", "optimizer/optimizer_config.py", "OptimizerConfig"),
            ("model", "transformer/transformer_config.py", "TransformerConfig"),
            ("model", "model_parallel_config.py", "ModelParallelConfig"),
        ),
    ),
    "nemo": (
        *under(
            NEMO,
            ("trainer.strategy", "lightning/pytorch/strategies/megatron_strategy.py", "MegatronStrategy.__init__"),
            ("data", "collections/llm/gpt/data/mock.py", "MockDataModule.__init__"),
            ("", "collections/llm/recipes/llama3_8b.py", "pretrain_recipe"),
        ),
        *under(LIGHTNING, ("trainer", "trainer/trainer.py", "Trainer.__init__")),
        *under(
            CORE,
            ("trainer.strategy.ddp", DDP, "DistributedDataParallelConfig"),
            ("optim.config", "optimizer/optimizer_config.py", "OptimizerConfig"),
            ("model.config", "transformer/transformer_config.py", "TransformerConfig"),
            ("model.config", "model_parallel_config.py", "ModelParallelConfig"),
        ),
    ),
    "nanotron": under(
        NANOTRON,
        ("", "config.py", "Config"),
        ("general", "config.py", "GeneralArgs"),
        ("parallelism", "parallelism_config.py", "ParallelismArgs"),
        ("model", "config.py", "ModelArgs"),
        ("model.init_method", "models_config.py", "RandomInit"),
        ("model.model_config", "models_config.py", "LlamaConfig"),
        ("tokenizer", "config.py", "TokenizerArgs"),
        ("checkpoints", "config.py", "CheckpointsArgs"),
        ("logging", "config.py", "LoggingArgs"),
        ("tokens", "config.py", "TokensArgs"),
        ("optimizer", "config.py", "OptimizerArgs"),
        ("optimizer.optimizer_factory", "config.py", "AdamWOptimizerArgs"),
        ("optimizer.learning_rate_scheduler", "config.py", "LRSchedulerArgs"),
        ("data_stages", "config.py", "DatasetStageArgs"),
    ),
    "deepspeed": under(
        SPEED,
        ("", "constants.py", "constants"),
        ("zero_optimization", "zero/config.py", "DeepSpeedZeroConfig"),
        ("zero_optimization.offload_optimizer", "zero/offload_config.py", "DeepSpeedZeroOffloadOptimizerConfig"),
        ("zero_optimization.offload_param", "zero/offload_config.py", "DeepSpeedZeroOffloadParamConfig"),
        ("bf16", "precision_config.py", "DeepSpeedBF16Config"),
        ("fp16", "precision_config.py", "DeepSpeedFP16Config"),
        ("torch_autocast", "constants.py", "constants"),
        ("optimizer", "constants.py", "constants"),
        ("pipeline", "config.py", "options"),
        ("activation_checkpointing", "activation_checkpointing/config.py", "constants"),
        ("tensor_parallel", "tensor_parallel/config.py", "TPTrainingConfig"),
    ),
    "lightning": under(
        LIGHTNING,
        ("trainer", "trainer/trainer.py", "Trainer.__init__"),
        (GIVEN, "strategies/fsdp.py", "FSDPStrategy.__init__"),
        (GIVEN, "strategies/ddp.py", "DDPStrategy.__init__"),
        (GIVEN, "strategies/model_parallel.py", "ModelParallelStrategy.__init__"),
    ),
}  # fmt: skip


def found(place: Place, sources: Path) -> Iterator[tuple[str, str]]:
    """Names of fields with their types as they are written; nothing is known of a type that is empty."""
    tree = ast.parse((sources / place.file).read_text())
    if place.name == "constants":
        yield from ((str(one.value.value), "") for one in tree.body if _constant(one))
    elif place.name == "options":
        yield from _options(tree)
    elif place.name == "functions":  # whose names are the values of one key
        yield "", f"Literal{[one.name for one in tree.body if isinstance(one, ast.FunctionDef)]}"
    else:
        yield from _fields(_inside(tree, place.name.split(".")))


def _constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _inside(tree: ast.AST, names: list[str]) -> ast.AST:
    for name in names:
        tree = next(one for one in ast.walk(tree) if getattr(one, "name", None) == name)
    return tree


def _fields(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                yield one.target.id, ast.unparse(one.annotation)
                yield from ((name, "") for name in _other_names(one.value))
    elif isinstance(node, ast.FunctionDef):
        for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if one.arg != "self":
                yield one.arg, ast.unparse(one.annotation) if one.annotation else ""


def _other_names(default: ast.expr | None) -> Iterator[str]:
    """Options that a field of Megatron's is called by on the command line."""
    for node in ast.walk(default) if default is not None else ():
        if isinstance(node, ast.Constant) and str(node.value).startswith("--"):
            yield str(node.value).removeprefix("--")


def _options(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What a parser's `add_argument` says; of DeepSpeed's dicts of defaults their keys."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            said = {word.arg: word.value for word in node.keywords}
            kind = _kind(said)
            for one in node.args:
                if isinstance(one, ast.Constant) and str(one.value).startswith("--"):
                    yield str(one.value).removeprefix("--"), kind
        elif isinstance(node, ast.Dict):
            yield from ((str(key.value), "") for key in node.keys if isinstance(key, ast.Constant))


def _kind(said: dict[str | None, ast.expr]) -> str:
    if "choices" in said:
        return f"Literal{ast.unparse(said['choices'])}"
    action = said.get("action")
    if isinstance(action, ast.Constant) and str(action.value).startswith("store_"):
        return "bool"
    return ast.unparse(said["type"]) if "type" in said and "nargs" not in said else ""


def collected(sources: Path) -> dict[str, dict[str, list[str]]]:
    """By dialect and key: all types that the sources give the key."""
    told: dict[str, dict[str, list[str]]] = {}
    for target, places in PLACES.items():
        own = told.setdefault(target, {})
        for place in places:
            for name, kind in found(place, sources):
                key = name.replace("_", "-") if target == "megatron-lm" else name
                full = ".".join(filter(None, (place.prefix, key)))
                kinds = own.setdefault(full, [])
                if kind not in kinds:
                    kinds.append(kind)
    return told


def ours(told: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
    """Those that our dialects write or read: the others are nobody's business here."""
    return {
        name: {key: kinds for key, kinds in sorted(own.items()) if key in said}
        for name, own in told.items()
        for said in [{*dialect(name).keys, *dialect(name).fixed(recipe())}]
    }


def recipe() -> Recipe:
    return taken_apart(parse("dp2"), batch=2, model="llama3-8b", shape=shape_of("llama3-8b"), sequence=2048)


if __name__ == "__main__":
    dialects = ours(collected(Path(sys.argv[1])))
    KEPT.write_text(re.sub(r"\s*\n {3,}|\n {2}(?=\])", " ", json.dumps(dialects, indent=1)) + "\n")  # a line a key
