"""The transformer for translation: published sizes, PyTorch's own, and agreement with PyTorch."""

import pytest
import torch
from torch import nn

from agreement import assert_agrees, predicted
from foretell import modules
from foretell.model import zoo
from foretell.modules.transformer import sines

# Vaswani et al. 2017, arXiv 1706.03762, table 3, in millions; its count of the big one leaves out biases of attention
PUBLISHED = {"transformer-base": 65e6, "transformer-big": 213e6}

SMALL = "layers=2,hidden=64,heads=4,ffn=128,vocab=500,seq=48"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: float) -> None:
    assert predicted(name).parameters == pytest.approx(count, rel=0.03)


@pytest.mark.parametrize(("name", "hidden", "heads"), [("transformer-base", 512, 8), ("transformer-big", 1024, 16)])
def test_parameters_are_those_of_pytorchs_own(name: str, hidden: int, heads: int) -> None:
    """But for the token table, and the norms that PyTorch puts after each stack."""
    with torch.device("meta"):
        theirs = nn.Transformer(hidden, heads, 6, 6, 4 * hidden, batch_first=True)
    count = sum(one.numel() for one in theirs.parameters()) - 2 * 2 * hidden
    assert predicted(name).parameters == count + 37000 * hidden


@pytest.mark.parametrize(
    "spec",
    [
        "transformer-base:seq=32,layers=2",
        f"transformer:{SMALL},target_seq=16,decoder_layers=3",
        f"transformer:{SMALL},dtype=bf16",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.01 if "bf16" in spec else 0.0)


def test_layers_fold() -> None:
    """Of the decoder all but the first, after which gradients of the memory are added up."""
    assert {6, 5} < {block.times for block in zoo.load("transformer-big").blocks}


def test_places_differ_in_every_row() -> None:
    found = sines(100, 64)
    assert found[0].tolist() == [0.0, 1.0] * 32
    assert torch.cdist(found, found).fill_diagonal_(1.0).min() > 0.1


def test_decoder_does_not_see_the_future() -> None:
    torch.manual_seed(0)
    model = modules.build(f"transformer:{SMALL}")
    tokens, target_tokens = modules.example(f"transformer:{SMALL}").inputs
    before = model(tokens, target_tokens)
    changed = target_tokens.clone()
    changed[:, 30:] = (changed[:, 30:] + 1) % 500
    assert torch.equal(before[:, :30], model(tokens, changed)[:, :30])
