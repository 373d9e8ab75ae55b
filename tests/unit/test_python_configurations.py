"""Configurations that are Python, as trainers ship them: followed through functions and files, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.dialects import Configuration, Launch, open_configuration, put_together
from foretell.errors import BadInput

REGISTRY = """
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer

from . import model_registry


def base():
    model_spec = model_registry("8B")
    return Trainer.Config(
        loss=ChunkedLoss.Config(vocab=size(model_spec)),
        hf_assets_path="./assets/hf/Llama-3.1-8B",
        model_spec=model_spec,
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=1 * 8192, max_context_length=8192, steps=1000),
        activation_checkpoint=SelectiveAC.Config(),
    )


def low():
    config = base()
    enabled = config.compile.enable and "model" in config.compile.components
    config.compile = CompileConfig(enable=True, components=["COMPONENT"])
    config.training.disable_cuda_graphs = True
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config(model_compile_enabled=enabled)])
    return config


def wide():
    config = base()
    config.parallelism = ParallelismConfig(tensor_parallel_degree=2, expert_parallel_degree=8)
    return config
"""

PACKAGE = """
def model_registry(flavor, attn_backend="flex", converters=None):
    config = sizes[flavor](attn_backend=attn_backend)
    if converters is not None:
        for one in converters:
            config = one.build().convert(config)
    return ModelSpec(name="NAME", flavor=flavor, model=config)
"""


def registry(folder: Path, function: str, name: str = "", component: str = "model") -> Configuration:
    (folder / "config_registry.py").write_text(REGISTRY.replace("COMPONENT", component))
    if name:
        (folder / "__init__.py").write_text(PACKAGE.replace("NAME", name))
    return open_configuration(f"{folder / 'config_registry.py'}:{function}")


@pytest.mark.parametrize("name", ["", "llama3"])
def test_torchtitan_counts_tokens(tmp_path: Path, name: str) -> None:
    recipe = registry(tmp_path, "base", name).recipe(Launch(8))
    assert (recipe.micro_batch, recipe.sequence, recipe.batch, recipe.model) == (1, 8192, 8, "llama3-8b")
    assert str(put_together(recipe)) == "dp8:zero3 +recompute:operators +bf16 +captured"


@pytest.mark.parametrize(("name", "model"), [("", "llama3-8b"), ("llama3", "llama3-8b"), ("qwen3", "qwen3-8b")])
def test_torchtitan_converters_and_compilation(tmp_path: Path, name: str, model: str) -> None:
    recipe = registry(tmp_path, "low", name).recipe(Launch(8))
    assert (str(put_together(recipe)), recipe.model) == ("dp8:zero3 +recompute:operators +fp8 +compiled", model)
    loss = registry(tmp_path, "low", name, component="loss").recipe(Launch(8))
    assert str(put_together(loss)) == "dp8:zero3 +recompute:operators +fp8"


def test_experts_need_their_ranks(tmp_path: Path) -> None:
    found = registry(tmp_path, "wide")
    assert str(put_together(found.recipe(Launch(8)))).startswith("dp4:zero3,ep8,etp1 tp2:sp")
    with pytest.raises(BadInput, match="8 ranks of experts do not divide among 4") as problem:
        found.recipe(Launch(4))
    assert problem.value.fix == "--on with a multiple of 8"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("Trainer.Config(", "FluxTrainer.Config("), "a diffusion model of images"),
        (("activation_checkpoint=", "dataloader=Loader(c=MultiModalCollator.Config()), a="), "a vision-language model"),
        (("[Float8", "[LoRAConverter.Config(rank=8), Float8"), "adapters"),
    ],
)
def test_what_torchtitan_trains_besides_text_is_refused(tmp_path: Path, change: tuple[str, str], what: str) -> None:
    (tmp_path / "c.py").write_text(REGISTRY.replace(*change))
    with pytest.raises(BadInput, match=what):
        open_configuration(f"{tmp_path / 'c.py'}:low").recipe(Launch(8))


COMMON = """
LENGTH = 4096


