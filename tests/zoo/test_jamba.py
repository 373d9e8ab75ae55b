"""Jamba: its published sizes, agreement with PyTorch, which layers attend, training."""

import pytest
import torch

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.jamba import PRESETS, Jamba
from foretell.modules._selective_scan import SelectiveScanLayer
from language import assert_causal, assert_trains

# Of the class of transformers; the papers say 52 billion, of which a token meets 12, and 398 and 94 of the large one
COUNTS = {"jamba-v0.1": 51_570_323_328, "jamba-1.5-large": 398_555_145_696}
ACTIVE = {"jamba-v0.1": 12e9, "jamba-1.5-large": 94e9}

SMALL = "layers=4,period=4,offset=2,hidden=64,heads=4,kv_heads=2,vocab=96,seq=12,ffn=48,dense_ffn=48,experts=4,state=4"


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count
    assert zoo.names()[name].active_parameters == pytest.approx(ACTIVE[name], rel=0.01)


def test_every_size_is_published() -> None:
    assert {*COUNTS, "jamba"} == set(PRESETS)


def test_the_layers_of_the_paper() -> None:
    """One attention to seven scans, and experts in every second layer (section 3.1)."""
    layers = range(Jamba().layers)
    assert sum(map(Jamba().attends, layers)) * 8 == sum(map(Jamba().has_experts, layers)) * 2 == Jamba().layers


@pytest.mark.parametrize("more", ["", ",dtype=bf16", ",rank=8,expand=1"])
def test_agrees_with_pytorch(more: str) -> None:
    assert_agrees(f"jamba:{SMALL}{more}", batch=2, saved=0.001)
    assert_same_names(f"jamba:{SMALL}{more}")


def test_a_scan_is_its_recurrence_in_closed_form() -> None:
    """With one number a state, y[t] = c[t] times the sum of what was written, each decayed since, plus the skip."""
    torch.manual_seed(0)
    scan = SelectiveScanLayer(3, 1).double()
    x, dt = (torch.randn(2, 7, 3, dtype=torch.float64) for _ in range(2))
    b, c = (torch.randn(2, 7, 1, dtype=torch.float64) for _ in range(2))
    steps = torch.nn.functional.softplus(dt)
    fall = (-scan.decay.exp()[:, 0] * steps).cumsum(1)
    left = (fall[:, :, None] - fall[:, None]).exp() * torch.ones(7, 7).tril()[None, :, :, None]
    wanted = (left * (steps * b * x)[:, None]).sum(2) * c + x * scan.skip
    torch.testing.assert_close(scan(x, dt, b, c), wanted)


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"jamba:{SMALL}")


def test_trains() -> None:
    assert_trains(f"jamba:{SMALL}")


def test_an_offset_beyond_the_period_is_refused() -> None:
    with pytest.raises(BadInput, match="offset=8"):
        zoo.load("jamba:offset=8")
