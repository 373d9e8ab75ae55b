"""Adafactor: Adam without the first moment, whose second moment of a matrix is kept by its rows and columns alone."""

from __future__ import annotations

from foretell.model.optimizer import Optimizer, OptimizerState, UpdateRule

ROWS = OptimizerState("mean squares of rows", of_matrix=lambda rows, columns: rows)
COLUMNS = OptimizerState("mean squares of columns", of_matrix=lambda rows, columns: columns)

OPTIMIZER = Optimizer(
    summary="w = (1 - lr d) w - a g / sqrt(v), where v of a matrix is the product of its rows' and its columns' means",
    references=("Shazeer, Stern 2018, arXiv 1804.04235",),
    rule=UpdateRule(flops=14, states=(OptimizerState("second moment"),), kernels=8, passes=18),
    matrix_rule=UpdateRule(flops=14, states=(ROWS, COLUMNS), kernels=10, passes=16),
    tables=True,
    torch="Adafactor",
    arguments={"lr": 1e-2, "weight_decay": 0.0},
    words={},
)
