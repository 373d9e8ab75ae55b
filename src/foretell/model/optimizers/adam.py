"""Adam: steps by the first moment of gradients over the root of the second.

Passes of kernels that each do one line: m towards g (3), v scaled (2), v plus g squared (3), its root (2), scaled (2),
plus epsilon (2), the step (4). The roots of all second moments are a list of their own.
"""

from __future__ import annotations

from foretell.model.optimizer import Optimizer, OptimizerState, UpdateRule

MOMENTS = (OptimizerState("first moment"), OptimizerState("second moment"))

OPTIMIZER = Optimizer(
    summary="w = w - lr m / (sqrt(v) + e), with moments m of the gradient and v of its square",
    references=("Kingma, Ba 2015, arXiv 1412.6980",),
    rule=UpdateRule(flops=12, states=MOMENTS, kernels=7, passes=18, makes_lists=True),
    torch="Adam",
    arguments={"lr": 1e-3},
    words={"deepspeed": "Adam", "torchtitan-toml": "Adam"},
)