def common():
    optimizer, scheduler = adam(lr=3e-4)
    return ConfigContainer(
        model=None,
        train=TrainingConfig(train_iters=10, global_batch_size=32, micro_batch_size=2),
        ddp=DDPConfig(use_distributed_optimizer=True, overlap_grad_reduce=True),
        dataset=Data(seq_length=LENGTH),
        optimizer=optimizer,
        mixed_precision="bf16_mixed",
    )


def adam(lr):
    return OptimizerConfig(lr=lr), Scheduler(lr)
"""

RECIPE = """
from recipes.common import common


def _layout(pp, vp):
    layouts = {(1, 1): None, (2, 1): [["embedding"] + ["decoder"] * 15, ["decoder"] * 17 + ["loss"]]}
    if (pp, vp) not in layouts:
        raise ValueError(f"{pp} and {vp}")
    layout = layouts[(pp, vp)]
    if layout is not None:
        layout = list([list(x) for x in layout])
    return layout


def llama3_8b_pretrain_16gpu_h100_bf16_config():
    cfg = common()
    hub = "meta-llama/Meta-Llama-3-8B"
    cfg.model = AutoBridge.from_hf_pretrained(hub).get_model_config()
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.sequence_parallel = True
    cfg.model.pipeline_model_parallel_size = 2
    CHANGE
    return cfg
"""


def bridge(folder: Path, change: str) -> Configuration:
    (folder / "recipes" / "llama").mkdir(parents=True)
    (folder / "recipes" / "common.py").write_text(COMMON)
    file = folder / "recipes" / "llama" / "llama3.py"
    file.write_text(RECIPE.replace("CHANGE", change or "pass"))
    return open_configuration(f"{file}:llama3_8b_pretrain_16gpu_h100_bf16_config")


@pytest.mark.parametrize(
    ("change", "plan"),
    [
        ("", "pp2:1f1b dp2:zero1 tp4:sp +m8 +bf16"),
        ("cfg.model.pipeline_model_parallel_layout = _layout(2, 1)", "pp2:1f1b,split=15/17 dp2:zero1 tp4:sp +m8 +bf16"),
        ("cfg.model.num_layers_in_first_pipeline_stage = 14", "pp2:1f1b,split=14/18 dp2:zero1 tp4:sp +m8 +bf16"),
        ("cfg.mixed_precision = get_mixed_precision_config('bf16_with_mxfp8_mixed')",
         "pp2:1f1b dp2:zero1 tp4:sp +m8 +mxfp8"),
        ("cfg.mixed_precision = MixedPrecisionConfig(bf16=True, fp8='hybrid')", "pp2:1f1b dp2:zero1 tp4:sp +m8 +fp8"),
        ("cfg.model.recompute_granularity = 'full'", "pp2:1f1b dp2:zero1 tp4:sp +m8 +recompute:block +bf16"),
    ],
)  # fmt: skip
def test_a_recipe_of_megatron_bridge(tmp_path: Path, change: str, plan: str) -> None:
    recipe = bridge(tmp_path, change).recipe(Launch())
    assert (str(put_together(recipe)), recipe.model) == (plan, "llama3-8b")
    assert (recipe.batch, recipe.micro_batch, recipe.sequence) == (32, 2, 4096)


def test_the_embedding_and_the_head_count_as_layers(tmp_path: Path) -> None:
    both = "cfg.model.account_for_embedding_in_pipeline_split = cfg.model.account_for_loss_in_pipeline_split = True"
    more = f"{both}\n    cfg.model = AutoBridge.from_hf_pretrained('meta-llama/Llama-3.1-405B').get_model_config()"
    more += f"\n    cfg.model.pipeline_model_parallel_size = 4\n    {both}"
    more += "\n    cfg.model.virtual_pipeline_model_parallel_size = 2"
    found = put_together(bridge(tmp_path, more).recipe(Launch(4, 8)))
    assert str(found).startswith("pp4:interleaved,v2,split=15/16x6/15")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("cfg.model.freeze_vision_model = True", "a vision-language model"),
        ("cfg.model.pipeline_model_parallel_layout = _layout(3, 1)", "only the running program knows"),
        ("cfg.model.pipeline_model_parallel_size = how_many()", "only the running program knows"),
        ("tune(cfg)", r"model is what tune\(\.\.\.\) may have changed"),
        ("cfg.model.tune()", r"what cfg\.model\.tune\(\.\.\.\) may have changed"),
        ("cfg.train = settings", "train is settings, which may say train.micro_batch_size"),
        ("cfg.optimizer.optimizer = 'dist_muon'", "Muon, which this reader cannot express"),
        ("cfg.model.num_layers_in_first_pipeline_stage = 33", "do not divide into"),
    ],
)
def test_recipes_that_are_refused(tmp_path: Path, change: str, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        bridge(tmp_path, change).recipe(Launch())


def test_calls_and_keys_that_nobody_knows_are_told(tmp_path: Path) -> None:
    found = bridge(tmp_path, "cfg.model.new_and_dear = 7\n    size = size_of(cfg)")
    assert "size_of(...) may change the configuration: its text is not beside the file" in found.notes
    assert "not read, and may change the cost: model.new_and_dear" in found.notes


NEMO = """
import nemo_run as run
from recipes import base_8b
from recipes.optim import fused_adam

