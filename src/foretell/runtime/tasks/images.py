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
import torch.nn.functional as F

from foretell.errors import BadInput, MissingExtra
from foretell.runtime.tasks import Task
from foretell.runtime.tasks._images import Images, Labelled

APART = rb"(?:\s|#[^\n]*\n)+"  # one way only to read each sign: a file of spaces is read once
HEADER = re.compile(rb"P([56])" + APART + rb"(\d+)" + APART + rb"(\d+)" + APART + rb"(\d+)\s")
NETPBM = (".ppm", ".pgm")
OTHERS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def task(given: str) -> Task:
    folder = Path(given)
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if given and folder.is_dir() else []
    if len(names) < 2:
        what = f"{folder} has a folder for each of {len(names)} classes" if given else "no folder of images is named"
        raise BadInput(what, where="--task", fix="--task images:FOLDER with a folder of images for each class")
    return Images("images", len(names), functools.partial(_read, folder, names))


def _read(folder: Path, names: list[str]) -> tuple[Labelled, Labelled]:
    files = [
        (path, place)
        for place, name in enumerate(names)
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in (*NETPBM, *OTHERS)
    ]
    if len(files) < len(names):
        raise BadInput(
            f"{len(files)} images in {len(names)} classes", where=str(folder), fix=", ".join((*NETPBM, *OTHERS))
        )
    images = [_image(path) for path, _ in files]
    channels, height, width = (max(one.shape[dim] for one in images) for dim in range(3))
    alike = [_sized(one, channels, height, width) for one in images]
    return Labelled(torch.cat(alike), torch.tensor([place for _, place in files])).split(0.1)


def _sized(image: torch.Tensor, channels: int, height: int, width: int) -> torch.Tensor:
    """All images in the size of the largest one."""
    found = image.unsqueeze(0)
    if found.shape[2:] != (height, width):
        found = F.interpolate(found, size=(height, width), mode="bilinear")
    return found.expand(-1, channels, -1, -1)


def _image(path: Path) -> torch.Tensor:
    """Channels, height, width; from 0 to 1."""
    if path.suffix.lower() in NETPBM:
        return _netpbm(path)
    try:
        pillow: Any = importlib.import_module("PIL.Image")
    except ModuleNotFoundError:
        what = f"{path.suffix} files are read by Pillow"
        raise MissingExtra(what, where=str(path), fix="pip install pillow, or .ppm files") from None
    with pillow.open(path) as opened:
        found = opened.convert("RGB")
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
