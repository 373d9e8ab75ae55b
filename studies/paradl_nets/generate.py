"""Writes the four layer files of the oracle paper's models, as its released tool sees them.

    python studies/paradl_nets/generate.py            write them to src/foretell/model/zoo/paradl_nets
    python studies/paradl_nets/generate.py --print    only print their sums

The shapes are those for which the sums over all layers are the ones in the authors' logs, to the last digit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from foretell.model.importers.paradl_net import LayerFile, LayerLine, write

TARGET = Path(__file__).parents[2] / "src/foretell/model/zoo/paradl_nets"
IMAGENET = 1_280_000
"""Samples, as the authors round the training set."""


class Layers:
    """Layers in a row; each reads what the one before it made."""

    def __init__(self, sample: tuple[int, ...]) -> None:
        self.sample = self.shape = sample
        self.found: list[LayerLine] = []

    def _add(self, name: str, w: tuple[int, ...], y: tuple[int, ...]) -> None:
        self.found.append(LayerLine(name, self.shape, w, y))
        self.shape = y

    def conv(self, name: str, filters: int, kernel: int, stride: int = 1, padding: int = 0) -> None:
        channels, *space = self.shape
        sizes = ((size + 2 * padding - kernel) // stride + 1 for size in space)
        self._add(name, (channels, filters, *[kernel] * len(space)), (filters, *sizes))

    def pool(self, name: str, kernel: int, stride: int, *, cover: bool = False) -> None:
        """`cover`: a last window may hang over the edge (Chainer's cover_all)."""
        channels, *space = self.shape
        more = stride - 1 if cover else 0
        sizes = ((size - kernel + more) // stride + 1 for size in space)
        self._add(name, (0, 0, *[kernel] * len(space)), (channels, *sizes))

    def same(self, name: str) -> None:
        """A layer without weights that keeps the shape."""
        channels, *space = self.shape
        self._add(name, (channels, channels, *[0] * len(space)), self.shape)

    def dense(self, name: str, features: int) -> None:
        channels, *space = self.shape
        self._add(name, (channels, features, *space), (features, *[1] * len(space)))


def alexnet() -> LayerFile:
    """Without groups, and without padding in the first convolution."""
    net = Layers((3, 226, 226))
    net.conv("CONV1", 96, 11, stride=4)
    net.same("RELU1")
    net.pool("MPOOL1", 3, 2, cover=True)
    net.conv("CONV2", 256, 5, padding=2)
    net.same("RELU2")
    net.pool("MPOOL2", 3, 2)
    for at, filters in ((3, 384), (4, 384), (5, 256)):
        net.conv(f"CONV{at}", filters, 3, padding=1)
        net.same(f"RELU{at}")
    net.pool("MPOOL5", 3, 2)
    _dense_head(net)
    return LayerFile(IMAGENET, net.sample, tuple(net.found), "AlexNet", "ImageNet").timed(0.000610938)


def _dense_head(net: Layers) -> None:
    for at in (6, 7):
        net.dense(f"FC{at}", 4096)
        net.same(f"RELU{at}")
        net.same(f"DROPOUT{at}")
    net.dense("FC8", 1000)


def vgg16() -> LayerFile:
    """Poolings cover the edge: 226, 113, 57, 29, 15, 8."""
    net = Layers((3, 226, 226))
    for group, (count, filters) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), start=1):
        for at in range(1, count + 1):
            net.conv(f"CONV{group}_{at}", filters, 3, padding=1)
            net.same(f"RELU{group}_{at}")
        net.pool(f"MPOOL{group}", 2, 2, cover=True)
    _dense_head(net)
    return LayerFile(IMAGENET, net.sample, tuple(net.found), "VGG16", "ImageNet").timed(0.008245589)


def resnet50() -> LayerFile:
    """Strides in the first 1x1 convolutions; the four projections of shortcuts are not in the file."""
    net = Layers((3, 226, 226))
    net.conv("CONV1", 64, 7, stride=2, padding=3)
    net.same("BNORM1")
    net.same("RELU1")
    net.pool("MPOOL1", 3, 2)
    for group, blocks in ((2, 3), (3, 4), (4, 6), (5, 3)):
        filters = 64 * 2 ** (group - 2)
        for block in range(1, blocks + 1):
            stride = 2 if block == 1 and group > 2 else 1
            for at, (wide, kernel) in enumerate(((filters, 1), (filters, 3), (4 * filters, 1)), start=1):
                net.conv(f"{group}.{block}.CONV{at}", wide, kernel, stride if at == 1 else 1, kernel // 2)
                net.same(f"{group}.{block}.BNORM{at}")
                if at == 3:
                    net.same(f"{group}.{block}.ADD")
                net.same(f"{group}.{block}.RELU{at}")
    net.pool("APOOL6", 7, 1)
    net.dense("FC6", 1000)
    return LayerFile(IMAGENET, net.sample, tuple(net.found), "ResNet50", "ImageNet").timed(0.003119502)


def cosmoflow512() -> LayerFile:
    """Seven convolutions without padding, the third with stride 2, and three dense layers."""
    net = Layers((4, 512, 512, 512))
    for at, (filters, kernel) in enumerate(
        ((16, 3), (32, 3), (64, 3), (128, 3), (256, 2), (256, 2), (128, 2)), start=1
    ):
        net.conv(f"CONV{at}", filters, kernel, stride=2 if at == 3 else 1)
        net.same(f"RELU{at}")
        if at < 7:
            net.pool(f"APOOL{at}", 2, 2)
    for at, features in ((1, 2048), (2, 256)):
        net.dense(f"FC{at}", features)
        net.same(f"RELU{at + 7}")
    net.dense("FC3", 4)
    return LayerFile(1584, net.sample, tuple(net.found), "CosmoFlow", "CosmoFlow").timed(2.108143184)


NETS: dict[str, Callable[[], LayerFile]] = {
    "alexnet": alexnet,
    "vgg16": vgg16,
    "resnet50": resnet50,
    "cosmoflow512": cosmoflow512,
}

if __name__ == "__main__":
    print(f"{'':14}{'layers':>6} {'sum|x|':>13} {'sum|y|':>13} {'sum|w|':>12} {'s/sample':>12}")
    for name, make in NETS.items():
        file = make()
        if "--print" not in sys.argv:
            (TARGET / f"{name}.net").write_text(write(file), encoding="utf-8")
        sums = f"{file.inputs:13,} {file.outputs:13,} {file.weights:12,} {file.seconds:12.9f}"
        print(f"{name:14}{len(file.layers):6} {sums}")
