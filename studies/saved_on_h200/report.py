"""The measured steps next to what the graph says today: ratios of ours to theirs.

python studies/saved_on_h200/report.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from foretell.model import zoo
from foretell.model.totals import Totals, totals

MEASURED = Path(__file__).with_name("measured.jsonl")


def rows() -> list[tuple[dict[str, Any], Totals]]:
    """Every measured step with the totals of its graph."""
    measured = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    return [(row, totals(zoo.load(row["spec"], row["batch"]))) for row in measured]


def main() -> None:
    print(f"{'model':<42}{'flops':>7}{'saved':>10}{'allocated':>11}{'kernels':>9}")
    for row, ours in rows():
        flops = (ours.forward.matrix + ours.backward.matrix) / (row["forward_flops"][1] + row["backward_flops"][1])
        saved = ours.saved_bytes / row["saved_bytes"][1]
        held = ours.saved_bytes / row["allocated_bytes"][1]
        kernels = (ours.forward + ours.backward).launches / (row["forward_kernels"][1] + row["backward_kernels"][1])
        print(f"{row['spec']:<42}{flops:>7.3f}{saved:>10.5f}{held:>11.4f}{kernels:>9.2f}")


if __name__ == "__main__":
    main()
