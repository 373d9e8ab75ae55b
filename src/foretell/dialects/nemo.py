"""NeMo 2: Python that changes a recipe of `nemo.collections.llm`.

Field names: NeMo main of 2025-09 (8cfedd7), nemo/collections/llm/recipes/{llama3_70b,precision/mixed_precision}.py and
nemo/lightning/pytorch/strategies/megatron_strategy.py.
"""

from __future__ import annotations

import shlex

from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import Code
from foretell.dialects._megatron import common
from foretell.dialects._megatron_python import free, precision
from foretell.dialects._python import CALLED, assignments, python
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, Figures, Formula, KeyChoice

_PLACES = {
    "data": ("micro_batch_size", "global_batch_size", "seq_length"),
    "model.config": (
        *("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules", "cp_comm_type"),
        "overlap_moe_expert_parallel_comm",
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


def _sharded(document: Document) -> Figures:
    """The optimizer's word on shares of its states goes: megatron_strategy.py, "Fixing mis-match"."""
    made = str(document.get(f"optim.{CALLED}", ""))
    said = document.get("optim.config.use_distributed_optimizer", "distributed" in made or None)
    fsdp = document.get(_at("use_megatron_fsdp"))
    return {} if said is None or fsdp else {"storage": "zero1" if said else "replicated"}


CLASSES = {
    **{f"Llama2Config{size}": f"llama2-{size.lower()}" for size in ("7B", "13B", "70B")},
    **{f"Llama{year}Config{size}": f"llama3-{size.lower()}" for year in (3, 31) for size in ("8B", "70B", "405B")},
    **{f"Llama32Config{size}": f"llama3.2-{size.lower()}" for size in ("1B", "3B")},
    **{f"Qwen2Config{size}": f"qwen2-{name}" for size, name in
       {"500M": "0.5b", "1P5B": "1.5b", "7B": "7b", "72B": "72b"}.items()},
    **{f"Qwen25Config{size}": f"qwen2.5-{name}" for size, name in
       {"500M": "0.5b", "1P5B": "1.5b", "3B": "3b", "7B": "7b", "14B": "14b", "32B": "32b", "72B": "72b"}.items()},
    **{f"Qwen3Config{size}": f"qwen3-{name}" for size, name in
       {"600M": "0.6b", "1P7B": "1.7b", "4B": "4b", "8B": "8b", "14B": "14b", "32B": "32b",
        "30B_A3B": "30b-a3b", "235B_A22B": "235b-a22b"}.items()},
    "MixtralConfig8x7B": "mixtral-8x7b",
    "MixtralConfig8x22B": "mixtral-8x22b",
    "MistralConfig7B": "mistral-7b",
    "Nemotron4Config15B": "nemotron4-15b",
    "Nemotron4Config340B": "nemotron4-340b",
    "GPTConfig175B": "gpt3-175b",
    "DeepSeekV2LiteConfig": "deepseek-v2-lite",
    "DeepSeekV2Config": "deepseek-v2",
    "DeepSeekV3Config": "deepseek-v3",
}  # fmt: skip
"""Classes of nemo/collections/llm/gpt/model that have the sizes of a model of the zoo, by their last name."""

_MODEL = KeyChoice(
    "model", {name: {CALLED: f"llm.{made}.pretrain_recipe"} for name, made in RECIPES.items()}, open=True
)

_MADE = f"model.config.{CALLED}"


def _model(document: Document) -> Figures:
    """By the recipe, or by the class of the model's configuration."""
    found = CLASSES.get(str(document.get(_MADE, "")).rpartition(".")[2])
    return {"model": found} if found else _MODEL.read(document)


_FREE = (
    *("trainer.accelerator", "trainer.callbacks*", "trainer.limit_*", "trainer.log_*", "trainer.max_steps"),
    *("trainer.val_check_interval", "trainer.use_distributed_sampler", "trainer.enable_*", "trainer.logger"),
    *("trainer.num_sanity_val_steps", "trainer.gradient_clip_val", "trainer.accumulate_grad_batches=1"),
    *("trainer.plugins.*_dtype", "trainer.plugins.*precision", "trainer.plugins.*autocast_enabled"),
    *("trainer.plugins.*grad_reduce_in_fp32=True", "trainer.plugins.*fp8*", "trainer.plugins.*first_last*"),
    *("trainer.plugins.*num_layers_at*", "trainer.strategy.ddp.grad_reduce_in_fp32=True", "trainer.().*"),
    *("optim.().*", "optim.lr_scheduler*", "optim.config.*lr*", "optim.config.adam*", "optim.config.weight_decay"),
    *("optim.config.bf16", "optim.config.fp16", "optim.config.clip_grad", "optim.config.optimizer=adam"),
    *("optim.config.use_distributed_optimizer", "optim.config.*_dtype=torch.float32", "log*", "resume*", "name", "dir"),
    *("data.tokenizer*", "data.num_*", "data.().*", "model.tokenizer*", "model.().*", "data.seq_length_dec", "fn"),
    *free("trainer.strategy", "trainer.strategy.ddp", "model.config"),
)

_UNLIKE = {
    f"model.{CALLED}=*MambaModel": "layers of several kinds (Mamba, attention), which no model here has",
    f"model.{CALLED}=*HyenaModel": "layers of long convolutions, which no model here has",
    f"model.{CALLED}=*T5Model": "an encoder and a decoder, whose sizes these keys do not tell",
}

_REFUSED = {"trainer.strategy=ddp": "a trainer of PyTorch, not of Megatron | foretell predict MODEL --plan dp8"}


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
        Formula((*_MODEL.keys, _MADE), _MODEL.write, _model),
        *common(_at, absent=False),
        Formula(("optim.config.use_distributed_optimizer",), lambda recipe: {}, _sharded),
        Formula(
            (f"trainer.plugins.{CALLED}", "trainer.plugins", f"trainer.plugins.0.{CALLED}"),
            _precision,
            lambda document: precision(document, "trainer.plugins"),
        ),
        Formula(("trainer.num_nodes", "trainer.devices", "num_nodes", "num_gpus_per_node"), _nodes, _ranks),
    ),
    elsewhere={"optimizer": "the recipe's recipe.optim (Adam)"},
    assumed=(_at("tensor_model_parallel_size"), _at("pipeline_model_parallel_size")),
    free=_FREE,
    refused=_REFUSED,
    unlike=_UNLIKE,
    own="python",
    command=lambda document, file: [shlex.quote(file)],
)
