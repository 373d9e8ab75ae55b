"""AdamW with moments in 4 bits: half a byte each, and a scale in fp32 for 128 of them."""

from __future__ import annotations

from foretell.model.optimizer import Optimizer
from foretell.model.optimizers._blocks import adamw_in_bits
from foretell.model.optimizers.adamw import OPTIMIZER as ADAMW

OPTIMIZER = Optimizer(
    summary="AdamW whose moments are stored in 4 bits, with a scale for each block of 128",
    references=(
        "Li, Chen, Zhu 2023 (memory efficient optimizers with 4-bit states), arXiv 2309.01507",
        "torchao 36027d82d, torchao/optim: AdamW4bit, block_size 128",
    ),
    rule=adamw_in_bits(4, 128),
    arguments=ADAMW.arguments,
)
