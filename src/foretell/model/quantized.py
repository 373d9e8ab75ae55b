"""Frozen weights in few bits: what they take at rest, and what widening them for a product costs.

QLoRA (Dettmers et al. 2023, arXiv 2305.14314) keeps the weights that adapters stand beside in 4 bits. No product runs
in 4 bits: each weight is made as wide as the product reads it, for each use. Bytes are per weight, scales included.
"""

from __future__ import annotations

from typing import Final

import msgspec

from foretell.model.operator import OperatorPart
from foretell.units import Quantity

HALF: Final = 2
"""Bytes of a scale in 16 bits."""


class QuantizedFormat(msgspec.Struct, frozen=True, kw_only=True):
    """One way to keep a frozen weight."""

    stored: float  # at rest
    read: float  # by the kernels that widen it
    written: float  # by these, besides the copy that the product reads
    launches: int
    kept: bool = False  # whether the product keeps the copy for its backward pass; else it is made again there
    products: str = ""  # kernels that read the weight as it lies; empty: it is widened for each use
    source: str

    def widening(self, elements: Quantity, width: float) -> OperatorPart:
        """What one use costs besides the product, which reads weights of so many bytes."""
        return OperatorPart(
            vector=elements,
            read=elements * self.read,
            written=elements * (self.written + width),
            launches=self.launches,
            fused=self.launches,
            work=elements,
            depth=1,
        )


_NF4: Final = QuantizedFormat(
    stored=1 / 2 + 4 / 64,
    read=1 / 2 + 4 / 64,
    written=0,
    launches=1,
    source="Dettmers et al. 2023 (QLoRA), arXiv 2305.14314: 4 bits, an fp32 scale for 64 weights; "
    "bitsandbytes widens in one kernel and again in the backward pass",
)

FORMATS: Final = {
    "nf4": _NF4,
    "nf4-dq": msgspec.structs.replace(
        _NF4,
        stored=1 / 2 + 1 / 64 + 4 / (64 * 256),
        read=1 / 2 + 1 / 64 + 2 * 4 / 64,
        written=2 * 4 / 64,
        launches=3,
        source="the same, section 3: scales in 8 bits, an fp32 scale for 256 of them; they are widened first, "
        "and their mean is added",
    ),
    "fp4": msgspec.structs.replace(_NF4, source="the same with the 4-bit float of bitsandbytes"),
    "gptq4": QuantizedFormat(
        stored=1 / 2 + (HALF + 1 / 2) / 128,
        # shift to int32, cast to int8, mask, gather of zeros and scales, difference, product
        read=1 / 2 + 4 + 1 + 1 + 2 + HALF + (1 + HALF),
        written=4 + 1 + 1 + 1 + 1 + HALF,
        launches=7,
        kept=True,
        source="Frantar et al. 2022 (GPTQ), arXiv 2210.17323, groups of 128; AutoGPTQ's layer for training widens "
        "with PyTorch's own operators, and its product keeps what they made",
    ),
    "awq4": QuantizedFormat(
        stored=1 / 2 + (HALF + 1 / 2) / 128,
        read=1 / 2 + (HALF + 1 / 2) / 128,
        written=0,
        launches=1,
        source="Lin et al. 2023 (AWQ), arXiv 2306.00978, groups of 128; AutoAWQ, awq/modules/linear/gemm.py, "
        "WQLinearMMFunction: with 1,024 rows or more one kernel widens the weight before the product, and again in "
        "the backward pass",
    ),
    "int8": QuantizedFormat(
        stored=1,  # an fp32 scale for each row, of thousands of weights
        read=1 + HALF,  # a copy in 16 bits, scaled in place
        written=HALF,
        launches=2,
        source="Dettmers et al. 2022 (LLM.int8()), arXiv 2208.07339; bitsandbytes 0.50.2, autograd/_functions.py, "
        "MatMul8bitLt: the backward pass widens the weight in two kernels. The forward pass multiplies in 8 bits after "
        "it has quantised its input and taken outliers apart, which is priced as the same widening and a product in 16 "
        "bits: appendix D of the paper has it slower than 16 bits below 6.7B parameters",
    ),
    "fp8-weights": QuantizedFormat(
        stored=1,  # a scale for each tensor
        read=0,
        written=0,
        launches=0,
        products="fp8",
        source="Transformer Engine 2.8, transformer_engine/pytorch/quantization.py: fp8_model_init keeps weights of "
        "its layers in 8 bits alone, NeMo's fp8_params (mlcommons/training_results_v4.0, NVIDIA, llama2_70b_lora, "
        "conf/megatron_gpt_peft_tuning_config.yaml, with disable_parameter_transpose_cache)",
    ),
}
"""Word to meaning."""