NAME = "mine"


def model(version=NAME):
    config = None
    if version == "other":
        config = run.Config(Llama3Config70B)
    elif version == NAME:
        config = run.Config(Llama3Config8B)
    assert config is not None
    return run.Config(LlamaModel, config=config)


def pretrain_recipe(num_nodes: int = 2, performance_mode: bool = False, fn=pretrain):
    recipe = run.Partial(
        fn,
        model=model(),
        trainer=base_8b.trainer(num_nodes=num_nodes, tensor_parallelism=2),
        data=run.Config(MockDataModule, seq_length=8192, global_batch_size=512, micro_batch_size=1),
        optim=fused_adam(max_lr=3e-4),
    )
    if performance_mode:
        recipe = faster(recipe)
    return recipe
"""

BASE = """
import nemo_run as run


def trainer(tensor_parallelism=1, num_nodes=1, num_gpus_per_node=8):
    strategy = run.Config(MegatronStrategy, tensor_model_parallel_size=tensor_parallelism, sequence_parallel=True,
                          ddp=run.Config(DDP, overlap_grad_reduce=True))
    return run.Config(Trainer, devices=num_gpus_per_node, num_nodes=num_nodes, strategy=strategy,
                      plugins=[run.Config(MegatronMixedPrecision, precision="bf16-mixed", fp8="hybrid")])
"""

OPTIM = """
import nemo_run as run


def fused_adam(max_lr):
    return run.Config(MegatronOptimizerModule, config=run.Config(OptimizerConfig, use_distributed_optimizer=True))
"""


def test_a_recipe_of_nemo(tmp_path: Path) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    for name, text in {"mine": NEMO, "base_8b": BASE, "optim": OPTIM}.items():
        (folder / f"{name}.py").write_text(text)
    found = open_configuration(f"{folder / 'mine.py'}:pretrain_recipe")
    recipe = found.recipe(Launch())
    assert found.dialect.name == "nemo"
    assert str(put_together(recipe)) == "dp8:zero1 tp2:sp +m64 +fp8"
    assert (recipe.model, recipe.sequence, recipe.batch) == ("llama3-8b", 8192, 512)


def test_a_function_that_calls_itself_ends(tmp_path: Path) -> None:
    text = "def a(n):\n    return b(n)\ndef b(n):\n    return a(n)\ndef cfg():\n    c = make(x=a(1))\n"
    text += "    c.model.tensor_model_parallel_size = 2\n    return c\n"
    (tmp_path / "c.py").write_text(text)
    assert open_configuration(f"{tmp_path / 'c.py'}:cfg").document["model.tensor_model_parallel_size"] == 2
