"""A training loop over Megatron-Core: its GPT of local layers, its data parallelism and its distributed optimizer.

python megatron_core.py LAYERS HIDDEN HEADS SEQUENCE TENSOR_RANKS: after its own example of a simple loop.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig

layers, hidden, heads, length, split = (int(word) for word in sys.argv[1:6])
rows, vocabulary = 2, 32000
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
parallel_state.initialize_model_parallel(split, 1)
tensor_parallel.model_parallel_cuda_manual_seed(1)
config = TransformerConfig(
    num_layers=layers,
    hidden_size=hidden,
    num_attention_heads=heads,
    tensor_model_parallel_size=split,
    pipeline_dtype=torch.bfloat16,
    params_dtype=torch.bfloat16,
    bf16=True,
    gradient_accumulation_fusion=False,
    bias_activation_fusion=False,
)
gpt = GPTModel(config, get_gpt_layer_local_spec(), vocabulary, length, parallel_output=True).cuda().bfloat16()
shared = DistributedDataParallelConfig(use_distributed_optimizer=True, overlap_grad_reduce=True)
model = DistributedDataParallel(config=config, ddp_config=shared, module=gpt)
rule = OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, use_distributed_optimizer=True, clip_grad=1.0)
optimizer = get_megatron_optimizer(rule, [model])
passes: Any = get_forward_backward_func()
positions = torch.arange(length, device="cuda").expand(rows, -1)
mask = torch.ones(1, 1, length, length, dtype=torch.bool, device="cuda").triu(1)


def forward(batches: Any, module: Any) -> Any:
    tokens = next(batches)
    losses = module(tokens, positions, mask, labels=tokens)
    return losses, lambda found: (found.float().mean(), {"loss": found.float().mean().detach()})


def batches() -> Any:
    while True:
        yield torch.randint(vocabulary, (rows, length), device="cuda")


for _ in range(1000):
    model.zero_grad_buffer()
    optimizer.zero_grad()
    passes(
        forward_step_func=forward,
        data_iterator=batches(),
        model=model,
        num_microbatches=2,
        seq_length=length,
        micro_batch_size=rows,
        forward_only=False,
    )
    finalize_model_grads([model])
    optimizer.step()
