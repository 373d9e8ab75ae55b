"""Plain FSDP2, as its tutorial has it: python fsdp2.py LAYERS HIDDEN SEQUENCE, under torchrun or a rehearsal."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

layers, hidden, length = (int(word) for word in sys.argv[1:4])
device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device == "cuda" else "gloo")
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = LlamaConfig(
    hidden_size=hidden,
    num_hidden_layers=layers,
    intermediate_size=int(3.5 * hidden),
    num_attention_heads=hidden // 128 or 1,
    num_key_value_heads=max(1, hidden // 512),
    vocab_size=32000,
    use_cache=False,
)
with torch.device(device):
    model = LlamaForCausalLM(config)
reads = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.model.layers:
    fully_shard(layer, mp_policy=reads)
fully_shard(model, mp_policy=reads)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(1000):
    tokens = torch.randint(32000, (1, length), device=device)
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0 and step % 10 == 0:
        print(step, float(loss))
dist.destroy_process_group()
