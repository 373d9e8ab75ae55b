"""Layer files of the oracle paper (Kahira et al. 2021, ParaDL): read and written.

    Dataset|ImageNet
    Input|1280000x3x226x226
    Model|VGG16
    CONV1_1|3x226x226|3x64x3x3|64x226x226|0.00012
    RELU1_1|64x226x226|64x64x0x0|64x226x226|0

`Input` is samples, channels and extents. A layer is its name, which tells its kind, the dims of x
(channels, extents), of w (channels, filters, kernel), of y, and its seconds per sample, forward and
backward. A layer without weights has zeros in w; a dense layer is a convolution as large as its input.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import TypeAlias

import msgspec

from foretell.errors import BadInput
from foretell.model.zoo._layer_window import window
from foretell.units import product

Shape: TypeAlias = tuple[int, ...]

LARGEST = 10**9
"""No dim, and no number of seconds, is larger than this."""

KINDS: tuple[tuple[str, str], ...] = (
    ("conv", "convolution"),
    ("apool", "average pool"),
    ("avgpool", "average pool"),
    ("pool", "max pool"),
    ("dropout", "dropout"),
    ("softmax", "softmax"),
    ("relu", "relu"),
    ("sigmoid", "sigmoid"),
    ("tanh", "tanh"),
    ("gelu", "gelu"),
    ("bn", "norm"),
    ("norm", "norm"),
    ("fc", "dense"),
    ("add", "add"),
)
"""A word in the name of a layer and the kind it stands for; the first that is found counts."""

EXAMPLES = {
    "convolution": "CONV1|3x226x226|3x64x3x3|64x226x226|0.00012",
    "dense": "FC6|512x8x8|512x4096x8x8|4096x1x1|0.0001",
    "max pool": "MPOOL1|64x226x226|0x0x2x2|64x113x113|0.00001",
    "average pool": "APOOL6|2048x7x7|0x0x7x7|2048x1x1|0.00001",
}
"""Right lines to show beside a wrong one."""

INPUT_EXAMPLE, EXAMPLE = "Input|1280000x3x226x226", EXAMPLES["convolution"]
SAME_EXAMPLE = "RELU1|64x226x226|64x64x0x0|64x226x226|0"


class LayerLine(msgspec.Struct, frozen=True):
    """One line: dims for one sample, and its seconds (0 if they are not known)."""

    name: str
    x: Shape
    w: Shape
    y: Shape
    seconds: float = 0.0

    @property
    def kind(self) -> str:
        return next((kind for word, kind in KINDS if word in self.name.lower()), "")

    @property
    def flops(self) -> int:
        """The paper's estimate of forward and backward, by which it shares a known total out."""
        taps, positions = product(self.w[2:]), product(self.y[1:])
        forward = {
            "convolution": 2 * product(self.w) * positions,
            "max pool": self.x[0] * self.y[0] * taps * positions,
            "average pool": self.x[0] * self.y[0] * taps * positions,
            "relu": product(self.y),
            "add": product(self.y),
            "dense": product(self.w),
            "norm": 4 * product(self.x),
        }
        return 2 * forward.get(self.kind, 0) + product(self.w)


class LayerFile(msgspec.Struct, frozen=True):
    """A data set and the layers of a model, in running order."""

    samples: int
    sample: Shape  # channels and extents
    layers: tuple[LayerLine, ...]
    model: str = ""
    dataset: str = ""

    @property
    def weights(self) -> int:
        """Sum of |w|; the files know no biases."""
        return sum(product(layer.w) for layer in self.layers)

    @property
    def inputs(self) -> int:
        """Sum of |x| for one sample, without ReLU and norm layers, whose memory is used again."""
        return sum(product(layer.x) for layer in self._counted())

    @property
    def outputs(self) -> int:
        """Sum of |y| for one sample, counted like `inputs`."""
        return sum(product(layer.y) for layer in self._counted())

    @property
    def seconds(self) -> float:
        """Seconds per sample of all layers."""
        return math.fsum(layer.seconds for layer in self.layers)

    def _counted(self) -> list[LayerLine]:
        return [layer for layer in self.layers if layer.kind not in ("relu", "norm")]

    def timed(self, seconds: float) -> LayerFile:
        """The same file with this total shared out in proportion to flops."""
        whole = max(1, sum(layer.flops for layer in self.layers))
        layers = (msgspec.structs.replace(layer, seconds=seconds * layer.flops / whole) for layer in self.layers)
        return msgspec.structs.replace(self, layers=tuple(layers))


