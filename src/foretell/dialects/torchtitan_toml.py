"""torchtitan up to 0.2: a TOML file.

Field names: torchtitan 0.2.2, torchtitan/config/job_config.py. Ranks lie as (pp, dp_replicate, dp_shard, cp, tp):
torchtitan/distributed/parallel_dims.py.
"""

from __future__ import annotations

import shlex

from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import TOML
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, Figures, Formula, KeyChoice, optimizer_words
from foretell.dialects._titan import COMMON, FLAVORS, stages
from foretell.plan.policies.recompute import Recompute


def _fixed(recipe: Recipe) -> Document:
    return {
        "job.dump_folder": "./outputs",
        "optimizer.lr": 3e-4,
        "training.steps": 100,
        "training.dataset": "c4_test",
    }


_FREE = """
    job.* model.hf_assets_path model.tokenizer_path model.print_after_conversion profiling.* metrics.* optimizer.lr
    optimizer.eps optimizer.beta* optimizer.weight_decay optimizer.implementation optimizer.early_step_in_backward=False
    lr_scheduler.* training.steps training.dataset* training.max_norm training.gc_* training.mixed_precision_reduce
    training.seed training.deterministic checkpoint.* validation.* comm.* experimental.custom_* compile.components
    quantize.linear.float8.* quantize.linear.mx.* debug.*
"""

_TYPE, _REDUCED, _CONVERTERS = "training.dtype", "training.mixed_precision_param", "model.converters"

_MODE, _OPTION = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"

_CHECKPOINTS = KeyChoice(
    "recompute",
    {"none": {_MODE: "none"}, "block": {_MODE: "full"}, "operators": {_MODE: "selective", _OPTION: "op"}},
)

USUAL_LAYERS = 2
"""The option of selective checkpointing where a file says none: every second layer."""


def _recompute(recipe: Recipe) -> Document:
    each = Recompute.of_option(recipe.recompute).nth
    return {_MODE: "selective", _OPTION: str(each)} if each else _CHECKPOINTS.write(recipe)


def _recomputed(document: Document) -> Figures:
    """Selective checkpointing by operator, or of each layer whose number the option divides."""
    option = str(document.get(_OPTION, USUAL_LAYERS))
    if document.get(_MODE) == "selective" and option.isdecimal():
        return {"recompute": f"nth{option}" if int(option) > 1 else "block"}
    return _CHECKPOINTS.read(document if document.get(_MODE) == "selective" else document | {_OPTION: None})


DIALECT = Dialect(
    name="torchtitan-toml",
    summary="torchtitan's TOML, up to release 0.2",
    version="torchtitan 0.2.2",
    trainer=lambda recipe: "torchtitan",
    format=TOML,
    file="torchtitan.toml",
    table=(
        KeyChoice(
            "model",
            {
                name: {"model.name": "llama3", "model.flavor": size}
                for name, size in FLAVORS.items()
                if size in ("8B", "70B", "405B")
            },
            open=True,
        ),
        *COMMON,
        stages("output"),
        KeyChoice(
            "precision",
            {
                "fp8": {_REDUCED: "bfloat16", _CONVERTERS: ["quantize.linear.float8"], _TYPE: None},
                "mxfp8": {_REDUCED: "bfloat16", _CONVERTERS: ["quantize.linear.mx"], _TYPE: None},
                "bf16:pure": {_TYPE: "bfloat16"},
                "bf16": {_REDUCED: "bfloat16"},
                "fp32": {_REDUCED: "float32"},
            },
            default="bf16",
            also=(("bf16", {_TYPE: "float32"}),),
        ),
        Formula(_CHECKPOINTS.keys, _recompute, _recomputed),
        KeyChoice("sequence_parallel", {True: {}}, default=True),
        KeyChoice(
            "execution",
            {"compiled": {"compile.enable": True}},
            default="trainer",
            also=(("trainer", {"compile.enable": False}),),
        ),
        KeyChoice(
            "exchange",
            {"ring": {"parallelism.context_parallel_rotate_method": "alltoall"}},
            default="ring",
            also=(("ring", {"parallelism.context_parallel_rotate_method": "allgather"}),),
            when="context",
        ),
        KeyChoice("expert_tensor", {1: {"parallelism.expert_tensor_parallel_degree": 1}}, default=1, when="experts"),
        optimizer_words("torchtitan-toml", "optimizer.name", "adamw"),
    ),
    free=tuple(_FREE.split()),
    fixed=_fixed,
    command=lambda document, file: ["-m torchtitan.train", f"--job.config_file {shlex.quote(file)}"],
)
