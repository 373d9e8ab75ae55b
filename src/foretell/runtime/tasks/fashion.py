# pyright: basic
"""Fashion-MNIST: 60,000 images of clothes to train on and 10,000 held out, 28 x 28, ten classes; a Debian package.

Xiao, Rasul, Vollgraf 2017 (Fashion-MNIST), arXiv 1708.07747.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import torch

from foretell.errors import MissingExtra
from foretell.runtime.tasks import Task
from foretell.runtime.tasks._images import Images, Labelled

FOLDER = Path("/usr/share/datasets/fashion-mnist")
PACKAGE = "apt install dataset-fashion-mnist"

IMAGES, LABELS = 0x0803, 0x0801
"""How the files begin: bytes in three dims, in one."""


def task(given: str) -> Task:
    """`fashion:FOLDER` for files that lie somewhere else."""
    folder = Path(given or os.environ.get("FORETELL_FASHION", "") or FOLDER)
    if not (folder / "train-images-idx3-ubyte.gz").is_file():
        fix = f"{PACKAGE}, or --task fashion:FOLDER with the four files"
        raise MissingExtra(f"Fashion-MNIST is not in {folder}", where="--task", fix=fix)
    return Images("clothes", 10, lambda: (_part(folder, "train"), _part(folder, "t10k")))


def _part(folder: Path, name: str) -> Labelled:
    images = _bytes(folder / f"{name}-images-idx3-ubyte.gz", IMAGES)
    classes = _bytes(folder / f"{name}-labels-idx1-ubyte.gz", LABELS)
    return Labelled(images.unsqueeze(1).float() / 255, classes.to(torch.int64))


def _bytes(file: Path, kind: int) -> torch.Tensor:
    """A file in the format of MNIST: a magic number, sizes, then bytes."""
    try:
        content = gzip.decompress(file.read_bytes())
    except (OSError, EOFError) as problem:
        raise MissingExtra(f"{file.name} cannot be read: {problem}", where=str(file), fix=PACKAGE) from None
    if int.from_bytes(content[:4], "big") != kind:
        raise MissingExtra(f"{file.name} is no file of MNIST's format", where=str(file), fix=PACKAGE)
    dims = kind & 0xFF
    sizes = [int.from_bytes(content[4 * at : 4 * at + 4], "big") for at in range(1, dims + 1)]
    return torch.frombuffer(bytearray(content[4 * (dims + 1) :]), dtype=torch.uint8).reshape(sizes)