def read(path: Path) -> LayerFile:
    """A layer file from disk."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(f"no such file: {path}", fix="a .net file") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"cannot be read: {problem}", where=str(path)) from None
    return parse(text, str(path))


def write(file: LayerFile) -> str:
    """The file as text, which `parse` reads back to the same value."""
    lines = [f"Dataset|{file.dataset}"] if file.dataset else []
    lines.append(f"Input|{_joined((file.samples, *file.sample))}")
    lines += [f"Model|{file.model}"] if file.model else []
    for layer in file.layers:
        lines.append("|".join((layer.name, *map(_joined, (layer.x, layer.w, layer.y)), repr(layer.seconds))))
    return "\n".join(lines) + "\n"


def _joined(shape: Shape) -> str:
    return "x".join(str(size) for size in shape)


def parse(text: str, where: str = "layer file") -> LayerFile:
    """A layer file from text; what is wrong is said with its line."""
    words: dict[str, str] = {}
    samples = 0
    made: list[Shape] = []  # what a layer may read: the input, and the outputs before it
    layers: list[LayerLine] = []
    for number, line in enumerate(text.splitlines(), start=1):
        content, place = line.strip(), f"{where}:{number}"
        if not content or content.startswith("#"):
            continue
        fields = [field.strip() for field in content.split("|")]
        head = fields[0].lower()
        if head in ("dataset", "model") and len(fields) == 2:
            words[head] = fields[1]
        elif head == "input":
            if made:
                raise BadInput("the input is said twice", where=place, fix=INPUT_EXAMPLE)
            samples, *sample = _input(fields, place)
            made.append(tuple(sample))
        elif not made:
            raise BadInput("a layer before the input is said", where=place, fix=INPUT_EXAMPLE)
        else:
            layers.append(_layer(fields, place))
            _check_order(layers[-1], made, place)
            made.append(layers[-1].y)
    if not layers:
        raise BadInput("no layers", where=where, fix=EXAMPLE if made else f"{INPUT_EXAMPLE} and layers after it")
    return LayerFile(samples, made[0], tuple(layers), words.get("model", ""), words.get("dataset", ""))


def _input(fields: list[str], place: str) -> Shape:
    if len(fields) != 2:
        raise BadInput(f"{len(fields)} fields where 2 belong", where=place, fix=INPUT_EXAMPLE)
    sizes = _shape(fields[1], place, INPUT_EXAMPLE)
    if not 2 <= len(sizes) <= 5 or min(sizes) < 1:
        what = f"{fields[1]!r} is not samples, channels and up to three extents"
        raise BadInput(what, where=place, fix=INPUT_EXAMPLE)
    return sizes


def _layer(fields: list[str], place: str) -> LayerLine:
    if len(fields) not in (4, 5):
        what = f"{len(fields)} {'field' if len(fields) == 1 else 'fields'} where name, x, w, y and seconds belong"
        raise BadInput(what, where=place, fix=EXAMPLE)
    x, w, y = (_shape(field, place, EXAMPLE) for field in fields[1:4])
    layer = LayerLine(fields[0], x, w, y, _seconds(fields[4], place) if len(fields) == 5 else 0.0)
    if not layer.kind:
        names = ", ".join(dict.fromkeys(word.upper() for word, _ in KINDS))
        raise BadInput(f"the name {layer.name!r} tells no kind of layer", where=place, fix=f"a name with {names}")
    problem = _problem(layer)
    if problem:
        fix = EXAMPLES.get(layer.kind, SAME_EXAMPLE)
        raise BadInput(f"{layer.name}: {problem}", where=place, fix=fix)
    return layer


def _shape(text: str, place: str, fix: str) -> Shape:
    parts = [part.strip() for part in re.split(r"[xX*×]", text)]  # noqa: RUF001
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise BadInput(f"{text!r} is not whole numbers with x between them", where=place, fix=fix)
    if any(len(part) > 18 or int(part) > LARGEST for part in parts):
        raise BadInput(f"{text!r} has a dim above {LARGEST:,}", where=place, fix=fix)
    return tuple(int(part) for part in parts)


def _seconds(text: str, place: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LARGEST:
        raise BadInput(f"{text!r} is not a number of seconds", where=place, fix=EXAMPLE)
    return seconds


def _problem(layer: LayerLine) -> str:
    """What does not fit the kind of the layer, if anything."""
    x, w, y = layer.x, layer.w, layer.y
    if min(x) == 0 or min(y) == 0:
        return "x and y have no empty dims"
    if len(x) > 4 or len(x) != len(y):
        return f"x has {len(x)} dims and y {len(y)}; channels and up to three extents belong"
    if len(w) != len(x) + 1:
        return f"w has {len(w)} dims where channels, filters and {len(x) - 1} for the kernel belong"
    if layer.kind == "convolution":
        return _convolution_problem(layer)
    if layer.kind == "dense":
        inputs = product((w[0], *w[2:]))
        if product(y[1:]) != 1 or w[1] != y[0]:
            return f"a dense layer of {w[1]} makes {_joined((w[1], *(1 for _ in y[1:])))}"
        return "" if inputs == product(x) else f"{inputs} weights a filter for {product(x)} inputs"
    if layer.kind.endswith("pool"):
        return _pooling_problem(layer)
    if x != y:
        return "x and y are the same"
    return "it has no weights, zeros belong in w" if product(w) else ""


def _convolution_problem(layer: LayerLine) -> str:
    (channels, *_), (inner, filters, *kernel) = layer.x, layer.w
    if not kernel or 0 in layer.w:
        return "a convolution has channels, filters and a kernel"
    if channels % inner:
        return f"{channels} channels are no multiple of the {inner} that a filter reads"
    if filters != layer.y[0]:
        return f"{filters} filters make {filters} channels, not {layer.y[0]}"
    if filters % (channels // inner):
        return f"{channels // inner} groups do not divide {filters} filters"
    return _window_problem(layer)


def _pooling_problem(layer: LayerLine) -> str:
    kernel = layer.w[2:]
    if not kernel or 0 in kernel or product(layer.w[:2]):
        return "w of a pooling is 0, 0 and its window"
    if layer.x[0] != layer.y[0]:
        return "a pooling keeps its channels"
    return _window_problem(layer)


def _window_problem(layer: LayerLine) -> str:
    before, kernel, after = layer.x[1:], layer.w[2:], layer.y[1:]
    if window(before, kernel, after, pooling=layer.kind != "convolution"):
        return ""
    return f"no stride and padding lead from {_joined(before)} to {_joined(after)} with a kernel of {_joined(kernel)}"


def _check_order(layer: LayerLine, made: list[Shape], place: str) -> None:
    """A layer reads something that is there: any shape made before it, or the last one reshaped."""
    if layer.x not in made and product(layer.x) != product(made[-1]):
        what = f"{layer.name} reads {_joined(layer.x)}, which nothing before it makes"
        raise BadInput(what, where=place, fix=f"x = {_joined(made[-1])}, what the line before makes")


def paths(file: LayerFile) -> list[str]:
    """A name for every layer that no other has: the second RELU is RELU.2."""
    seen: Counter[str] = Counter()
    found: list[str] = []
    for layer in file.layers:
        seen[layer.name] += 1
        found.append(layer.name if seen[layer.name] == 1 else f"{layer.name}.{seen[layer.name]}")
    return found
