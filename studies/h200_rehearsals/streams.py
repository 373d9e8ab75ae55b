"""What the allocator reserved, against what was in tensors, stream by stream: python studies/h200_rehearsals/streams.py

Of the half of the cases that may be looked at, from the whole history of their allocations (building, two steps).
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from score import rows  # noqa: E402

MADE, GONE = 0, 2
"""Kinds of events: a block is handed out, and is free again."""


def main() -> None:
    measured = {case.name: row["memory"] for case, row in rows() if not row["aside"]}
    errors: dict[str, list[float]] = defaultdict(list)
    with gzip.open(HERE / "history.jsonl.gz", "rt") as lines:
        for line in lines:
            found = json.loads(line)
            held, most, largest = Counter[int](), Counter[int](), Counter[int]()
            for kind, _, size, stream in found["events"]:
                if kind == MADE:
                    held[stream] += size
                    most[stream] = max(most[stream], held[stream])
                    largest[stream] = max(largest[stream], size)
                elif kind == GONE:
                    held[stream] -= size
            memory = measured[found["case"]]
            computes = max(most, key=lambda stream: most[stream])
            others = sum(size for stream, size in most.items() if stream != computes)
            whole, reserved = memory["allocated_bytes"], memory["reserved_bytes"]
            errors["tensors alone"].append(whole / reserved - 1)
            errors["and pools of other streams"].append((whole + others) / reserved - 1)
            errors["and the largest block"].append((whole + others + largest[computes]) / reserved - 1)
    print(f"{len(errors['tensors alone'])} cases, against bytes reserved: median of absolute errors, median error")
    for name, found in errors.items():
        print(f"{name:28} {statistics.median(map(abs, found)):6.1%} {statistics.median(found):+6.1%}")


if __name__ == "__main__":
    main()
