"""As much of `datasets` as a trainer of text needs: files of JSON lines, in order."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator
from typing import Any


class Dataset:
    """Rows of files."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> dict[str, Any]:
        return self.rows[at]

    def skip(self, count: int) -> Dataset:
        return Dataset(self.rows[count:])


IterableDataset = Dataset


def load_dataset(path: str, *_: Any, **__: Any) -> Dataset:
    """The rows of `path/*.json*`, or those that RECORDS names."""
    folder = os.environ.get("ROWS") or path
    rows: list[dict[str, Any]] = []
    for name in sorted(glob.glob(os.path.join(folder, "*.json*"))):
        with open(name, encoding="utf-8") as file:
            rows += [json.loads(line) for line in file if line.strip()]
    return Dataset(rows)
