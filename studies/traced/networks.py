"""Networks of published runs that no package builds: written here from their papers and their authors' descriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES = 81
"""Of COCO, with the background."""


def conv(inside: int, outside: int, kernel: int, stride: int = 1, padding: int = 0, norm: bool = True) -> nn.Sequential:
    layer = nn.Conv2d(inside, outside, kernel, stride, padding, bias=not norm)
    return nn.Sequential(layer, *([nn.BatchNorm2d(outside)] if norm else []), nn.ReLU(inplace=True))


# detectors


class Ssd(nn.Module):
    """SSD (Liu et al. 2016, arXiv 1512.02325) on a ResNet without its last stage, whose third one keeps its resolution.

    As NVIDIA's DeepLearningExamples and MLPerf have it: boxes of 38, 19, 10, 5, 3 and 1 places a side for 300 pixels.
    """

    BOXES = (4, 6, 6, 6, 4, 4)

    def __init__(self, backbone: str, width: int, outs: tuple[int, ...], mids: tuple[int, ...], norm: bool) -> None:
        super().__init__()
        trunk = timm.create_model(backbone, pretrained=False)
        for part in trunk.layer3[0].modules():
            if isinstance(part, nn.Conv2d) and part.stride == (2, 2):
                part.stride = (1, 1)
        self.trunk = nn.Sequential(
            trunk.conv1, trunk.bn1, trunk.act1, trunk.maxpool, trunk.layer1, trunk.layer2, trunk.layer3
        )
        ins = (width, *outs[:-1])
        places = ((2, 1), (2, 1), (2, 1), (1, 0), (1, 0))
        self.extra = nn.ModuleList(
            nn.Sequential(conv(i, m, 1, norm=norm), conv(m, o, 3, stride, padding, norm=norm))
            for i, m, o, (stride, padding) in zip(ins, mids, outs, places, strict=True)
        )
        widths = (width, *outs)
        self.places = nn.ModuleList(nn.Conv2d(w, 4 * n, 3, padding=1) for w, n in zip(widths, self.BOXES, strict=True))
        self.classes = nn.ModuleList(
            nn.Conv2d(w, CLASSES * n, 3, padding=1) for w, n in zip(widths, self.BOXES, strict=True)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.trunk(x)
        maps = [x]
        for layer in self.extra:
            maps.append(layer(maps[-1]))
        places = [head(x).reshape(x.shape[0], 4, -1) for head, x in zip(self.places, maps, strict=True)]
        classes = [head(x).reshape(x.shape[0], CLASSES, -1) for head, x in zip(self.classes, maps, strict=True)]
        return torch.cat(places, 2), torch.cat(classes, 2)


def box_loss(output: tuple[Tensor, Tensor]) -> Tensor:
    """Of places and classes; the boxes that count are a sort, which is small."""
    places, classes = output
    target = torch.zeros(classes.shape[0], classes.shape[2], dtype=torch.int64)
    return F.smooth_l1_loss(places, torch.zeros_like(places)) + F.cross_entropy(classes, target)


def ssd300_resnet50(batch: int) -> Any:
    mids, outs = (256, 256, 128, 128, 128), (512, 512, 256, 256, 256)
    return Ssd("resnet50", 1024, outs, mids, norm=True), (torch.zeros(batch, 3, 300, 300),), box_loss


def ssd300_resnet34(batch: int) -> Any:
    mids, outs = (256, 256, 128, 128, 128), (512, 512, 256, 256, 256)
    return Ssd("resnet34", 256, outs, mids, norm=False), (torch.zeros(batch, 3, 300, 300),), box_loss


class RetinaNet(nn.Module):
    """RetinaNet (Lin et al. 2017, arXiv 1708.02002): a pyramid of features, and heads that its levels share.

    MLPerf has it on ResNeXt-50 for 264 classes; what TensorFlow calls SSD with a pyramid is nearly the same.
    """

    def __init__(self, trunk: str, classes: int, boxes: int) -> None:
        super().__init__()
        self.trunk = timm.create_model(trunk, pretrained=False, features_only=True, out_indices=(2, 3, 4))
        self.inner = nn.ModuleList(nn.Conv2d(width, 256, 1) for width in (512, 1024, 2048))
        self.outer = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in range(3))
        self.p6, self.p7 = nn.Conv2d(256, 256, 3, 2, 1), nn.Conv2d(256, 256, 3, 2, 1)
        self.classes, self.boxes = self.head(classes * boxes), self.head(4 * boxes)
        self.kinds = classes

    @staticmethod
    def head(outside: int) -> nn.Sequential:
        towers = [layer for _ in range(4) for layer in (nn.Conv2d(256, 256, 3, padding=1), nn.ReLU())]
        return nn.Sequential(*towers, nn.Conv2d(256, outside, 3, padding=1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        inner = [layer(x) for layer, x in zip(self.inner, self.trunk(x), strict=True)]
        for at in (1, 0):
            inner[at] = inner[at] + F.interpolate(inner[at + 1], size=inner[at].shape[-2:])
        maps = [layer(x) for layer, x in zip(self.outer, inner, strict=True)]
        maps.append(self.p6(maps[-1]))
        maps.append(self.p7(F.relu(maps[-1])))
        classes = [self.classes(x).reshape(x.shape[0], self.kinds, -1) for x in maps]
        return torch.cat([self.boxes(x).reshape(x.shape[0], 4, -1) for x in maps], 2), torch.cat(classes, 2)


def focal_loss(output: tuple[Tensor, Tensor]) -> Tensor:
    places, classes = output
    target = torch.zeros_like(classes)
    chance = torch.sigmoid(classes)
    entropy = torch.log(1 + torch.exp(classes)) - classes * target
    focal = (entropy * (1 - (chance * target + (1 - chance) * (1 - target))) ** 2).sum()
    return focal + F.l1_loss(places, torch.zeros_like(places))


class FrozenNorm(nn.Module):
    """A batch norm that neither counts nor learns: a scale and a shift."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1, width, 1, 1))
        self.register_buffer("shift", torch.zeros(1, width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift, x, self.scale)


def retinanet_resnext50(batch: int) -> Any:
    """MLPerf's reference (mlcommons/training, single_stage_detector): norms are frozen, and so are the first layers."""
    module = RetinaNet("resnext50_32x4d", 264, 9)
    for part in module.trunk.modules():
        for name, child in part.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(part, name, FrozenNorm(child.num_features))
    for name, weight in module.trunk.named_parameters():
        weight.requires_grad_(not name.startswith(("conv1", "layer1")))
    return module, (torch.zeros(batch, 3, 800, 800),), focal_loss


def ssd320_resnet50(batch: int) -> Any:
    """NVIDIA's SSD in TensorFlow 1 (DeepLearningExamples, TensorFlow/Detection/SSD): a pyramid, six boxes a place."""
    return RetinaNet("resnet50", 90, 6), (torch.zeros(batch, 3, 320, 320),), focal_loss


# segmentation


class NnUNet(nn.Module):
    """nnU-Net (Isensee et al. 2021) as NVIDIA's DeepLearningExamples build it for brain tumours: six resolutions, two
    convolutions with instance norm and a leaky ReLU at each, transposed convolutions on the way up."""

    def __init__(self, dims: int, widths: tuple[int, ...], inside: int = 4, classes: int = 4) -> None:
        super().__init__()
        self.make = (nn.Conv2d, nn.ConvTranspose2d, nn.InstanceNorm2d) if dims == 2 else (
            nn.Conv3d, nn.ConvTranspose3d, nn.InstanceNorm3d)  # fmt: skip
        ins = (inside, *widths[:-1])
        self.down = nn.ModuleList(
            self.block(i, o, 1 if at == 0 else 2) for at, (i, o) in enumerate(zip(ins, widths, strict=True))
        )
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.rise = nn.ModuleList(self.make[1](i, o, 2, 2, bias=False) for i, o in pairs)
        self.up = nn.ModuleList(self.block(2 * o, o, 1) for _, o in pairs)
        self.last = self.make[0](widths[0], classes, 1)

    def block(self, inside: int, outside: int, stride: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for i, s in ((inside, stride), (outside, 1)):
            norm = self.make[2](outside, affine=True)
            layers += [self.make[0](i, outside, 3, s, 1, bias=False), norm, nn.LeakyReLU(0.01, inplace=True)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        sides: list[Tensor] = []
        for layer in self.down:
            x = layer(x)
            sides.append(x)
        for rise, layer, side in zip(self.rise, self.up, sides[-2::-1], strict=True):
            x = layer(torch.cat([rise(x), side], 1))
        return self.last(x)


def dice_loss(output: Tensor) -> Tensor:
    """Cross-entropy and the overlap of classes."""
    target = torch.zeros(output.shape[0], *output.shape[2:], dtype=torch.int64)
    chance = torch.softmax(output, 1)
    overlap = (chance * torch.zeros_like(chance)).sum() / (chance.sum() + 1)
    return F.cross_entropy(output, target) + 1 - overlap


def nnunet_2d(batch: int) -> Any:
    return NnUNet(2, (32, 64, 128, 256, 512, 512)), (torch.zeros(batch, 4, 192, 160),), dice_loss


def nnunet_3d(batch: int) -> Any:
    return NnUNet(3, (32, 64, 128, 256, 320, 320)), (torch.zeros(batch, 4, 128, 128, 128),), dice_loss


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015, arXiv 1505.04597): convolutions without padding, what goes across is cut."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512, 1024), classes: int = 2) -> None:
        super().__init__()
        self.down = nn.ModuleList(self.block(i, o) for i, o in zip((1, *widths[:-1]), widths, strict=True))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in pairs)
        self.up = nn.ModuleList(self.block(i, o) for i, o in pairs)
        self.last = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def block(inside: int, outside: int) -> nn.Sequential:
        return nn.Sequential(conv(inside, outside, 3, norm=False), conv(outside, outside, 3, norm=False))

    def forward(self, x: Tensor) -> Tensor:
        sides: list[Tensor] = []
        for at, layer in enumerate(self.down):
            x = layer(x if at == 0 else F.max_pool2d(x, 2))
            sides.append(x)
        for rise, layer, side in zip(self.rise, self.up, sides[-2::-1], strict=True):
            x = rise(x)
            edge = (side.shape[-1] - x.shape[-1]) // 2
            x = layer(torch.cat([side[:, :, edge : edge + x.shape[2], edge : edge + x.shape[3]], x], 1))
        return self.last(x)


def unet_572(batch: int) -> Any:
    return UNet(), (torch.zeros(batch, 1, 572, 572),), dice_loss


# classification


def _wide_se(name: str, image: int) -> Callable[[int], Any]:
    """NVIDIA's EfficientNet-WideSE: squeezed to a quarter of the widened channels, not of the block's own."""

    def build(batch: int) -> Any:
        module = timm.create_model(name, pretrained=False)
        for part in module.modules():
            if hasattr(part, "conv_reduce"):
                wide = part.conv_expand.out_channels
                part.conv_reduce, part.conv_expand = nn.Conv2d(wide, wide // 4, 1), nn.Conv2d(wide // 4, wide, 1)
        target = torch.zeros
        return (
            module,
            (torch.zeros(batch, 3, image, image),),
            lambda y: F.cross_entropy(y, target(y.shape[0], dtype=torch.int64)),
        )

    return build


efficientnet_widese_b0 = _wide_se("efficientnet_b0", 224)
efficientnet_widese_b4 = _wide_se("efficientnet_b4", 380)
