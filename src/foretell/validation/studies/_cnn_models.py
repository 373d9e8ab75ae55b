"""Which model of the zoo a published run of a vision model or BERT trained."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from foretell.model import zoo
from foretell.model.importers import packages
from foretell.validation.study import Line, Unmapped, spec, stated

ORACLE_PAPER: Final = ("pdlf", "pdll", "pdlt")
"""The oracle paper's own runs, on ABCI. Its scripts keep all activations, as its memory model assumes."""


def source(line: Line) -> str:
    """The prefix of an id."""
    return line["id"].split("-")[0]


class StudyModel(NamedTuple):
    """In the zoo's words, with its sequence or image."""

    text: str
    seq: int = 0
    image: int = 0

    @property
    def family(self) -> str:
        """What a subset is called: a family of the zoo, or that the model was traced."""
        name = self.text.partition(":")[0]
        return re.split(r"[\d-]", name)[0] if zoo.canonical(name).partition(":")[0] in zoo.names() else "traced"


VISION: Final = {
    "resnet-50 v1.5": "resnet50",
    "resnet-50": "resnet50",
    "resnet-101": "resnet101",
    "resnet-152": "resnet152",
    "resnet18": "resnet18",
    "resnet-18": "resnet18",
    "resnet34": "resnet34",
    "resnet-34": "resnet34",
    "resnet50": "resnet50",
    "resnet101": "resnet101",
    "resnet152": "resnet152",
    "gluon_resnet101_v1b": "resnet101",
    "gluon_resnet152_v1b": "resnet152",
    "gluon_resnet50_v1b": "resnet50",
    "tv_resnet50": "resnet50",
    "resnext-50 32x4d": "resnext50-32x4d",
    "resnext50_32x4d": "resnext50-32x4d",
    "resnext-101 32x4d": "resnext101-32x8d:width=4",
    "resnext101_32x4d": "resnext101-32x8d:width=4",
    "resnext-101 32x8d": "resnext101-32x8d",
    "resnext101_32x8d": "resnext101-32x8d",
    "wide_resnet50_2": "wide-resnet50-2",
    "wide_resnet101_2": "wide-resnet101-2",
    "vgg11": "vgg11",
    "vgg13": "vgg13",
    "vgg16": "vgg16",
    "vgg-16": "vgg16",
    "vgg19": "vgg19",
    "vgg-19": "vgg19",
    "vgg16_bn": "vgg16-bn",
    "vgg-a (oxfordnet a)": "vgg11",
    "alexnet (owt)": "alexnet",
    "inceptionv3": "inception-v3:aux=false",
    "inception_v3": "inception-v3:aux=false",
    "densenet121": "densenet121",
    "densenet161": "densenet161",
    "densenet169": "densenet169",
    "densenet201": "densenet201",
    "mobilenetv2_100": "mobilenet-v2",
    "mobilenetv3_large_100": "mobilenet-v3-large",
    "convnext-l": "convnext-large",
    "convnext_large": "convnext-large",
    "convnext_base": "convnext-base",
    "convnext_small": "convnext-small",
    "convnext_tiny": "convnext-tiny",
    "vit_base_patch16_224": "vit-b-16",
    "deit_base_patch16_224": "vit-b-16",
    "vit_base_patch32_224": "vit-b-32",
    "vit_large_patch16_224": "vit-l-16",
    "vit_large_patch32_384": "vit-l-32",
    "vit_small_patch16_224": "vit:hidden=384,heads=6,ffn=1536",
    "deit_small_patch16_224": "vit:hidden=384,heads=6,ffn=1536",
    "vit_tiny_patch16_224": "vit:hidden=192,heads=3,ffn=768",
    "deit_tiny_patch16_224": "vit:hidden=192,heads=3,ffn=768",
    "swin_base_patch4_window7_224": "swin-b",
    "swin_small_patch4_window7_224": "swin-s",
    "swin_tiny_patch4_window7_224": "swin-t",
    "3d u-net (kits19)": "unet3d-mlperf",
    "resnext-50": "resnext50-32x4d",
    "resnext-101": "resnext101-32x8d:width=4",
    "resnext-152": "resnext101-32x8d:width=4,blocks=3/8/36/3",
    "alexnet": "alexnet",
    "se-resnext-101 32x4d": "timm/seresnext101_32x4d",
    "efficientnetv2-s": "timm/tf_efficientnetv2_s",
    "focalnet-b (lrf)": "timm/focalnet_base_lrf",
    "regnety-128gf": "torchvision/regnet_y_128gf",
    "inception-v1": "torchvision/googlenet",
    "mobilenet_v2": "mobilenet-v2",
    "efficientdet-d0": "efficientdet-d0",
    "ssd300 resnet-50": "ssd300-resnet50",
    "ssd320 resnet-50": "ssd320-resnet50",
    "ssd resnet-34": "ssd300-resnet34",
    "retinanet resnext-50": "retinanet-resnext50",
    "nnu-net 2d": "nnunet-2d",
    "nnu-net 3d": "nnunet-3d",
    "u-net 2d": "unet-572",
    "efficientnet-widese-b0": "efficientnet-widese-b0",
    "efficientnet-widese-b4": "efficientnet-widese-b4",
}
"""Names of sources (lower case) to the zoo's, or to a package's. EfficientNets and RegNets follow a rule, BERT and
CosmoFlow their own; other names are timm's or torchvision's own."""

