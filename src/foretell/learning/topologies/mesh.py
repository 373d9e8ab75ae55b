"""Everybody can reach everybody: gossip picks whom it likes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.topology import Topology


@dataclass(frozen=True)
class Mesh(Topology):
    paper: ClassVar[str] = "Blot et al. 2016 (GoSGD), arXiv 1611.09726"
    summary: ClassVar[str] = "everybody can reach everybody"
    central: ClassVar[bool] = False
