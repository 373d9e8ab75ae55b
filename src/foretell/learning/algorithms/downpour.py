"""Asynchronous SGD at a parameter server: nobody waits for anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.algorithm import OneByOne


@dataclass
class Downpour(OneByOne):
    paper: ClassVar[str] = "Dean et al. 2012 (DistBelief), NIPS 25; Langer et al. 2020, figure 8"
    summary: ClassVar[str] = "each gradient is a step when it comes"
    invariant: ClassVar[str] = "the weights are the first ones less the sum of all gradients; mean staleness n - 1"
