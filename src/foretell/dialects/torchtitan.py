"""torchtitan from 0.3 on: a Python function that returns `Trainer.Config`.

Field names: torchtitan 0.3.0, torchtitan/config/configs.py, torchtitan/trainer.py, models/llama3/config_registry.py,
distributed/activation_checkpoint.py. Ranks lie as (pp, dp_replicate, dp_shard, cp, tp): distributed/parallel_dims.py.
"""

from __future__ import annotations

from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import Code
from foretell.dialects._python import CALLED, calls, python
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, KeyChoice
from foretell.dialects._titan import COMMON, FLAVORS, SELECTIVE, stages

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

_MODEL = {
    name: {f"model_spec.{CALLED}": "model_registry", "model_spec.0": size} for name, size in FLAVORS.items()
}  # fmt: skip

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
        KeyChoice(
            "model", _MODEL, also=tuple((name, {"model_spec.0": size}) for name, size in FLAVORS.items()), open=True
        ),
        *COMMON,
        KeyChoice(
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
        ),
        KeyChoice(
            "recompute",
            {
                "none": {"activation_checkpoint": Code("None")},
                "block": {f"activation_checkpoint.{CALLED}": "FullAC.Config"},
            },
            also=(("none", {"activation_checkpoint": "None"}),),
            near=(("none", {f"activation_checkpoint.{CALLED}": "SelectiveAC.Config"}, SELECTIVE),),
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
        KeyChoice(  # a whole step is captured unless that is switched off, which a pipeline needs
            "execution",
            {
                "compiled": {"compile.enable": True, _GRAPHS: True},
                "trainer": {_GRAPHS: True},
                "captured": {_GRAPHS: False},
            },
            default="captured",
        ),
        KeyChoice("exchange", {"ring": {}}, default="ring"),
        KeyChoice("expert_tensor", {1: {}}, default=1),
        stages("lm_head"),
    ),
    elsewhere={"optimizer": "optimizer=default_adamw(...) of the configuration"},
    fixed=_fixed,
    command=lambda document, file: ["-m torchtitan.train", "--module llama3 --config planned"],
)
