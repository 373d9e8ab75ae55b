"""What kind of work a kernel, an operator or a message of a trace does, by its name: the kinds that prices know."""

from __future__ import annotations

import re
from typing import Final

PRODUCTS, CONVOLUTIONS, ATTENTION, UPDATES, OTHERS = (
    "products",
    "convolutions",
    "attention",
    "updates",
    "between products",
)

WORDS: Final = (
    (ATTENTION, re.compile(r"flash|fmha|attention|sdpa|softmax_warp", re.I)),
    (CONVOLUTIONS, re.compile(r"conv(?!ert)|winograd|wgrad|dgrad|implicit_gemm|cudnn.*fprop", re.I)),
    (UPDATES, re.compile(r"multi_tensor|adam|_foreach|fused_?sgd|lamb|optimizer", re.I)),
    (
        PRODUCTS,
        re.compile(r"gemm|nvjet|cutlass|cublas|::(?:addmm|mm|bmm|baddbmm|matmul|linear)|_(?:scaled|grouped)_mm", re.I),
    ),
)
"""In the order in which they are tried: a convolution by a product is a convolution."""

OPERATORS: Final = {"matmul": PRODUCTS, "grouped_matmul": PRODUCTS, "convolution": CONVOLUTIONS, "attention": ATTENTION}
"""The same by the operators of a model."""


ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, SENDS, OTHER_MESSAGES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "broadcast",
    "sends and all-to-all",
    "other messages",
)

MESSAGE_WORDS: Final = (
    (ALL_REDUCE, re.compile(r"all[_-]?reduce", re.I)),
    (ALL_GATHER, re.compile(r"all[_-]?gather", re.I)),
    (REDUCE_SCATTER, re.compile(r"reduce[_-]?scatter", re.I)),
    (BROADCAST, re.compile(r"broadcast", re.I)),
    (SENDS, re.compile(r"send|recv|receive|all[_-]?to[_-]?all|shift|exchange", re.I)),
)
"""NCCL has one kernel (SendRecv) for what goes from rank to rank and for an all-to-all: no name tells them apart."""


def message_kind(name: str) -> str:
    """By the name of a message: NCCL's kernels, gloo's marks, and collectives as a program has them."""
    return next((kind for kind, pattern in MESSAGE_WORDS if pattern.search(name)), OTHER_MESSAGES)


def family(name: str) -> str:
    """By a kernel's name, or an operator's of PyTorch."""
    return next((kind for kind, pattern in WORDS if pattern.search(name)), OTHERS)


def of_operator(tag: str) -> str:
    """By an operator of a model."""
    return OPERATORS.get(tag, OTHERS)
