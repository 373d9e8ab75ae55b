"""Accelerate as its documentation begins: python with_accelerate.py LAYERS HIDDEN SEQUENCE."""

from __future__ import annotations

import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

layers, hidden, length = (int(word) for word in sys.argv[1:4])
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=1)
config = LlamaConfig(
    hidden_size=hidden,
    num_hidden_layers=layers,
    intermediate_size=int(3.5 * hidden),
    num_attention_heads=hidden // 128 or 1,
    num_key_value_heads=max(1, hidden // 512),
    vocab_size=32000,
    use_cache=False,
)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
rows = DataLoader([torch.randint(32000, (length,)) for _ in range(4096)], batch_size=2)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
for _ in range(100):
    for tokens in rows:
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
