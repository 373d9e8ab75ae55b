"""Which way of counting gives LeNet the work 665,832 and the depth 41 that Ben-Nun and Hoefler print?

The appendix of "Demystifying Parallel and Distributed Deep Learning" (arXiv 1802.09941v2) gives W and D of
LeNet without the formulas. This tries every combination of the choices below and prints those that fit.

    python studies/lenet_work_depth/search.py
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

WORK, DEPTH = 665_832, 41


class Net(NamedTuple):
    """LeNet-5: two 5x5 convolutions of 6 and 16 maps, each with 2x2 pooling, and three dense layers."""

    name: str
    inputs: tuple[int, int]  # positions along one side that the convolutions read
    outputs: tuple[int, int]  # ... and make
    features: int  # what the first dense layer reads
    pairs: int = 96  # input and output maps that the second convolution joins


NETS = (
    Net("28 pixels, padded by 2 (as 32 pixels)", (28, 14), (28, 10), 400),
    Net("32 pixels, the border counted as input", (32, 14), (28, 10), 400),
    Net("28 pixels, not padded", (28, 12), (24, 8), 256),
    Net("28 pixels, padded by 2, C3 by its table", (28, 14), (28, 10), 400, 60),
    Net("28 pixels, not padded, C3 by its table", (28, 12), (24, 8), 256, 60),
    Net("28 pixels, both convolutions padded by 2", (28, 14), (28, 14), 784),
)
DENSE = (120, 84, 10)

WORK_CHOICES: dict[str, tuple[str, ...]] = {
    "convolutions at": ("outputs", "inputs"),
    "a sum of n products": ("n", "2n-1", "2n"),
    "poolings at": ("none", "outputs", "inputs"),
    "a window of k": ("k-1", "k", "k+1", "k+2"),
    "biases": ("none", "convolutions", "all", "all but the last"),
    "activations": ("none", "convolutions", "all", "all but the last", "poolings and dense"),
    "softmax of 10": ("none", "10", "30"),
    "passes": ("forward", "forward and weight gradients", "forward and both gradients"),
}

DEPTH_CHOICES: dict[str, tuple[str, ...]] = {
    "a convolution's tree": ("a tree a factor", "one tree"),
    "a pooling's tree": ("none", "one level", "a tree a factor"),
    "a dense layer's tree": ("rounded up", "rounded", "added, then rounded up"),
    "products": ("no level", "a level"),
    "activations": ("no level", "a level each"),
    "softmax of 10": ("none", "a tree"),
}


def dense_pairs(net: Net) -> list[tuple[int, int]]:
    """(outputs, inputs) of the dense layers."""
    return list(zip(DENSE, (net.features, *DENSE[:-1]), strict=True))


def counted_outputs(net: Net, what: str) -> int:
    """Elements that a bias or an activation is counted for."""
    maps = 6 * net.outputs[0] ** 2 + 16 * net.outputs[1] ** 2
    pooled = 6 * (net.outputs[0] // 2) ** 2 + 16 * (net.outputs[1] // 2) ** 2
    return {
        "none": 0,
        "convolutions": maps,
        "all": maps + sum(DENSE),
        "all but the last": maps + sum(DENSE[:-1]),
        "poolings and dense": pooled + sum(DENSE[:-1]),
    }[what]


def work(net: Net, choice: dict[str, str]) -> int:
    """Vertices by this way of counting."""
    sides = net.inputs if choice["convolutions at"] == "inputs" else net.outputs
    layers = [(6 * sides[0] ** 2, 25), *dense_pairs(net)]
    products = sum(outputs * inputs for outputs, inputs in layers) + net.pairs * 25 * sides[1] ** 2
    sums = sum(outputs for outputs, _ in layers) + 16 * sides[1] ** 2
    total = {"n": products, "2n": 2 * products, "2n-1": 2 * products - sums}[choice["a sum of n products"]]
    if choice["passes"] != "forward":
        first = 6 * 25 * sides[0] ** 2  # nobody needs the gradient of the image
        total = 2 * total if "weight" in choice["passes"] else 3 * total - first
    windows = {"none": 0, "outputs": 1, "inputs": 4}[choice["poolings at"]]
    pooled = 6 * (net.outputs[0] // 2) ** 2 + 16 * (net.outputs[1] // 2) ** 2
    total += windows * pooled * {"k-1": 3, "k": 4, "k+1": 5, "k+2": 6}[choice["a window of k"]]
    total += counted_outputs(net, choice["biases"]) + counted_outputs(net, choice["activations"])
    return total + (0 if choice["softmax of 10"] == "none" else int(choice["softmax of 10"]))


def depth(net: Net, choice: dict[str, str]) -> int:
    """The longest path by this way of counting; the counts of input maps are 1 and 6."""

    def tree(*factors: int) -> int:
        if choice["a convolution's tree"] == "one tree":
            return math.ceil(math.log2(math.prod(factors)))
        return sum(math.ceil(math.log2(factor)) for factor in factors)

    total = tree(1, 5, 5) + tree(6, 5, 5)
    total += 2 * {"none": 0, "one level": 1, "a tree a factor": 2}[choice["a pooling's tree"]]
    logs = [math.log2(inputs) for _, inputs in dense_pairs(net)]
    total += {
        "rounded up": sum(math.ceil(log) for log in logs),
        "rounded": sum(round(log) for log in logs),
        "added, then rounded up": math.ceil(sum(logs)),
    }[choice["a dense layer's tree"]]
    total += 5 if choice["products"] == "a level" else 0
    total += 4 if choice["activations"] == "a level each" else 0
    return total + (4 if choice["softmax of 10"] == "a tree" else 0)


def combinations(choices: dict[str, tuple[str, ...]]) -> Iterator[dict[str, str]]:
    """Every combination; one that only renames a choice which is not used is left out."""
    for values in product(*choices.values()):
        choice = dict(zip(choices, values, strict=True))
        if choice.get("poolings at") == "none" and choice["a window of k"] != "k-1":
            continue
        yield choice


def said(choice: dict[str, str]) -> str:
    """The choices that are not plain."""
    plain = {"none", "forward", "no level"}
    return "; ".join(f"{key}: {value}" for key, value in choice.items() if value not in plain)


def print_work() -> None:
    """All conventions whose work is the printed one, and how the plain ones come out."""
    tried = [(net, choice, work(net, choice)) for net in NETS for choice in combinations(WORK_CHOICES)]
    near = Counter(abs(found - WORK) <= 1000 for _, _, found in tried)[True]
    print(f"work: {len(tried):,} ways of counting, {near} within 1,000 of {WORK:,}, so {near / 2001:.1f} by chance")
    for net, choice, found in tried:
        if found == WORK:
            print(f"  = {found:,}  {net.name}: {said(choice)}")
    print("plain counts (products only, at outputs):")
    for net in NETS:
        choice = {key: values[0] for key, values in WORK_CHOICES.items()}
        print(f"    {work(net, choice):,}  {net.name}")


def print_depth() -> None:
    """All conventions whose depth is the printed one, for the network whose work fits."""
    tried = [(choice, depth(NETS[0], choice)) for choice in combinations(DEPTH_CHOICES)]
    print(f"depth: {len(tried)} ways of counting for {NETS[0].name}")
    for choice, found in tried:
        if found == DEPTH:
            print(f"  = {found}  {said(choice)}")
    table = {**{key: values[0] for key, values in DEPTH_CHOICES.items()}, "a pooling's tree": "a tree a factor"}
    print(f"    {depth(NETS[0], table)}  {said(table)} (Table 6)")


def print_layers() -> None:
    """The work that fits, layer by layer."""
    rows = {
        "C1  6 * 1 * 28 * 28 * 5 * 5": 6 * 28 * 28 * 25,
        "S2  6 * 28 * 28 * (2 * 2 - 1)": 6 * 28 * 28 * 3,
        "C3  16 * 6 * 14 * 14 * 5 * 5": 16 * 6 * 14 * 14 * 25,
        "S4  16 * 10 * 10 * (2 * 2 - 1)": 16 * 10 * 10 * 3,
        "C5  120 * 400": 120 * 400,
        "F6  84 * 120": 84 * 120,
        "out 10 * 84": 10 * 84,
    }
    for name, value in rows.items():
        print(f"  {name:<32}{value:>9,}")
    print(f"  {'sum':<32}{sum(rows.values()):>9,}")


if __name__ == "__main__":
    print_work()
    print("layer by layer:")
    print_layers()
    print_depth()
