"""Write down which runs of the ultra-scale sweep met a fault of the cluster, from measurements alone.

    python studies/published/cluster_faults.py

The rule is `foretell.validation.studies.ultrascale.cluster_faults`; no prediction takes part. The list is
kept beside the data so that it cannot move when the oracle does: a test holds rule and list together.
"""

from __future__ import annotations

import csv
from pathlib import Path

from foretell.validation.studies.ultrascale import cluster_faults, identities

HERE = Path(__file__).parent
SWEEP = HERE / "ultrascale_h100.csv"
LIST = HERE / "ultrascale_cluster_faults.txt"


def main() -> None:
    with SWEEP.open(newline="") as file:
        lines = list(csv.DictReader(file))
    faulty = cluster_faults(lines)
    names = [name for name in identities(lines) if name in faulty]
    LIST.write_text("".join(f"{name}\n" for name in names))
    finished = [line for line in lines if line["outcome"] == "ok"]
    pipelines = sum(int(line["pp"]) > 1 for line in finished)
    of_pipelines = sum("-pp1-" not in name for name in names)
    print(f"{len(names)} of {len(finished)} finished runs, {of_pipelines} of {pipelines} with a pipeline")


if __name__ == "__main__":
    main()
