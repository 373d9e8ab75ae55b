"""AdamW with moments in 8 bits: a byte each, and a scale in fp32 for 256 of them."""

from __future__ import annotations

from foretell.model.optimizer import Optimizer
from foretell.model.optimizers._blocks import adamw_in_bits
from foretell.model.optimizers.adamw import OPTIMIZER as ADAMW

OPTIMIZER = Optimizer(
    summary="AdamW whose moments are stored in 8 bits, with a scale for each block of 256",
    references=(
        "Dettmers et al. 2022 (8-bit optimizers via block-wise quantization), arXiv 2110.02861",
        "bitsandbytes AdamW8bit; torchao 36027d82d, torchao/optim: AdamW8bit, block_size 256",
    ),
    rule=adamw_in_bits(8, 256),
    arguments=ADAMW.arguments,
)
