"""Precision: in how many bits numbers are kept, added up and multiplied.

One table, a row per word, with its source. Bytes are per element. `accumulation` is what gradients
add up in over micro-batches; a trainer with one buffer for both has no gradient beside it
(Megatron-Core: 2 + 4 + 12 = 18 bytes a weight with Adam), one with two has both for a while.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from foretell.plan.policy import Policy
from foretell.plan.syntax import Option, WordChoice


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What one word means."""

    activation: str  # element type of activations (units.WIDTH)
    weight: int  # bytes of a weight as layers read it
    gradient: int  # bytes of its gradient as the backward pass makes it
    accumulation: int  # bytes of the sum of its gradients over micro-batches
    master: int  # bytes of the copy that the optimizer updates; 0: it updates the weight itself
    state: int  # bytes of each state of the optimizer (Adam has two a weight, momentum one)
    kernels: str  # rate of the matrix products of layers (Device.peak)
    other_kernels: str  # rate of all other matrix products: attention, the vocabulary head
    operand: float  # bytes of an operand of the layers' products, scales included
    autocast: bool = False  # weights are copied to the activations' type for each use
    loss_scaling: bool = False
    source: str

    def states(self, count: int) -> int:
        """Bytes a weight takes in the optimizer's care: master copy and this many states."""
        return self.master + count * self.state


_FP32: Final = Format(
    activation="fp32",
    weight=4,
    gradient=4,
    accumulation=4,
    master=0,
    state=4,
    kernels="fp32",
    other_kernels="fp32",
    operand=4,
    source="IEEE 754 binary32, the default of a PyTorch module",
)
_BF16: Final = Format(
    activation="bf16",
    weight=2,
    gradient=2,
    accumulation=4,
    master=4,
    state=4,
    kernels="bf16",
    other_kernels="bf16",
    operand=2,
    source="Kalamkar et al. 2019, arXiv 1905.12322; 18 bytes with Adam: Megatron-Core, distributed optimizer",
)
_but = msgspec.structs.replace

FORMATS: Final = {
    "fp32": _FP32,
    "tf32": _but(
        _FP32,
        kernels="tf32",
        other_kernels="tf32",
        source="NVIDIA 2020 (A100 architecture white paper): fp32 in memory, 10-bit mantissas in matrix units",
    ),
    "fp16": _but(
        _BF16,
        activation="fp16",
        accumulation=2,
        kernels="fp16",
        other_kernels="fp16",
        loss_scaling=True,
        source="Micikevicius et al. 2018, arXiv 1710.03740; 16 bytes with Adam: ZeRO, arXiv 1910.02054",
    ),
    "bf16": _BF16,
    "bf16:pure": _but(
        _BF16,
        accumulation=2,
        master=0,
        state=2,
        source="a PyTorch module after .bfloat16(): gradients and states take the type of the weights",
    ),
    "amp_fp16": _but(
        _FP32,
        activation="fp16",
        kernels="fp16",
        other_kernels="fp16",
        operand=2,
        autocast=True,
        loss_scaling=True,
        source="PyTorch automatic mixed precision with its default type on GPUs: fp32 weights, products in fp16",
    ),
    "amp_bf16": _but(
        _FP32,
        activation="bf16",
        kernels="bf16",
        other_kernels="bf16",
        operand=2,
        autocast=True,
        source="PyTorch automatic mixed precision: fp32 weights, products in bf16, reductions in fp32",
    ),
    "fp8": _but(
        _BF16,
        kernels="fp8",
        operand=1,
        source="Micikevicius et al. 2022 (FP8), arXiv 2209.05433: a scale per tensor",
    ),
    "fp8:block": _but(
        _BF16,
        kernels="fp8",
        operand=1 + 4 / 128,
        source="DeepSeek-AI 2024 (DeepSeek-V3), arXiv 2412.19437, section 3.3: an fp32 scale for 128 elements of a row",
    ),
    "mxfp8": _but(
        _BF16,
        kernels="mxfp8",
        operand=1 + 1 / 32,
        source="Rouhani et al. 2023 (OCP microscaling), arXiv 2310.10537: an 8-bit scale for 32 elements",
    ),
    "nvfp4": _but(
        _BF16,
        kernels="nvfp4",
        operand=1 / 2 + 1 / 16,
        source="NVIDIA 2025 (pretraining with NVFP4), arXiv 2509.25149: an 8-bit scale for 16 elements of 4 bits",
    ),
}
"""Word to meaning. fp8 and below multiply only in layers: attention and the vocabulary head stay in bf16.

Published runs say so: over 65 FP8 steps on H100 a model of that kind has a bias of 1.02; one factor on the
whole step instead leaves 0.81 for 8B models and 1.18 for 405B."""


class Precision(Policy, frozen=True, kw_only=True, tag="precision"):
    """One of the words of the table."""

    word: ClassVar[str] = "precision"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 30
    summary: ClassVar[str] = "bytes of weights, gradients and states, and the kernels used"
    references: ClassVar[tuple[str, ...]] = (
        "Micikevicius et al. 2018 (mixed precision), arXiv 1710.03740",
        "Kalamkar et al. 2019 (bfloat16), arXiv 1905.12322",
        "Micikevicius et al. 2022 (FP8), arXiv 2209.05433",
        "Rouhani et al. 2023 (OCP microscaling), arXiv 2310.10537",
        "NVIDIA 2025 (NVFP4), arXiv 2509.25149",
    )
    syntax: ClassVar[tuple[Option, ...]] = (WordChoice("name", {name: name for name in FORMATS}),)
    example: ClassVar[str] = "+bf16"

    name: str = ""  # not said: the trainer's usual one, see `Setting`

    @property
    def format(self) -> Format:
        """Its row of the table."""
        return FORMATS[self.name or "fp32"]
