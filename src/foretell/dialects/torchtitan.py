"""torchtitan from 0.3 on: a Python function that returns `Trainer.Config`.

Batches in samples (0.3.0) and in tokens (main of 2026-08, b5bcd76) are read; those of 0.3.0 are written.
Field names: torchtitan 0.3.0, torchtitan/config/configs.py, torchtitan/trainer.py, models/llama3/config_registry.py,
distributed/activation_checkpoint.py. Ranks lie as (pp, dp_replicate, dp_shard, cp, tp): distributed/parallel_dims.py.
"""

from __future__ import annotations

import re
from typing import Any

from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import Code
from foretell.dialects._python import CALLED, GIVEN, IMPORTS, calls, python
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import NOTES, Document, Figures, Formula, KeyChoice
from foretell.dialects._titan import COMMON, FLAVORS, REGISTRIES, stages
from foretell.model.zoo import canonical
from foretell.model.zoo import names as zoo_names

_TYPE, _REDUCED, _CONVERTERS = "training.dtype", "training.mixed_precision_param", "model_spec.converters"

_GRAPHS = "training.disable_cuda_graphs"

FRAME = """
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw, LRSchedulersContainer
from torchtitan.components.quantization import Float8LinearConverter, MXFP8LinearConverter, NVFP4LinearConverter
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer


def planned() -> Trainer.Config:
    return Trainer.Config(
{calls}
    )
"""


def _fixed(recipe: Recipe) -> Document:
    return {
        "loss": Code("CrossEntropyLoss.Config()"),
        "optimizer": Code("default_adamw(lr=3e-4)"),
        "lr_scheduler": Code("LRSchedulersContainer.Config(warmup_steps=10)"),
        "dataloader": Code('HuggingFaceTextDataLoader.Config(dataset="c4_test")'),
        "training.steps": 100,
    }


def _converter(name: str) -> list[Code]:
    return [Code(f"{name}.Config(model_compile_enabled=True)")]


_LOW = {"fp8": "Float8LinearConverter", "mxfp8": "MXFP8LinearConverter", "nvfp4": "NVFP4LinearConverter"}

_MODEL = KeyChoice(
    "model",
    {name: {f"model_spec.{CALLED}": "model_registry", "model_spec.0": size} for name, size in FLAVORS.items()},
)

_ASKED = f"model_spec.{GIVEN}converters"
"""Where the converters stand if the text of `model_registry` is beside the file."""


def _model(document: Document) -> Figures:
    """By the folder of `torchtitan/models` that the registry is imported from; llama3 where no import is there."""
    size = document.get("model_spec.flavor") or document.get("model_spec.0")
    lines = [str(line) for line in document.get(IMPORTS, ()) if "model_registry" in str(line)]
    folders = [word for line in lines for word in re.findall(r"from torchtitan\.models\.(\w+)", line)]
    family = document.get("model_spec.name") or next(iter(folders), "" if lines else "llama3")
    found = next((name for name, other in REGISTRIES.get(str(family), {}).items() if other == size), None)
    if found is None and not family:
        found = _by_weights(document.get("hf_assets_path"))
    return {"model": found} if found else {}


def _by_weights(path: Any) -> str | None:
    """The model whose tokenizer a file names, where it imports its registry from beside it."""
    name = canonical(str(path).rpartition("/")[2]) if path else ""
    return name if name in zoo_names() else None


_PRECISION = KeyChoice(
    "precision",
    {
        "bf16": {_REDUCED: "bfloat16", _CONVERTERS: None, _TYPE: None},
        "fp32": {_REDUCED: "float32", _CONVERTERS: None, _TYPE: None},
        "bf16:pure": {_TYPE: "bfloat16", _CONVERTERS: None},
        **{word: {_REDUCED: "bfloat16", _CONVERTERS: _converter(name)} for word, name in _LOW.items()},
    },
    default="bf16",
    also=(
        *((word, {_CONVERTERS: [f"{name}.Config"]}) for word, name in _LOW.items()),
        ("bf16", {_TYPE: "float32", _CONVERTERS: None}),
    ),
)


def _precision(document: Document) -> Figures:
    """What converters make of the layers; those of experts go with those of layers."""
    place = _ASKED if document.get(_ASKED) else _CONVERTERS
    said = [str(one) for one in document.get(place) or ()]
    layers = [one for one in said if one.replace("GroupedExperts", "Linear") not in said or "Linear" in one]
    found = _PRECISION.read(document | {_CONVERTERS: layers or None})
    some = next((key for key in document if key.startswith(f"{place}.") and key.endswith((".fqns",))), None)
    note = f"{some} names the layers that are converted: taken as all of them"
    return found | ({NOTES: (note,)} if some else {})


