"""The oracle paper's models exactly as its released tool has them: layer files, not the canonical networks.

They have neither biases nor a loss, images of 226 pixels, and shapes of their own; docs/paradl.md tells the
differences. Use them to compare with the paper; use `vgg16` or `resnet50` for the networks themselves.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import ClassVar

from foretell.errors import unknown
from foretell.model.build import Builder
from foretell.model.family import Family
from foretell.model.zoo._layer_build import build
from foretell.model.zoo._layer_file import LayerFile, read

FOLDER = Path(__file__).with_name("paradl_nets")
NETWORKS = ("alexnet", "vgg16", "resnet50", "cosmoflow512")


class Paradl(Family, frozen=True, kw_only=True):
    """One of the paper's four networks."""

    references: ClassVar[tuple[str, ...]] = ("Kahira et al. 2021, arXiv 2104.09075",)

    network: str = "resnet50"

    def check(self) -> None:
        if self.network not in NETWORKS:
            raise unknown("network of the oracle paper", self.network, NETWORKS)

    def file(self) -> LayerFile:
        """The layers, with the seconds per sample that the authors measured on a V100."""
        self.check()
        return _read(self.network)

    def build(self, g: Builder, batch: int) -> None:
        build(g, self.file(), batch)


@functools.cache
def _read(network: str) -> LayerFile:
    return read(FOLDER / f"{network}.net")


PRESETS = {"paradl": Paradl(), **{f"{network}-paradl": Paradl(network=network) for network in NETWORKS}}
