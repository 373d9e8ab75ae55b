"""What rules of recomputation drop of one layer, in bytes, by hand: those that plain checkpoints cannot run, too."""

from __future__ import annotations

import pytest

from foretell.plan.policies.recompute import Recompute
from foretell.plan.recomputation import recomputation
from foretell.program.rank_program import RankProgram
from program_cases import left_after_forward, lowered

T = 4 * 32  # tokens of a micro-batch
FP32 = 4
LLAMA = "llama:layers=3,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=50,seq=32"
MIXTURE = "mixture:layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=50,seq=32,experts=4"  # two of four experts
DEEPSEEK = (
    "deepseek:layers=3,hidden=64,heads=4,vocab=50,seq=32,first_dense=1,query_rank=32,kv_rank=16,head_dim=16,rotary_dim=8,"
    "value_dim=16,ffn=96,experts=8,top_k=2,expert_ffn=48,groups=4,top_groups=2"
)


def dropped(model: str, plan: str, words: str) -> float:
    """Bytes of the largest kind of layer that a rule drops."""
    found = lowered(model, plan)
    kind = max(found.partition.kinds, key=lambda one: one.stop - one.start)
    rules = (Recompute().rule, recomputation(words))
    saved, left = (left_after_forward(RankProgram(found.rank_program.layout, rule), kind) for rule in rules)
    return (saved - left) / FP32


@pytest.mark.parametrize(("plan", "ranks"), [("dp1", 1), ("tp2", 2)])
def test_feed_forward(plan: str, ranks: int) -> None:
    """gate, up, silu(gate) and silu(gate) * up."""
    assert dropped(LLAMA, plan, "mlp") == 4 * T * 96 / ranks


@pytest.mark.parametrize(("plan", "ranks"), [("dp1", 1), ("tp2", 2)])
def test_activation_of_experts(plan: str, ranks: int) -> None:
    """silu(gate) and silu(gate) * up, of the rows of two experts for each token."""
    assert dropped(MIXTURE, plan, "moe_act") == 2 * 2 * T * 96 / ranks


def test_norms_before_experts_stand_alone() -> None:
    """Those before dense products are one kernel with them; the statistics of each row go too."""
    assert dropped(LLAMA, "dp1", "layernorm") == 0
    assert dropped(MIXTURE, "dp1", "layernorm") == T * 64 + T
    assert dropped(DEEPSEEK, "dp1", "layernorm") == 2 * (T * 64 + T)


def test_latent_attention() -> None:
    """Normalized latents with their statistics, queries and keys with their positions, keys and values as made."""
    latents = T * (32 + 1) + T * (16 + 1)
    assert dropped(DEEPSEEK, "dp1", "mla_up_proj") == latents + T * 4 * (24 + 24) + T * 4 * (16 + 16)


def test_shared_experts() -> None:
    assert dropped(DEEPSEEK, "dp1", "shared_experts") == 4 * T * 48


@pytest.mark.parametrize(("plan", "ranks", "shares"), [("dp1", 1, 1), ("tp2", 2, 1), ("tp2:sp", 2, 2)])
def test_every_other_product(plan: str, ranks: int, shares: int) -> None:
    """Of query, key, value, output, gate, up and down the 2nd, 4th and 6th go, and all that lies between products.

    Saved are queries and values as made, attention's output and its statistics, gate and down; beside these there is
    what the layer hands on.
    With shares of the sequence the output of attention's last product was summed into them, and stays: of all
    collectives torchtitan saves that one. So does what the last product made before it was summed: it is the 7th (on
    eight ranks of an H200 blocks of the whole hidden size are there for each layer, studies/h200_rehearsals).
    """
    kept = T * (64 + 32 + 64 + 4 + 96) / ranks + T * (64 + 64) / shares
    kept += T * 64 / shares + T * 64 if shares > 1 else 0
    found = lowered(LLAMA, plan)
    kind = max(found.partition.kinds, key=lambda one: one.stop - one.start)
    made = RankProgram(found.rank_program.layout, recomputation("operators"))
    assert left_after_forward(made, kind) / FP32 == kept


def test_several_rules_drop_what_each_of_them_does() -> None:
    both = dropped(DEEPSEEK, "dp1", "moe_act,shared_experts")
    assert both == dropped(DEEPSEEK, "dp1", "moe_act") + dropped(DEEPSEEK, "dp1", "shared_experts")
    assert dropped(DEEPSEEK, "dp1", "moe,moe_act") == dropped(DEEPSEEK, "dp1", "moe")
