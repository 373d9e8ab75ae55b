"""The members that docs/adding.md adds do what they say: against torch, and against formulas by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from docs.pages import FILE, ROOT
from foretell.hardware import catalog
from foretell.hardware.topology import fabric_topology
from foretell.model.operators.attention import Attention
from foretell.plan.policies.recompute import Recompute
from foretell.program.rank_program import RankProgram
from program_cases import left_after_forward, lowered

FILES = dict(FILE.findall((ROOT / "docs" / "adding.md").read_text()))


def member(name: str) -> Any:
    """A file of the page, as if it had been imported."""
    names: dict[str, Any] = {"__name__": "added"}
    exec(compile(FILES[name], name, "exec"), names)
    return SimpleNamespace(**names)


def test_a_step_of_signum_by_hand() -> None:
    signum = member("src/foretell/model/optimizers/signum.py")
    weight, state = torch.tensor([1.0, -2.0]), dict[str, Any]()
    for gradient in ([1.0, 1.0], [-20.0, 1.0]):  # momentum 0.1, 0.1; then -1.91, 0.19
        signum.step(weight, torch.tensor(gradient), state, {"lr": 0.5, "momentum": 0.9})
    torch.testing.assert_close(weight, torch.tensor([1.0, -3.0]))


# linear attention

LINEAR = "src/foretell/model/attentions/linear.py"


@pytest.mark.parametrize("places", [32, 64, 160])
def test_linear_attention_is_a_weighted_mean_of_earlier_values(places: int) -> None:
    linear = member(LINEAR)
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, places, 8, dtype=torch.float64) for _ in range(3))
    weights = ((F.elu(query) + 1) @ (F.elu(key) + 1).mT).tril()
    expected = weights @ value / weights.sum(-1, keepdim=True)
    torch.testing.assert_close(linear.attend(query, key, value, None, 0.0), expected)


def test_linear_attention_computes_the_flops_that_torch_counts() -> None:
    linear = member(LINEAR)
    with FlopCounterMode(display=False) as counter:
        linear.attend(*(torch.randn(2, 3, 256, 8) for _ in range(3)), None, 0.0)
    n = {"sample": 2, "kv_head": 3, "share": 1, "query": 256, "key": 256, "qk": 8, "value": 8}
    part = linear.KERNEL.forward(Attention(), n, dict.fromkeys("qkvy", 2))
    assert part.matrix == counter.get_total_flops()
    longer = linear.KERNEL.forward(Attention(), {**n, "query": 512, "key": 512}, dict.fromkeys("qkvy", 2))
    assert longer.matrix == 2 * part.matrix


# recompute of the attention part

ATTEND = "src/foretell/plan/recomputations/attend.py"
LAYER = "llama:layers=3,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=50,seq=32"


@pytest.mark.parametrize(("plan", "ranks"), [("dp1", 1), ("tp2", 2)])
def test_what_is_dropped_lies_between_the_products(plan: str, ranks: int) -> None:
    """Queries and keys with their positions, values, what attention makes, its copy by token and its statistics."""
    found = lowered(LAYER, plan)
    kind = max(found.partition.kinds, key=lambda one: one.stop - one.start)
    saved, dropped = (
        left_after_forward(RankProgram(found.rank_program.layout, rule), kind)
        for rule in (Recompute().rule, member(ATTEND).RECOMPUTATION)
    )
    tokens, wide = 4 * 32, (64 + 32 + 32 + 64 + 64 + 4) // ranks
    assert saved - dropped == tokens * wide * 4


# a torus

TORUS = "src/foretell/hardware/topologies/torus2d.py"


@pytest.mark.parametrize(
    ("ranks", "wires"), [(16, 1.0), (32, 1.25), (64, 2.25), (512, 4.0)]
)  # two units in a row, four, a row of eight, eight rows
def test_an_all_to_all_on_a_torus_shares_wires_with_what_passes_through(ranks: int, wires: float) -> None:
    cluster = catalog.cluster("512xh100")
    held = (1, 8, ranks)
    (torus,), (tree,) = (one.crossings(cluster, held, 1) for one in (member(TORUS).TOPOLOGY, fabric_topology("tree")))
    assert torus.through_all == tree.through_all / wires
    assert (torus.through_one, torus.through_rank) == (tree.through_one, tree.through_rank)