FORMER: Final = {"swin_v2_cr_": "swinv2_cr_"}
"""Beginnings of names that timm has changed without keeping the old ones."""

TORCHVISION: Final = ("ryu",)
"""Sources that ran torchvision's models (ryujaehun/pytorch-gpu-benchmark, benchmark_models.py)."""

FUSED_FROM: Final = 2023
"""Before PyTorch 2, scores of attention were written out."""

STRIDED_1X1: Final = ("tfb", *ORACLE_PAPER)
"""Sources whose ResNets stride in the first 1x1 convolution of a block (TensorFlow's benchmarks, Chainer)."""

ORACLE_FILES: Final = {("VGG16", 226): "vgg16-paradl"}
"""The oracle paper's own layer file where the network that ran is like it: VGG16 there has 169 million parameters. Its
file of ResNet-50 lacks the projections of the shortcuts, which the network that ran has (ankahira/paraDL)."""


SEQUENCES: Final = {"Transformer-XL base": 192, "Transformer-XL large": 384}
"""Tokens that each sequence goes on by in a step (NVIDIA DeepLearningExamples, wt103_base.yaml, wt103_large.yaml)."""

SENTENCE: Final = 32
"""Tokens of a sentence where batches are so many tokens, of lengths that vary: all that grows with it is attention, a
hundredth of the work."""

TRANSLATION: Final = {"Transformer-big": "transformer-big"}
"""Models whose batches and rates are in tokens of one language (fairseq, --max-tokens)."""


def model_of(line: Line) -> StudyModel:
    """What a line trained."""
    name = stated(line, "model")
    if name in TRANSLATION:
        return StudyModel(spec(TRANSLATION[name], seq=SENTENCE, dropout=0.1), seq=SENTENCE)
    if name in SEQUENCES:
        return StudyModel(name.lower().replace(" ", "-"), seq=SEQUENCES[name])
    known: dict[str, Callable[[Line], StudyModel]] = {"BERT-base": _bert, "BERT-large": _bert, "CosmoFlow": _cosmoflow}
    return known.get(name, _vision)(line)


SIDE: Final = r"[0-9]{1,9}"

HEAD: Final = " + class fc"
"""How a table names a network for faces with the matrix that has a row for each person."""


def _persons(line: Line) -> str:
    """How many classes such a head has."""
    said = re.search(rf"\b({SIDE}) classes", line["task_dataset"])
    return f",classes={said[1]}" if said and line["model"].lower().endswith(HEAD) else ""


def _vision(line: Line) -> StudyModel:
    name, sides = line["model"], _sides(line["input_shape"])
    image = sides[-1] if len(sides) > 2 and len(set(sides[1:])) == 1 else 0
    if source(line) in ORACLE_PAPER and (name, image) in ORACLE_FILES:
        return StudyModel(ORACLE_FILES[name, image], image=image)
    base = _base(line)
    if not base:
        raise Unmapped(f"no model is known as {re.sub(r' *[(].*', '', name)}")
    if f"{packages.OWN}/{base}" in packages.index().models:  # traced for the image that was published
        return StudyModel(base, image=sides[-1])
    if not image:
        raise Unmapped("the size of the input is not one number")
    strided = base in ("resnet50", "resnet101", "resnet152") and source(line) in STRIDED_1X1
    scores = "/" in base.partition(":")[0] and int(line.get("year") or FUSED_FROM) < FUSED_FROM
    fields = (
        f"image={image}{',strided_1x1=true' if strided else ''}{',attention=math' if scores else ''}{_persons(line)}"
    )
    return StudyModel(f"{base}{',' if ':' in base else ':'}{fields}", image=image)


