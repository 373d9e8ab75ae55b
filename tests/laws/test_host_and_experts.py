"""Laws of two policies: weights that lie in host memory, and experts that are not evenly full."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foretell.hardware.catalog import cluster
from foretell.oracle.predict import Prediction, predict
from foretell.plan.fitness import fits
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.action import Copy, Update
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram
from foretell.program.lower import lower
from foretell.program.verify import verify
from foretell.units import show_bytes
from program_cases import WIDTH, Decoder, Mixture, load, program, traffic

TINY = Decoder()
MIXED = Mixture()
WIDE = "llama:layers=4,hidden=2048,heads=16,vocab=8192,seq=1024,kv_heads=4,head_dim=128,ffn=4096,dtype=bf16"
EXPERTS = "mixture:layers=2,hidden=1024,heads=8,kv_heads=8,ffn=2048,vocab=8192,seq=1024,experts=8,top_k=2,dtype=bf16"


def predicted(model: str, plan: str, trained_by: str = "pytorch-compiled", batch: int = 16) -> Prediction:
    parsed = parse(f"{plan} +bf16")
    setting = Setting(load(model, batch // parsed.microbatches), Job(batch=batch), parsed, trainer(trained_by))
    return predict(setting, cluster("8xh100"))


# Weights on the host. --------------------------------------------------------------------------------


def copies(made: ExpandedProgram) -> Counter[tuple[str, str, str]]:
    """Bytes a step by what, where to, and the pass."""
    found: Counter[tuple[str, str, str]] = Counter()
    for body, times, _ in made.walk(made.kinds[0]):
        for action in body.actions:
            if isinstance(action, Copy):
                found[action.what, "out" if action.to_host else "in", body.phase] += int(action.bytes * times)
    return found


LAYERS = TINY.layers * TINY.layer


@pytest.mark.parametrize(
    ("plan", "ranks", "passes"),
    [("dp1", 1, 1), ("dp2", 1, 1), ("dp2:zero3", 2, 1), ("dp1 +m2", 1, 2), ("dp2:zero3 +m2", 2, 2)],
)
def test_weights_come_for_each_use(plan: str, ranks: int, passes: int) -> None:
    """Layers for both passes, the rest once for both; in fp32 weights come to be updated too, and go back."""
    found = copies(program(TINY.model, f"{plan} +offload:weights", 8))
    assert found == {
        ("weights", "in", "forward"): passes * TINY.weights * WIDTH // ranks,
        ("weights", "in", "backward"): passes * LAYERS * WIDTH // ranks,
        ("weights", "in", "step"): TINY.weights * WIDTH // ranks,
        ("weights", "out", "step"): TINY.weights * WIDTH // ranks,
    }


@pytest.mark.parametrize(("plan", "ranks"), [("dp1", 1), ("dp2:zero3", 2)])
def test_with_the_optimizer_gradients_go_out_and_weights_stay(plan: str, ranks: int) -> None:
    made = program(TINY.model, f"{plan} +offload:optimizer,weights", 8)
    assert copies(made) == {
        ("weights", "in", "forward"): TINY.weights * WIDTH // ranks,
        ("weights", "in", "backward"): LAYERS * WIDTH // ranks,
        ("gradients", "out", "backward"): TINY.weights * WIDTH // ranks,
    }
    memory = made.stages[0].memory
    assert (memory.weights, memory.gradients, memory.states) == (0, 0, 0)
    assert memory.updated == TINY.weights / ranks


def test_a_rank_that_sums_gradients_keeps_them_until_they_are_summed() -> None:
    made = program(TINY.model, "dp2 +offload:optimizer,weights", 8)
    assert made.stages[0].memory.gradients == TINY.weights * WIDTH
    assert copies(made)["gradients", "out", "step"] == TINY.weights * WIDTH


@pytest.mark.parametrize("plan", ["dp1", "dp4:zero3", "pp2:1f1b tp2 +m4", "dp2:zero1"])
def test_less_on_the_device_is_paid_for_in_time(plan: str) -> None:
    here, away = predicted(WIDE, plan), predicted(WIDE, f"{plan} +offload:weights")
    assert away.memory.by_kind["weights"] == 0 < here.memory.by_kind["weights"]
    assert away.step_seconds > here.step_seconds
    assert sum(away.breakdown.values()) == pytest.approx(away.step_seconds)
    if plan == "dp1":
        assert away.memory_bytes < here.memory_bytes


@given(
    st.sampled_from(["", "pp2:1f1b", "pp2:interleaved,v2", "pp2:zb-h1", "pp2:stash"]),
    st.sampled_from(["dp2", "dp2:zero1", "dp2:zero2", "dp2:zero3", "ps2:sync"]),
    st.sampled_from(["", "tp2", "tp2:sp"]),
    st.sampled_from(["weights", "optimizer,weights", "optimizer,activations,weights"]),
    st.sampled_from(["pytorch", "fsdp", "deepspeed", "megatron-core", "chainer"]),
)
def test_programs_with_weights_on_the_host_pass_every_check(
    pipeline: str, data: str, tensor: str, moved: str, trained_by: str
) -> None:
    parsed = parse(f"{pipeline} {data} {tensor} +m4 +offload:{moved}")
    setting = Setting(load(TINY.model.replace("layers=3", "layers=4"), 8), Job(batch=32), parsed, trainer(trained_by))
    assume(fits(setting))
    made = expand(lower(setting))
    assert verify(made, setting.graph) == ()
    assert all(stage.memory.weights == 0 for stage in made.stages)
    assert any(isinstance(a, Update) for b, _, _ in made.walk(made.kinds[0]) for a in b.actions)


# Experts. --------------------------------------------------------------------------------------------


def rows(made: ExpandedProgram) -> set[int]:
    """Rows of the grouped products."""
    return {a.loops["row"] for a, _ in made.computations(made.kinds[0]) if a.operator == "grouped_matmul"}


@pytest.mark.parametrize("factor", [1.1, 1.25, 1.7, 2.0, 3.999, 4.0])
@pytest.mark.parametrize("plan", ["dp4:ep4", "dp4:zero3,ep4", "dp2:ep4,etp1 tp2:sp", "pp2:1f1b dp4:ep4 +m2"])
def test_the_fullest_rank_has_so_many_times_the_rows(plan: str, factor: float) -> None:
    batch = 8
    even, uneven = (program(MIXED.model, f"{plan}{more}", batch) for more in ("", f" +imbalance{factor}"))
    (mean,), (most,) = rows(even), rows(uneven)
    assert mean == batch // parse(plan).microbatches * MIXED.seq * MIXED.top_k // 4
    assert most == ceil(mean * factor)
    assert isinstance(most, int)
    assert verify(uneven, load(MIXED.model, batch // parse(plan).microbatches)) == ()
    for key, (count, payload) in traffic(uneven).items():
        usual = traffic(even)[key]
        assert count == usual[0]
        assert payload == pytest.approx(usual[1] * (factor if key[0] == "all-to-all" else 1), rel=1e-3)
    work = [sum(a.cost.matrix * t for a, t in made.computations(made.kinds[0])) for made in (even, uneven)]
    experts = sum(a.cost.matrix * t for a, t in even.computations(even.kinds[0]) if a.operator == "grouped_matmul")
    assert work[1] - work[0] == pytest.approx((most - mean) / mean * experts)


@pytest.mark.parametrize("factor", [1.1, 1.7, 4.0])
def test_tokens_that_go_everywhere_do_not_grow(factor: float) -> None:
    """With `allgather` every rank gets all tokens, however they are routed; its experts have more rows all the same."""
    even, uneven = (program(MIXED.model, f"dp4:ep4,allgather{more}", 8) for more in ("", f" +imbalance{factor}"))
    (mean,), (most,) = rows(even), rows(uneven)
    assert most == ceil(mean * factor)
    assert traffic(uneven) == traffic(even)
    usual = program(MIXED.model, "dp4:ep4", 8)
    key = next(key for key in traffic(usual) if key[0] == "all-to-all")
    assert traffic(even)[key] == traffic(usual)[key]  # so many rows, of which links price one a token


def test_memory_that_gathered_tokens_would_take_is_told() -> None:
    """Tokens of four ranks, of 32 bits a number, on each of them."""
    tokens = show_bytes(8 * MIXED.seq * MIXED.hidden * WIDTH)
    told = [predicted(MIXED.model, f"dp4:ep4{word}", batch=8).notes for word in (",allgather", "")]
    assert any(f"does not count these {tokens}" in one for one in told[0])
    assert not any("does not count these" in one for one in told[1])


def test_what_experts_keep_grows_with_their_rows() -> None:
    """Of each row: what came, gate, up, their product and its two factors; the rest of the model is as it was."""
    kept = [program(MIXED.model, f"dp4:ep4{more}", 8).stages[0].memory.kept for more in ("", " +imbalance2")]
    mean = 8 * MIXED.seq * MIXED.top_k // 4
    least = MIXED.layers * mean * (MIXED.hidden + 3 * MIXED.ffn) * WIDTH
    assert least <= kept[1] - kept[0] < 2 * least


@given(st.floats(1, 8), st.floats(1, 8))
def test_less_even_is_never_faster_nor_smaller(one: float, other: float) -> None:
    less, more = (predicted(EXPERTS, f"dp8:ep8 +imbalance{f:.3f}") for f in sorted((one, other)))
    assert less.step_seconds <= more.step_seconds
    assert less.memory_bytes <= more.memory_bytes
    assert less.utilisation >= more.utilisation  # the model's work is the same


def test_even_is_as_if_nothing_were_said() -> None:
    assert predicted(EXPERTS, "dp8:ep8 +imbalance1") == predicted(EXPERTS, "dp8:ep8")