_EXECUTION = KeyChoice(  # a whole step is captured unless that is switched off, which a pipeline needs
    "execution",
    {
        "compiled": {"compile.enable": True, _GRAPHS: True},
        "trainer": {_GRAPHS: True},
        "captured": {_GRAPHS: False},
    },
    default="captured",
)


def _execution(document: Document) -> Figures:
    """Compiled is what has the model among its components; a compiled loss alone is left to the trainer."""
    components = document.get("compile.components")
    model = not isinstance(components, list) or "model" in components
    return _EXECUTION.read(document if model else document | {"compile.enable": None})


_FREE = """
    training.steps training.max_norm training.gc_* training.mixed_precision_reduce* parallelism.spmd_backend
    parallelism.context_parallel_load_balancer parallelism.context_parallel_ptrr_mask_key compile.backend
    model_spec.name model_spec.flavor model_spec.model* model_spec.*_fn model_spec.*_adapter model_spec.().0
    model_spec.().flavor model_spec.().attn_backend model_spec.().converters* model_spec.attn_backend
    model_spec.converters.* model_spec.().moe_comm_backend=standard model_spec.moe_comm_backend=standard
    loss* optimizer* lr_scheduler* dataloader* checkpoint* validator* metrics* profiler* debug* hf_assets_path
    tokenizer* dump_folder description comm.* seed print_config
"""

_SEEN = "a vision-language model: not a text decoder, and not priced as one | a configuration of a text decoder"

_REFUSED = {
    "()=FluxTrainer.Config": "a diffusion model of images: no plan here describes it | a configuration of Trainer",
    "model_spec.name=qwen3_5": _SEEN,
    "model_spec.flavor=Kimi*": _SEEN,
    "model_spec.flavor=*_mm": _SEEN,
    "dataloader.*=MultiModal*": _SEEN,
    f"{_CONVERTERS}.*=LoRAConverter.Config": "adapters, which this reader cannot express | --plan with +lora16",
    f"{_ASKED}.*=LoRAConverter.Config": "adapters, which this reader cannot express | --plan with +lora16",
    "optimizer.*=DistMuon": "Muon, which this reader cannot express | --optimizer muon beside --plan",
}

DIALECT = Dialect(
    name="torchtitan",
    summary="torchtitan's Python configuration, from release 0.3 on",
    version="torchtitan 0.3.0",
    trainer=lambda recipe: "torchtitan",
    format=python(
        calls(
            FRAME,
            {
                "model_spec": "model_registry",
                "training": "TrainingConfig",
                "parallelism": "ParallelismConfig",
                "compile": "CompileConfig",
                "activation_checkpoint": "FullAC.Config",
            },
        )
    ),
    file="planned.py",
    table=(
        Formula(
            (f"model_spec.{CALLED}", "model_spec.0", "model_spec.name", "model_spec.flavor", "hf_assets_path"),
            _MODEL.write,
            _model,
        ),
        *COMMON,
        Formula((*_PRECISION.keys, _ASKED), _PRECISION.write, _precision),
        KeyChoice(
            "recompute",
            {
                "none": {"activation_checkpoint": Code("None")},
                "block": {f"activation_checkpoint.{CALLED}": "FullAC.Config"},
                "operators": {f"activation_checkpoint.{CALLED}": "SelectiveAC.Config"},
            },
            also=(("none", {"activation_checkpoint": "None"}),),
        ),
        KeyChoice(
            "sequence_parallel",
            {
                True: {"parallelism.enable_sequence_parallel": True},
                False: {"parallelism.enable_sequence_parallel": False},
            },
            default=True,
            when="tensor",
        ),
        Formula((*_EXECUTION.keys, "compile.components"), _EXECUTION.write, _execution),
        KeyChoice("exchange", {"ring": {}}, default="ring"),
        KeyChoice("expert_tensor", {1: {}}, default=1),
        stages("lm_head"),
    ),
    elsewhere={"optimizer": "optimizer=default_adamw(...) of the configuration"},
    free=tuple(_FREE.split()),
    refused=_REFUSED,
    fixed=_fixed,
    command=lambda document, file: ["-m torchtitan.train", "--module llama3 --config planned"],
)
