"""Runs by collectives of our own: the same losses and weights as by gloo, the same collectives counted."""

from __future__ import annotations

import pytest
import torch

from foretell.errors import BadInput
from foretell.runtime.assignment import Assignment
from foretell.runtime.launch import Ranks

LLAMA = "llama:layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=40,seq=8,dtype=fp64"
LENET = "lenet:dtype=fp64"
PLANS = {
    "dp4": (LENET, ("ring", "tree", "butterfly", "rabenseifner", "hierarchical:2", "ps:1", "ps:2", "ps:0")),
    "dp4:zero3": (LLAMA, ("ring", "rabenseifner", "direct")),
    "dp2 tp2": (LLAMA, ("recursive-doubling",)),
}


def ran(ranks: Ranks, model: str, plan: str, collectives: str) -> tuple[list[float], dict[str, torch.Tensor], object]:
    given = {"model": model, "plan": plan, "batch": 8, "steps": 1, "dropped": 2, "weights": True}
    reports = ranks.run(Assignment(**given, collectives=collectives))  # type: ignore[arg-type]
    weights = torch.load(ranks.folder / "weights-0.pt")
    return reports[0].losses, weights, reports[0].collectives


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_training_is_the_same_by_every_algorithm(ranks: Ranks, plan: str) -> None:
    model, algorithms = PLANS[plan]
    losses, weights, collectives = ran(ranks, model, plan, "")
    for algorithm in algorithms:
        found = ran(ranks, model, plan, algorithm)
        assert found[0] == pytest.approx(losses, abs=1e-10), algorithm
        assert found[1].keys() == weights.keys()
        for name, weight in weights.items():
            torch.testing.assert_close(found[1][name], weight, rtol=0, atol=1e-10, msg=f"{algorithm}: {name}")
        assert found[2] == collectives


def test_words_that_are_none_are_refused_before_anything_starts(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match="no algorithm for collectives is called 'rings'"):
        ranks.run(Assignment(model="lenet", plan="dp2", batch=8, collectives="rings"))


@pytest.mark.parametrize(
    ("model", "plan", "collectives", "what"),
    [
        ("lenet", "dp2", "ps:5", "5 servers on 2 ranks"),
        (LLAMA, "dp2:zero3", "ps:5", "5 servers on 2 ranks"),
        (LLAMA, "dp2 tp2", "ps:4", "4 servers on 2 ranks"),
        ("lenet", "dp2", "hierarchical:3", "2 ranks are not whole islands of 3"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_before_ranks_start(
    ranks: Ranks, model: str, plan: str, collectives: str, what: str
) -> None:
    with pytest.raises(BadInput) as refused:
        ranks.run(Assignment(model=model, plan=plan, batch=8, collectives=collectives))
    assert (refused.value.what, refused.value.where) == (what, "--collectives")
