"""Bucket: gradients travel together, in portions of about this size."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.policy import Policy
from foretell.plan.syntax import Option, Size


class Bucket(Policy, frozen=True, kw_only=True, tag="bucket"):
    """How many bytes of gradients travel together. The usual size is the trainer's."""

    word: ClassVar[str] = "bucket"
    place: ClassVar[int] = 50
    summary: ClassVar[str] = "gradients travel in portions of this size"
    references: ClassVar[tuple[str, ...]] = ("Li et al. 2020 (PyTorch DDP), arXiv 2006.15704",)
    syntax: ClassVar[tuple[Option, ...]] = (Size("size"),)
    example: ClassVar[str] = "+bucket:25MB"

    size: int = 0  # bytes; 0: as the trainer does
