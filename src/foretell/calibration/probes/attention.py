# pyright: basic
"""Attention by PyTorch's own kernel, forward and backward, over sequences and heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch.nn.functional as F

from foretell.calibration.case import Case, Scope, gradients, kernel
from foretell.cost.samples import BACKWARD
from foretell.model.operators.attention import Attention

SUMMARY = "attention"

# samples, heads, sequence, size of a head, causal
FEW = [(2, 4, 64, 32, True)]
CPU = [
    (2, 4, 32, 16, True), (4, 4, 64, 32, True), (2, 8, 128, 64, True), (2, 8, 256, 64, True), (1, 8, 512, 64, True),
    (4, 8, 64, 64, False), (2, 12, 128, 64, False),
]  # fmt: skip
CUDA = [
    (16, 12, 128, 64, False), (16, 12, 512, 64, False), (8, 12, 1024, 64, True), (1, 12, 1024, 64, True),
    (64, 12, 197, 64, False), (4, 32, 2048, 64, True), (2, 32, 4096, 128, True), (1, 32, 8192, 128, True),
    (2, 32, 4096, 128, False), (1, 16, 2048, 128, True),
]  # fmt: skip


def cases(scope: Scope) -> Iterator[Case]:
    precisions = [word for word in scope.precisions if word != "tf32"]  # the same kernel as for fp32
    for precision, row in product(precisions, scope.choose(FEW, CPU, CUDA)):
        for parts in (("forward",), BACKWARD):
            yield _attention(scope, row, parts, precision)


def _attention(scope: Scope, row: tuple[int, int, int, int, bool], parts: tuple[str, ...], precision: str) -> Case:
    samples, heads, sequence, size, causal = row
    trained = parts != ("forward",)

    def make() -> Callable[[], Any]:
        q, k, v = (scope.random(samples, heads, sequence, size, precision=precision, trained=trained) for _ in range(3))
        if not trained:
            return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return gradients(F.scaled_dot_product_attention(q, k, v, is_causal=causal), [q, k, v])

    operator = Attention("flash" if precision != "fp32" or scope.device == "cpu" else "efficient", causal=causal)
    sizes = {"sample": samples, "kv_head": heads, "share": 1, "query": sequence, "key": sequence}
    sizes |= {"qk": size, "value": size}
    density = float(operator.density(sizes))
    return kernel(operator, sizes, "q k v y", parts, precision, make, density=density)
