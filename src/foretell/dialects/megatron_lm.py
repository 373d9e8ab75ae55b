"""Megatron-LM: options of `pretrain_gpt.py`, mostly in a shell script.

Option names: Megatron-LM main of 2026-08 (d98e8a6), megatron/training/arguments.py and the dataclasses that it makes
options of (megatron/core/transformer/transformer_config.py, core/model_parallel_config.py). Ranks lie as pp, dp, cp,
tp, the last innermost (`order="tp-cp-ep-dp-pp"` in megatron/core/parallel_state.py).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from foretell.dialects._dialect import Dialect
from foretell.dialects._megatron import common
from foretell.dialects._megatron_free import FREE, REFUSED, UNLIKE
from foretell.dialects._megatron_model import LLAMA, OTHERS, SIZES, described, written
from foretell.dialects._python import CALLED
from foretell.dialects._recipe import Recipe
from foretell.dialects._shell import SHELL, arguments
from foretell.dialects._table import Document, Figures, Formula, KeyChoice, optimizer_words
from foretell.dialects.launchers import started

_OWN = {
    "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "bucket_size": "ddp-bucket-size",
    "num_layers_in_first_pipeline_stage": "decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "decoder-last-pipeline-num-layers",
}


def _at(word: str) -> str:
    return _OWN.get(word, word.replace("_", "-"))


_KEYS = tuple(_at(key) for key in (*SIZES, *LLAMA, *OTHERS))


def _shape(document: Document) -> Figures:
    return described(document, _at, str(document.get(CALLED, "")))


def _fixed(recipe: Recipe) -> Document:
    """Synthetic data and a short run, to be changed to one's own."""
    return {
        "use-mcore-models": True,
        "transformer-impl": "transformer_engine",
        "mock-data": True,
        "tokenizer-type": "NullTokenizer",
        "train-iters": 100,
        "lr": 3e-4,
        "attention-dropout": 0.0,
        "hidden-dropout": 0.0,
        "log-interval": 1,
        "log-throughput": True,
    }


def _variables(recipe: Recipe) -> dict[str, str]:
    """Asserted in arguments.py before Blackwell, where ranks split a layer; its FSDP wants several connections."""
    wanted = (recipe.tensor > 1 or recipe.context > 1) and recipe.storage in ("replicated", "zero1")
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if wanted else {}


_AWARE: Final = "use-precision-aware-optimizer"
_WORDS: Final = optimizer_words("megatron-lm", "optimizer", "adamw")


def _moments(form: str) -> dict[str, Any]:
    return {_AWARE: True, "exp-avg-dtype": form, "exp-avg-sq-dtype": form}


_OPTIMIZERS: Final = dataclasses.replace(
    _WORDS,
    words={
        "adamw16bit": {"optimizer": "adam", **_moments("bf16")},
        **{name: {**keys, _AWARE: None} for name, keys in _WORDS.words.items()},
    },
    also=(
        *(("adamw16bit", _moments(form)) for form in ("bf16", "fp16")),
        ("adamw", {_AWARE: True, "exp-avg-dtype": None, "exp-avg-sq-dtype": None}),
    ),
    near=(
        (
            "adamw8bit",
            _moments("fp8"),
            "moments in fp8 are taken for those of adamw8bit: a byte each, and scales of blocks where these have one",
        ),
    ),
)
"""Adam's moments in other types (megatron/core/optimizer/optimizer_config.py: exp_avg_dtype, exp_avg_sq_dtype)."""

DIALECT = Dialect(
    name="megatron-lm",
    summary="options of Megatron-LM's pretrain_gpt.py, as a script",
    version="Megatron-LM main, 2026-08 (d98e8a6)",
    trainer=lambda recipe: "megatron-core",
    format=SHELL,
    file="pretrain.sh",
    table=(
        *common(_at),
        KeyChoice(
            "precision",
            {
                "mxfp8": {"bf16": True, "fp8-format": "e4m3", "fp8-recipe": "mxfp8"},
                "fp8": {"bf16": True, "fp8-format": "hybrid", "fp8-recipe": "delayed"},
                "nvfp4": {"bf16": True, "fp4-format": "e2m1", "fp4-recipe": "nvfp4"},
                "bf16": {"bf16": True, "fp8-format": None, "fp4-format": None},
                "fp16": {"fp16": True, "fp8-format": None},
                "fp32": {"bf16": None, "fp16": None},
            },
            default="fp32",
            also=(("fp8", {"bf16": True, "fp8-format": "hybrid"}), ("fp8", {"bf16": True, "fp8-format": "e4m3"})),
        ),
        _OPTIMIZERS,
        Formula(_KEYS, lambda recipe: written(recipe, _at), _shape),
        Formula((), lambda recipe: {}, started),
    ),
    open=_KEYS,
    free=FREE,
    refused=REFUSED,
    unlike=UNLIKE,
    fixed=_fixed,
    variables=_variables,
    command=lambda document, file: ["pretrain_gpt.py", *arguments(document)],
)
