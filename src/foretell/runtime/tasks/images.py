# pyright: basic
"""A person's own images: `images:FOLDER`, with a folder of files for each class. A tenth of them is held out.

Binary PPM and PGM files are read here; others (PNG, JPEG) by Pillow, where it is installed.
"""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any

import torch

from foretell.errors import BadInput, MissingExtra
from foretell.runtime.tasks import Task
from foretell.runtime.tasks._images import Images, Labelled

APART = rb"(?:\s|#[^\n]*\n)+"  # one way only to read each sign: a file of spaces is read once
HEADER = re.compile(rb"P([56])" + APART + rb"(\d+)" + APART + rb"(\d+)" + APART + rb"(\d+)\s")
NETPBM = (".ppm", ".pgm")
OTHERS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def task(given: str) -> Task:
    folder = Path(given)
    if not given or not folder.is_dir():
        what = f"no such folder: {folder}" if given else "no folder of images is named"
        raise BadInput(what, where="--task", fix=FIX)
    classes = {path.name: _files(path) for path in sorted(folder.iterdir()) if path.is_dir()}
    if len(classes) < 2:
        raise BadInput(f"{folder} has a folder for each of {len(classes)} classes", where="--task", fix=FIX)
    for name, files in classes.items():
        if not files:
            raise BadInput(f"no images in {folder / name}", where="--task", fix=", ".join((*NETPBM, *OTHERS)))
        _image(files[0])  # what cannot be read at all is told before anything starts
    return Images("images", len(classes), functools.partial(_read, list(classes.values())))


FIX = "--task images:FOLDER with a folder of images for each class"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in (*NETPBM, *OTHERS))


class ImageFiles:
    """Images in files, each read when a batch has it: there may be more than memory holds."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files

    def __getitem__(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Each in its own size."""
        return [_image(self._files[row]).unsqueeze(0) for row in rows.tolist()]


def _read(classes: list[list[Path]]) -> tuple[Labelled, Labelled]:
    files = [path for own in classes for path in own]
    places = torch.tensor([place for place, own in enumerate(classes) for _ in own])
    train, held_out = Labelled(torch.arange(len(files)), places).split(0.1)
    return _of(files, train), _of(files, held_out)


def _of(files: list[Path], some: Labelled) -> Labelled:
    return Labelled(ImageFiles([files[row] for row in some.images.tolist()]), some.classes)


def _image(path: Path) -> torch.Tensor:
    """Channels, height, width; from 0 to 1."""
    if path.suffix.lower() in NETPBM:
        return _netpbm(path)
    try:
        pillow: Any = importlib.import_module("PIL.Image")
    except ModuleNotFoundError:
        what = f"{path.suffix} files are read by Pillow"
        raise MissingExtra(what, where=str(path), fix="pip install pillow, or .ppm files") from None
    try:
        with pillow.open(path) as opened:
            found = opened.convert("RGB")
    except OSError as problem:
        raise BadInput(f"no image that can be read: {problem}", where=str(path)) from None
    values = torch.frombuffer(bytearray(found.tobytes()), dtype=torch.uint8)
    return values.reshape(found.height, found.width, 3).permute(2, 0, 1).float() / 255


def _netpbm(path: Path) -> torch.Tensor:
    content = path.read_bytes()
    head = HEADER.match(content)
    if head is None or int(head[4]) > 255:
        raise BadInput("not a binary PPM or PGM file of one byte a value", where=str(path))
    channels, width, height = (3 if head[1] == b"6" else 1), int(head[2]), int(head[3])
    values = content[head.end() : head.end() + channels * width * height]
    if len(values) < channels * width * height:
        raise BadInput("an image that ends before its time", where=str(path))
    found = torch.frombuffer(bytearray(values), dtype=torch.uint8).reshape(height, width, channels)
    return found.permute(2, 0, 1).float() / int(head[4])
