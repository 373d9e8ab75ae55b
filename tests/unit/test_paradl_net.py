"""The oracle paper's layer files: reading, writing, refusing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.model.fold import unfold
from foretell.model.importers import paradl_net
from foretell.model.importers.paradl_net import LayerFile, LayerLine, parse, write
from foretell.model.operators.convolution import extent
from foretell.model.zoo._layer_file import KINDS
from foretell.model.zoo._layer_window import Window, window
from law_examples import reached

TEXT = """
# a small network, as people write them
Dataset|Digits
Input | 60000 x 1 x 28 x 28
Model|Small

CONV1|1x28x28|1*6*5*5|6x28x28|0.5
RELU|6x28x28|6x6x0x0|6x28x28
MPOOL|6x28x28|0x0x2x2|6x14x14|0.125
conv2|6X14X14|6x16x5x5|16x10x10|0.25
RELU|16x10x10|16x16x0x0|16x10x10|0
#|0
APOOL|16x10x10|0x0x10x10|16x1x1|0
FC|16x1x1|16x10x1x1|10x1x1|1e-3
"""


def test_reads_what_people_write() -> None:
    file = parse(TEXT)
    assert (file.dataset, file.model, file.samples, file.sample) == ("Digits", "Small", 60_000, (1, 28, 28))
    assert [layer.kind for layer in file.layers] == [
        "convolution", "relu", "max pool", "convolution", "relu", "average pool", "dense",
    ]  # fmt: skip
    assert file.layers[0] == LayerLine("CONV1", (1, 28, 28), (1, 6, 5, 5), (6, 28, 28), 0.5)
    assert file.seconds == 0.876
    assert file.weights == 150 + 2400 + 160
    assert file.inputs == 784 + 4704 + 1176 + 1600 + 16


def test_becomes_a_graph() -> None:
    graph = paradl_net.graph(parse(TEXT), batch=3)
    assert (graph.name, graph.batch, graph.source) == ("Small", 3, "paradl")
    nodes = unfold(graph.blocks).nodes
    assert [node.path for node in nodes] == ["CONV1", "RELU", "MPOOL", "conv2", "RELU.2", "APOOL", "FC"]
    first, second = nodes[0].operator, nodes[3].operator
    assert (first.stride, first.padding) == ((1, 1), (2, 2))
    assert (second.stride, second.padding) == ((1, 1), (0, 0))


def test_groups_shapes_that_come_again_and_reshaping() -> None:
    lines = (
        "Input|10x8x6x6",
        "CONVa|8x6x6|2x8x3x3|8x6x6|0",  # four groups
        "CONVb|8x6x6|8x4x1x1|4x6x6|0",
        "CONVc|8x6x6|8x8x1x1|8x6x6|0",  # reads what CONVa made, beside CONVb
        "ADD|8x6x6|8x8x0x0|8x6x6|0",
        "FC|288x1x1|288x5x1x1|5x1x1|0",  # reads it flat
    )
    nodes = unfold(paradl_net.graph(parse("\n".join(lines))).blocks).nodes
    assert nodes[0].sizes()["group"] == 4
    assert nodes[2].inputs[0].tensor == nodes[0].outputs[0]
    assert [node.kind for node in nodes] == ["convolution"] * 3 + ["elementwise", "view", "matmul"]


def test_a_shortcut_joins_what_entered_the_block() -> None:
    lines = (
        "Input|10x8x6x6",
        "MPOOL|8x6x6|0x0x2x2|8x3x3|0",
        *("CONV|8x3x3|8x8x3x3|8x3x3|0", "RELU|8x3x3|8x8x0x0|8x3x3|0") * 2,
        "ADD|8x3x3|8x8x0x0|8x3x3|0",
    )
    nodes = unfold(paradl_net.graph(parse("\n".join(lines))).blocks).nodes
    shortcut = next(operand.tensor for operand in nodes[-1].inputs if operand.name == "z")
    assert shortcut == nodes[0].outputs[0]


def test_time_is_shared_out_by_flops() -> None:
    timed = parse(TEXT).timed(2.0)
    convolution, dense = timed.layers[0], timed.layers[-1]
    assert convolution.flops == 2 * (2 * 150 * 784) + 150
    assert dense.flops == 2 * 160 + 160
    assert timed.layers[1].flops == 2 * 4704
    assert timed.layers[2].flops == 2 * (6 * 6 * 4 * 196)
    assert timed.seconds == pytest.approx(2.0)
    assert convolution.seconds / dense.seconds == pytest.approx(convolution.flops / dense.flops)


HEAD = "Input|10x3x8x8\n"
BAD = [
    ("", "no layers", "layer file"),
    ("Input|10x3x8x8\n", "no layers", "layer file"),
    ("CONV|3x8x8|3x4x3x3|4x8x8|0", "before the input", ":1"),
    ("Input|10", "not samples", ":1"),
    ("Input|0x3x8x8", "not samples", ":1"),
    ("Input|10x3x8x8|4", "3 fields", ":1"),
    (HEAD + HEAD, "said twice", ":2"),
    (HEAD + "CONV", "1 field where", ":2"),
    (HEAD + "CONV|3x8x8|3x4x3x3", "3 fields where", ":2"),
    (HEAD + "CONV|3x8x8|3x4x3x3|4x8x8|0|0", "6 fields where", ":2"),
    (HEAD + "CONV|3x8|3x4x3x3|4x8x8|0", "x has 2 dims and y 3", ":2"),
    (HEAD + "CONV|3xax8|3x4x3x3|4x8x8|0", "not whole numbers", ":2"),
    (HEAD + "CONV|3x8x-8|3x4x3x3|4x8x8|0", "not whole numbers", ":2"),
    (HEAD + "CONV|3x8x8|3x4x3x3|4x8x99999999999|0", "above 1,000,000,000", ":2"),
    (HEAD + "CONV|3x8x8|3x4x3|4x8x8|0", "w has 3 dims", ":2"),
    (HEAD + "CONV|3x8x8|2x4x3x3|4x8x8|0", "no multiple", ":2"),
    (HEAD + "CONV|3x8x8|1x4x3x3|4x8x8|0", "3 groups do not divide 4", ":2"),
    (HEAD + "CONV|3x8x8|3x5x3x3|4x8x8|0", "5 filters make 5 channels", ":2"),
    (HEAD + "CONV|3x8x8|3x4x0x0|4x8x8|0", "a kernel", ":2"),
    (HEAD + "CONV|3x8x8|3x4x3x3|4x80x80|0", "no stride and padding", ":2"),
    (HEAD + "CONV|3x0x8|3x4x3x3|4x8x8|0", "no empty dims", ":2"),
    (HEAD + "CONV|5x8x8|5x4x3x3|4x8x8|0", "reads 5x8x8, which nothing", ":2"),
    (HEAD + "\nCONV|3x8x8|3x4x3x3|4x8x8|fast", "'fast' is not a number of seconds", ":3"),
    (HEAD + "CONV|3x8x8|3x4x3x3|4x8x8|nan", "'nan' is not a number of seconds", ":2"),
    (HEAD + "CONV|3x8x8|3x4x3x3|4x8x8|-1", "'-1' is not a number of seconds", ":2"),
    (HEAD + "FC|3x8x8|3x5x8x7|5x1x1|0", "168 weights a filter for 192 inputs", ":2"),
    (HEAD + "FC|3x8x8|3x5x8x8|6x1x1|0", "a dense layer of 5 makes 5x1x1", ":2"),
    (HEAD + "POOL|3x8x8|0x0x2x2|4x4x4|0", "keeps its channels", ":2"),
    (HEAD + "POOL|3x8x8|3x3x2x2|3x4x4|0", "w of a pooling", ":2"),
    (HEAD + "RELU|3x8x8|3x3x0x0|3x8x7|0", "the same", ":2"),
    (HEAD + "RELU|3x8x8|3x3x1x1|3x8x8|0", "no weights", ":2"),
    (HEAD + "WARP|3x8x8|3x3x0x0|3x8x8|0", "tells no kind", ":2"),
]


@pytest.mark.parametrize(("text", "what", "where"), BAD)
def test_bad_lines_are_said_with_place_and_example(text: str, what: str, where: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text)
    assert what in caught.value.what
    assert caught.value.where.endswith(where)
    assert caught.value.fix


def test_files(tmp_path: Path) -> None:
    good, binary = tmp_path / "small.net", tmp_path / "binary.net"
    good.write_text(TEXT)
    binary.write_bytes(b"\xff\xfe|")
    assert paradl_net.load(good, 2).name == "small"
    for path in (binary, tmp_path / "none.net", tmp_path):
        with pytest.raises(BadInput):
            paradl_net.load(path)
    good.write_text("Input|1x1\nCONV|")
    with pytest.raises(BadInput) as caught:
        paradl_net.load(good)
    assert caught.value.where == f"{good}:2"


shapes = st.lists(st.integers(0, 12), min_size=1, max_size=5).map(lambda sizes: "x".join(map(str, sizes)))
words = st.sampled_from([word.upper() for word, _ in KINDS] + ["", "Input", "#", "Model", "WARP"])
lines = st.builds(
    lambda name, sizes, seconds: "|".join([name, *sizes, seconds]),
    words,
    st.lists(shapes, max_size=4),
    st.sampled_from(["0", "0.5", "1e-9", "x", ""]),
)


@st.composite
def files(draw: st.DrawFn) -> LayerFile:
    """Right files: layers in a row, each reading what the one before it makes."""
    space = draw(st.integers(1, 3))
    sample = (draw(st.integers(1, 6)), *(draw(st.integers(4, 12)) for _ in range(space)))
    shape, layers = sample, list[LayerLine]()
    seconds = st.floats(0, 1e3)
    for at in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["CONV", "MPOOL", "APOOL", "RELU", "BNORM", "ADD", "DROPOUT"]))
        channels, *sizes = shape
        if kind in ("CONV", "MPOOL", "APOOL"):
            kernel = draw(st.integers(1, min(3, *sizes)))
            stride = draw(st.integers(1, 2))
            filters = draw(st.integers(1, 6)) if kind == "CONV" else channels
            w = (channels, filters) if kind == "CONV" else (0, 0)
            after = (filters, *(extent(size, kernel, stride, 0) for size in sizes))
            layers.append(LayerLine(f"{kind}{at}", shape, (*w, *[kernel] * space), after, draw(seconds)))
        else:
            layers.append(LayerLine(f"{kind}{at}", shape, (channels, channels, *[0] * space), shape, draw(seconds)))
        shape = layers[-1].y
    layers.append(LayerLine("FC", shape, (shape[0], 3, *shape[1:]), (3, *[1] * space), draw(seconds)))
    return LayerFile(draw(st.integers(1, 100)), sample, tuple(layers), "m", draw(st.sampled_from(["", "d"])))


@pytest.mark.reaches(read=3, refused=3)
@given(files(), st.lists(lines | st.text(max_size=30), max_size=2), st.integers(0, 8))
def test_any_text_is_read_or_refused(file: LayerFile, found: list[str], at: int) -> None:
    right = write(file).split("\n")
    text = "\n".join([*right[:at], *found, *right[at:]])
    try:
        file = parse(text)
    except BadInput as problem:
        assert problem.where
        assert problem.fix
        reached("refused")
    else:
        reached("read")
        assert parse(write(file)) == file
        paradl_net.graph(file)


@given(files())
def test_right_files_come_back_and_become_graphs(file: LayerFile) -> None:
    assert parse(write(file)) == file
    nodes = unfold(paradl_net.graph(file, batch=2).blocks).nodes
    assert len(nodes) == len(file.layers)


def test_least_padding_and_stride() -> None:
    assert window((226,), (11,), (54,), pooling=False) == Window((4,), (0,))
    assert window((226,), (7,), (113,), pooling=False) == Window((2,), (3,))
    assert window((113,), (2,), (57,), pooling=True) == Window((2,), (0,), ceil=True)
    assert window((113,), (3,), (56,), pooling=True) == Window((2,), (0,))
    assert window((8, 9), (3, 3), (8, 5), pooling=False) == Window((1, 2), (1, 1))
    assert window((8,), (3,), (11,), pooling=False) is None


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_every_window_that_fits_is_found(size: int, kernel: int, stride: int, padding: int, pooling: bool) -> None:
    padding = min(padding, (kernel - 1) // 2 if pooling else kernel - 1)
    assume(size + 2 * padding >= kernel)
    wanted = extent(size, kernel, stride, padding)
    found = window((size,), (kernel,), (wanted,), pooling=pooling)
    assert found is not None
    assert extent(size, kernel, *found.stride, *found.padding, ceil=found.ceil) == wanted
