"""The graph against training steps measured on an H200 (studies/saved_on_h200)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies" / "saved_on_h200"))
from report import rows

from foretell.model.totals import Totals


@pytest.mark.parametrize(("row", "ours"), rows(), ids=lambda value: value["spec"] if isinstance(value, dict) else "")
def test_a_measured_step(row: dict[str, Any], ours: Totals) -> None:
    assert ours.parameters == row["parameters"][1]
    assert ours.forward.matrix == row["forward_flops"][1]
    assert ours.backward.matrix == row["backward_flops"][1]
    assert ours.saved_bytes == pytest.approx(row["saved_bytes"][1], rel=2e-4)
    assert ours.saved_bytes == pytest.approx(row["allocated_bytes"][1], rel=0.025)
    # libraries start kernels of their own, so ours are fewer; never more
    kernels = (ours.forward + ours.backward).launches / (row["forward_kernels"][1] + row["backward_kernels"][1])
    assert 0.35 < kernels < 1.05
