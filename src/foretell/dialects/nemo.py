"""NeMo 2: Python that changes a recipe of `nemo.collections.llm`.

Field names: NeMo main of 2025-09 (8cfedd7), nemo/collections/llm/recipes/{llama3_70b,precision/mixed_precision}.py and
nemo/lightning/pytorch/strategies/megatron_strategy.py.
"""

from __future__ import annotations

import shlex

from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import Code
from foretell.dialects._megatron import common
from foretell.dialects._python import CALLED, assignments, python
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, Figures, Formula, KeyChoice

_PLACES = {
    "data": ("micro_batch_size", "global_batch_size", "seq_length"),
    "model.config": (
        *("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules", "cp_comm_type"),
    ),
    "trainer.strategy.ddp": (
        *("use_distributed_optimizer", "use_megatron_fsdp", "data_parallel_sharding_strategy", "overlap_grad_reduce"),
        *("overlap_param_gather", "bucket_size"),
    ),
    "optim.config": ("optimizer_cpu_offload",),
}


def _at(word: str) -> str:
    return next((f"{table}.{word}" for table, words in _PLACES.items() if word in words), f"trainer.strategy.{word}")


RECIPES = {
    "llama3.2-1b": "llama32_1b",
    "llama3.2-3b": "llama32_3b",
    "llama3-8b": "llama3_8b",
    "llama3-70b": "llama3_70b",
    "llama3-405b": "llama31_405b",
    "mixtral-8x7b": "mixtral_8x7b",
    "mixtral-8x22b": "mixtral_8x22b",
}
"""Names of the zoo, and the recipes with the same sizes."""

_PRECISIONS = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8": "bf16_with_fp8_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
}


def _precision(recipe: Recipe) -> Document:
    made = _PRECISIONS.get(recipe.precision)
    return {"trainer.plugins": Code(f"mixed_precision.{made}()")} if made else {}


def _read_precision(document: Document) -> Figures:
    said = str(document.get(f"trainer.plugins.{CALLED}", "bf16_mixed")).rpartition(".")[2]
    return {"precision": next((word for word, made in _PRECISIONS.items() if made == said), "bf16")}


def _nodes(recipe: Recipe) -> Document:
    return {"trainer.num_nodes": recipe.nodes, "trainer.devices": recipe.on_node}


def _ranks(document: Document) -> Figures:
    nodes = document.get("trainer.num_nodes") or document.get("num_nodes")
    each = document.get("trainer.devices") or document.get("num_gpus_per_node")
    return {"ranks": nodes * each, "per_node": each} if isinstance(nodes, int) and isinstance(each, int) else {}


DIALECT = Dialect(
    name="nemo",
    summary="NeMo 2: Python that changes a recipe",
    version="NeMo main, 2025-09 (8cfedd7)",
    trainer=lambda recipe: "nemo",
    format=python(
        assignments(
            "recipe",
            [
                "import nemo_run as run",
                "from nemo.collections import llm",
                "from nemo.collections.llm.recipes.precision import mixed_precision",
                "",
                "recipe = {made}({given})",
            ],
            [
                "",
                'if __name__ == "__main__":',
                "    executor = run.LocalExecutor(",
                '        launcher="torchrun", ntasks_per_node=recipe.trainer.devices, nodes=recipe.trainer.num_nodes',
                "    )",
                "    run.run(recipe, executor=executor)",
            ],
        )
    ),
    file="pretrain.py",
    table=(
        KeyChoice(
            "model", {name: {CALLED: f"llm.{made}.pretrain_recipe"} for name, made in RECIPES.items()}, open=True
        ),
        *common(_at, absent=False),
        Formula((f"trainer.plugins.{CALLED}", "trainer.plugins"), _precision, _read_precision),
        Formula(("trainer.num_nodes", "trainer.devices", "num_nodes", "num_gpus_per_node"), _nodes, _ranks),
    ),
    elsewhere={"optimizer": "the recipe's recipe.optim (Adam)"},
    assumed=(_at("tensor_model_parallel_size"), _at("pipeline_model_parallel_size")),
    own="python",
    command=lambda document, file: [shlex.quote(file)],
)