CHANNELS: Final = 4
"""At most, of an image."""


def _sides(text: str) -> list[int]:
    """Channels and sides: 3x224x224, also written 224, 224x224, (3, 224, 224) or 224x224x3."""
    found = [int(side) for side in re.findall(r"\d+", text) if re.fullmatch(SIDE, side)]
    if len(found) == 3 and found[-1] <= CHANNELS < found[0]:
        return [found[-1], *found[:-1]]
    return [3, *(found * 2 if len(found) == 1 else found)] if 0 < len(found) < 3 else found


def _base(line: Line) -> str:
    """The zoo's name, or else the package's; empty: nobody knows it."""
    name = line["model"].lower().removesuffix(HEAD)
    amoeba = re.fullmatch(rf"amoebanet-d \(({SIDE}), ?({SIDE})\)", name)
    if amoeba:
        return spec("amoebanet", repeats=int(amoeba[1]) // 3, filters=int(amoeba[2]))
    efficient = re.fullmatch(r"(?:tf_)?efficientnet[_-](b[0-7])", name)
    if efficient:
        return f"efficientnet-{efficient[1]}"
    if name in VISION:
        return VISION[name]
    regnet = re.fullmatch(r"regnet([xy])-([\d.]+)([mg])f", name)
    if regnet:
        return f"timm/regnet{regnet[1]}_{float(regnet[2]) * (10 if regnet[3] == 'g' else 0.01):03.0f}"
    for old, new in FORMER.items():
        name = new + name.removeprefix(old) if name.startswith(old) else name
    found = packages.parse(f"torchvision/{name}" if source(line) in TORCHVISION else name)
    if found:
        return VISION.get(found.name) or found.text
    member = zoo.canonical(name)
    of_package = packages.parse(name.replace("-", "_"))
    return member if member.partition(":")[0] in zoo.names() else of_package.text if of_package else ""


SHORT: Final = 128
"""Tokens above which NVIDIA's scripts of PyTorch and PaddlePaddle sort sequences by length (DeepLearningExamples, BERT,
scripts/run_pretraining.sh, configs/pretrain_config.sh: phase2_bin_size is 64): most are shorter than is stated."""

BINNED: Final = "sequences are in bins of 64 tokens, their lengths not stated"


def _bert(line: Line) -> StudyModel:
    """Pretraining has 20 masked places of 128 tokens, 80 of 512; fine-tuning hardly has a head."""
    size = line["model"].lower()
    length = re.fullmatch(rf"seq ({SIDE})", line["input_shape"])
    if not length:
        raise Unmapped("the length of the sequence is not stated")
    seq, task = int(length[1]), line["task_dataset"].lower()
    binned = re.search("PyTorch|PaddlePaddle", line["framework"]) and "pre-training" in task and seq > SHORT
    if source(line) == "dle" and binned:
        raise Unmapped(BINNED)
    kernel = None if source(line) == "mil" else "math"  # before PyTorch 2 scores were written out
    if "pre-training" in task:
        masked = {128: 20, 512: 80}.get(seq)
        if masked is None:
            raise Unmapped("masked places a sequence are not known for this length")
        text = spec(f"{size}-pretraining", seq=seq, predictions=masked, dropout=0.1, attention=kernel)
    elif "mlm" in task:
        text = spec(f"{size}-mlm", seq=seq, dropout=0.1, attention=kernel)
    elif "squad" in task:
        text = spec(size, seq=seq, pooler=False, dropout=0.1, attention=kernel)
    else:
        raise Unmapped(f"BERT for {line['task_dataset']} is not in the zoo")
    return StudyModel(text, seq=seq)


def _cosmoflow(line: Line) -> StudyModel:
    side = line["input_shape"].split("x")[-1]
    if side == "512":
        return StudyModel("cosmoflow512-paradl", image=512)
    if not re.fullmatch(SIDE, side):
        raise Unmapped("the side of a volume is not stated")
    return StudyModel(spec("cosmoflow", image=side), image=int(side))
