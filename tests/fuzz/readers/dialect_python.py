"""Configurations of trainers that are Python: followed, never run."""

from fuzz.mutate import text_form
from fuzz.reader import Reader
from fuzz.readers._dialects import ENTRIES, written

FOLLOWED = """
LENGTH = 4096
SIZES = {"tp": 4, "pp": 2}

def _layout(pp, vp):
    layouts = {(1, 1): None, (2, 1): [["embedding"] + ["decoder"] * 15, ["decoder"] * 17 + ["loss"]]}
    if (pp, vp) not in layouts:
        raise ValueError(f"{pp} and {vp}")
    return [list(x) for x in layouts[(pp, vp)]]

def llama3_8b_pretrain_16gpu_h100_bf16_config():
    cfg = ConfigContainer(
        model=AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").get_model_config(),
        train=TrainingConfig(train_iters=10, global_batch_size=2 ** 5, micro_batch_size=2),
        ddp=DDPConfig(use_distributed_optimizer=True, overlap_grad_reduce=not False),
        dataset=Data(seq_length=LENGTH * 2 // 2),
        mixed_precision="bf16_mixed",
    )
    for size in (1, 2, SIZES["tp"]):
        cfg.model.tensor_model_parallel_size = size
    cfg.model.pipeline_model_parallel_size = SIZES["pp"] if LENGTH > 1 else 1
    cfg.model.pipeline_model_parallel_layout = _layout(2, 1)
    return cfg
"""
READER = Reader(form=text_form, samples=written("Python", FOLLOWED, FOLLOWED), entries=ENTRIES, ending=".py")
