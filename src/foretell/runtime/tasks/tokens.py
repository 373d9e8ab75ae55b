# pyright: basic
"""A person's own text: `tokens:FILE`. Its end is held out.

FILE.bin     token after token, in two bytes each; FILE.u32.bin in four (as nanoGPT and others write them)
FILE.npy     a NumPy array of whole numbers
other files  text, letter by letter
"""

from __future__ import annotations

from pathlib import Path

import torch

from foretell.errors import BadInput
from foretell.runtime.tasks import Task
from foretell.runtime.tasks._tokens import CHARACTERS, Tokens, letters


def task(given: str) -> Task:
    path = Path(given)
    if not given or not path.is_file():
        raise BadInput(f"no such file: {given!r}", where="--task", fix="--task tokens:FILE.bin, .npy or a text")
    if path.suffix not in (".bin", ".npy"):
        return Tokens(path.name, CHARACTERS, lambda: letters(path.read_bytes()))
    found = _read(path)
    return Tokens(path.name, int(found.max()) + 1 if len(found) else 0, lambda: found)


def _read(path: Path) -> torch.Tensor:
    import numpy

    if path.suffix == ".npy":
        try:
            array = numpy.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError) as problem:
            raise BadInput(f"no NumPy array: {problem}", where=str(path), fix="numpy.save") from None
        if array.dtype.kind not in "ui":
            raise BadInput(f"an array of {array.dtype}, not of whole numbers", where=str(path))
        if array.size and array.min() < 0:
            raise BadInput(f"a token {array.min()}: they are numbered from 0", where=str(path))
    else:
        array = numpy.fromfile(path, dtype="<u4" if path.name.endswith(".u32.bin") else "<u2")
    return torch.from_numpy(array.reshape(-1).astype("int64"))
