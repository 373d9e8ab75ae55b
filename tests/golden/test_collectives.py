"""The collectives of every strategy, as its paper has them: kind, number and bytes, computed here by hand."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.text import parse
from foretell.program.action import Copy
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram
from foretell.program.lower import lower
from program_cases import LENET, VGG, WIDTH, Decoder, Found, Mixture, changed, one, program, sent, traffic

STUDIES = Path(__file__).parents[2] / "studies"

MIB = 2**20
BATCH = 8
LLAMA = Decoder()
FUSED = "megatron-core"
"""One sum for all layers that read a tensor, and a loss on shares of the vocabulary, as in Megatron-LM."""

WEIGHTS = LLAMA.weights * WIDTH
LAYERS = LLAMA.layers * LLAMA.layer * WIDTH
ROOT = LLAMA.root * WIDTH


def states(batch: int) -> int:
    """Bytes of b s h."""
    return LLAMA.hidden_states(batch) * WIDTH


# Data and sharded data. ------------------------------------------------------------------------------


def test_data() -> None:
    """Gradients are summed once a step (Ben-Nun, Hoefler 2019, section 6.1).

    In one bucket here: all but the table, which comes last, are less than DDP's first bucket of 1 MiB.
    """
    assert WEIGHTS - LLAMA.table * WIDTH < MIB < WEIGHTS
    assert traffic(program(LLAMA.model, "dp4", BATCH)) == {("all-reduce", "dp", "weight gradients"): (1, WEIGHTS)}


def test_data_in_half_precision() -> None:
    """Gradients travel in their own type: 2 bytes each."""
    made = program(LLAMA._replace(dtype="bf16").model, "dp4 +bf16:pure", BATCH)
    assert traffic(made) == {("all-reduce", "dp", "weight gradients"): (1, LLAMA.weights * 2)}


@pytest.mark.parametrize(("trained_by", "wire"), [("pytorch", 2), (FUSED, 4)])
def test_mixed_precision(trained_by: str, wire: int) -> None:
    """bf16 weights, fp32 masters: PyTorch sums gradients in 16 bits, Megatron-Core in 32; weights travel in 16."""
    made = program(LLAMA._replace(dtype="bf16").model, "dp4:zero1 +bf16", BATCH, trained_by)
    assert traffic(made) == {
        ("reduce-scatter", "dp", "weight gradients"): (1, LLAMA.weights * wire),
        ("all-gather", "dp", "weights"): (1, LLAMA.weights * 2 / 4),
    }


def test_buckets() -> None:
    """PyTorch DDP: in reverse order, the first bucket closes at 1 MiB, the others at 25 MiB (reducer.hpp).

    VGG-11's dense layers are 25088 to 4096 to 4096 to 16; its convolutions 3-64-128-256-256-512-512-512-512.
    """
    dense = [[4096 * 16 + 16, 4096 * 4096 + 4096], [25088 * 4096 + 4096]]
    channels = (3, 64, 128, 256, 256, 512, 512, 512, 512)
    convolutions = [9 * c * f + f for c, f in pairwise(channels)][::-1]
    expected = [sum(bucket) * WIDTH for bucket in (*dense, convolutions[:3], convolutions[3:])]
    assert expected[2] >= 25 * MIB > expected[2] - convolutions[2] * WIDTH
    made = program(VGG, "dp2", BATCH)
    assert [message.payload for message, _ in made.communications(made.kinds[0])] == expected


def test_bucket_policy() -> None:
    """Buckets of the plan's size, the first no larger; a trainer without buckets sends all at once."""
    perceptron = "mlp:layers=4,hidden=128,inputs=128,classes=128"
    layer = (128 * 128 + 128) * WIDTH
    pairs = program(perceptron, "dp4 +bucket:128KiB", BATCH)
    assert [m.payload for m, _ in pairs.communications(pairs.kinds[0])] == [2 * layer, 2 * layer, layer]
    whole = program(perceptron, "dp4", BATCH, changed("pytorch", "gradients", first_bucket=0, bucket=0))
    assert traffic(whole) == {("all-reduce", "dp", "weight gradients"): (1, 5 * layer)}


@pytest.mark.parametrize("storage", ["zero1", "zero2"])
def test_sharded_states_send_what_data_sends(storage: str) -> None:
    """ZeRO, section 7.1: a reduce-scatter of the gradients and an all-gather of the weights, 2 Psi as before."""
    made = program(LLAMA.model, f"dp4:{storage}", BATCH)
    assert traffic(made) == {
        ("reduce-scatter", "dp", "weight gradients"): (1, WEIGHTS),
        ("all-gather", "dp", "weights"): (1, WEIGHTS / 4),
    }
    assert sent(made) == sent(program(LLAMA.model, "dp4", BATCH)) == 2 * WEIGHTS * 3 / 4


def test_sharded_weights_of_fsdp() -> None:
    """FSDP: each layer is gathered for both passes, the root once, as it stays (fully_shard, reshard_after_forward)."""
    made = program(LLAMA.model, "dp4:zero3", BATCH)
    assert traffic(made) == {
        ("all-gather", "dp", "weights"): (2 * LLAMA.layers + 1, (2 * LAYERS + ROOT) / 4),
        ("reduce-scatter", "dp", "weight gradients"): (LLAMA.layers + 1, WEIGHTS),
    }
    assert sent(made) == (3 * LAYERS + 2 * ROOT) * 3 / 4


def test_sharded_weights_send_half_as_much_again() -> None:
    """ZeRO, section 7.2.2: gathered for the forward and for the backward pass, 3 Psi instead of 2 Psi."""
    made = program(LLAMA.model, "dp4:zero3", BATCH, changed("pytorch", "storage", reshard_root=True))
    assert sent(made) == 3 * WEIGHTS * 3 / 4
    assert sent(made) == 1.5 * sent(program(LLAMA.model, "dp4", BATCH))


def test_sharded_weights_that_stay_gathered() -> None:
    """Without resharding after the forward pass each unit is gathered once, and ZeRO-3 sends what data does."""
    made = program(LLAMA.model, "dp4:zero3", BATCH, changed("pytorch", "storage", reshard_forward=False))
    assert traffic(made) == {
        ("all-gather", "dp", "weights"): (LLAMA.layers + 1, WEIGHTS / 4),
        ("reduce-scatter", "dp", "weight gradients"): (LLAMA.layers + 1, WEIGHTS),
    }


def test_hybrid_sharding() -> None:
    """Zhao et al. 2023, section 3.2.2: shares among 8, and a sum of the shares over the 4 groups."""
    made = program(LLAMA.model, "dp4:zero3,shard8", 32)
    assert traffic(made) == {
        ("all-gather", "shard", "weights"): (2 * LLAMA.layers + 1, (2 * LAYERS + ROOT) / 8),
        ("reduce-scatter", "shard", "weight gradients"): (LLAMA.layers + 1, WEIGHTS),
        ("all-reduce", "dp", "weight gradients"): (LLAMA.layers + 1, WEIGHTS / 8),
    }


def test_shares_are_of_rows() -> None:
    """FSDP2 shares out the rows of a weight, not its heads: 4 key heads of 16 rows are 8 rows for each of 8 ranks."""
    few = LLAMA._replace(kv_heads=4)
    made = program(few.model, "dp8:zero3", BATCH)
    assert traffic(made)["reduce-scatter", "dp", "weight gradients"] == (few.layers + 1, few.weights * WIDTH)


# Tensor, sequence and context. -----------------------------------------------------------------------


def test_tensor() -> None:
    """Shoeybi et al. 2019, section 3: two all-reduces of b s h a layer forward and two backward.

    The table in shares of the vocabulary adds one forward, the head one backward; the loss on shares sums the
    largest logit, the sum of exponentials and the target's logit of each token.
    """
    times = 2 * LLAMA.layers + 1
    assert traffic(program(LLAMA.model, "tp4", BATCH, FUSED)) == {
        ("all-reduce", "tp", "activations"): (times, times * states(BATCH)),
        ("all-reduce", "tp", "gradients"): (times, times * states(BATCH)),
        ("all-reduce", "tp", "statistics"): (3, 3 * BATCH * LLAMA.seq * WIDTH),
    }


@pytest.mark.parametrize("family", ["gpt", "bert"])
def test_tensor_of_other_families(family: str) -> None:
    """The same for GPT and BERT (Megatron-LM): the head of either takes shares of the vocabulary from the table.

    Learned positions, sentence types and the layer before BERT's head are whole on every rank.
    """
    objective = ",ffn=256,objective=mlm" if family == "bert" else ""
    made = program(f"{family}:layers=3,hidden=64,heads=8,vocab=640,seq=32{objective}", "tp4", BATCH, FUSED)
    times = 2 * 3 + 1
    assert traffic(made) == {
        ("all-reduce", "tp", "activations"): (times, times * BATCH * 32 * 64 * WIDTH),
        ("all-reduce", "tp", "gradients"): (times, times * BATCH * 32 * 64 * WIDTH),
        ("all-reduce", "tp", "statistics"): (3, 3 * BATCH * 32 * WIDTH),
    }


def test_tensor_with_dtensor() -> None:
    """DTensor sums the input's gradient for each of query, key, value, gate and up, and gathers the logits."""
    times = 5 * LLAMA.layers + 1
    logits = BATCH * LLAMA.seq * LLAMA.vocab * WIDTH
    assert traffic(program(LLAMA.model, "tp4", BATCH)) == {
        ("all-reduce", "tp", "activations"): (2 * LLAMA.layers + 1, (2 * LLAMA.layers + 1) * states(BATCH)),
        ("all-reduce", "tp", "gradients"): (times, times * states(BATCH)),
        ("all-gather", "tp", "activations"): (1, logits / 4),
    }


def test_tensor_and_sequence() -> None:
    """Korthikanti et al. 2022, section 4.2.2: each all-reduce becomes an all-gather and a reduce-scatter.

    The gathered input is not kept but gathered again for the weight's gradient. Norms see shares of the
    sequence, so their gradients are summed.
    """
    times = 2 * LLAMA.layers + 1
    assert traffic(program(LLAMA.model, "tp4:sp", BATCH, FUSED)) == {
        ("all-gather", "tp", "activations"): (2 * times, 2 * times * states(BATCH) / 4),
        ("reduce-scatter", "tp", "activations"): (times, times * states(BATCH)),
        ("all-gather", "tp", "gradients"): (times, times * states(BATCH) / 4),
        ("reduce-scatter", "tp", "gradients"): (times, times * states(BATCH)),
        ("all-reduce", "tp", "statistics"): (3, 3 * BATCH * LLAMA.seq * WIDTH),
        ("all-reduce", "tp", "weight gradients"): (1, LLAMA.norms * WIDTH),
    }


def test_sequence_sends_no_more_than_tensor() -> None:
    """The same section: a ring all-reduce is a reduce-scatter and an all-gather, so the bytes are equal.

    But for what is gathered again, and the gradients of the norms.
    """
    plain = program(LLAMA.model, "tp4", BATCH, FUSED)
    kept = changed(FUSED, "tensor", regather=False)
    shares = program(LLAMA.model, "tp4:sp", BATCH, kept)
    assert sent(shares) == sent(plain) + 2 * LLAMA.norms * WIDTH * 3 / 4


GROUPED = LLAMA._replace(kv_heads=4, dtype="bf16")
"""Flash attention in bf16 lets heads share keys and values, so these are half as large as the queries."""


def test_context_ring() -> None:
    """Liu et al. 2023, section 3: keys and values go n-1 steps forward, and again backward.

    Their gradients go round too, and one step more to be home: n.
    """
    made = program(GROUPED.model, "cp4:ring +bf16:pure", BATCH)
    share = BATCH * GROUPED.seq * GROUPED.kv_heads * GROUPED.head_dim * 2 // 4
    assert traffic(made) == {
        ("shift", "cp", "activations"): (2 * 2 * GROUPED.layers, 2 * 2 * GROUPED.layers * share),
        ("shift", "cp", "gradients"): (2 * GROUPED.layers, 2 * GROUPED.layers * share),
        ("all-reduce", "cp", "weight gradients"): (1, GROUPED.weights * 2),
    }
    steps = {(message.what, message.messages) for message, _ in made.communications(made.kinds[0])}
    assert steps == {("activations", 3), ("gradients", 4), ("weight gradients", 1)}
    moved = GROUPED.layers * 2 * share * (3 + 3 + 4)
    assert sent(made) == moved + 2 * GROUPED.weights * 2 * 3 / 4


@pytest.mark.parametrize(("trained_by", "copies"), [("fsdp", 1), ("torchtitan-2025", 2)])
def test_pytorchs_ring_gathers_once(trained_by: str, copies: int) -> None:
    """Its context parallelism gathers keys and values in one message a pass; fp32 gradients go round and home."""
    made = program(GROUPED.model, "cp4:ring +bf16", BATCH, trained_by)
    numbers = copies * 2 * BATCH * GROUPED.seq * GROUPED.kv_heads * GROUPED.head_dim // 4
    found = {name: value for name, value in traffic(made).items() if name[1] == "cp" and "weight" not in name[2]}
    assert found == {
        ("all-gather", "cp", "activations"): (2 * GROUPED.layers, 2 * GROUPED.layers * 2 * numbers),
        ("shift", "cp", "gradients"): (GROUPED.layers, GROUPED.layers * 4 * numbers),
    }
    turns = [m for m, _ in made.communications(made.kinds[0]) if m.what in ("activations", "gradients")]
    around = sorted((m.what, m.around) for m in turns)
    queries = BATCH * GROUPED.seq * GROUPED.heads * GROUPED.head_dim // 4
    kernels = 3 * (46 * queries + 4 * numbers), 4 * (24.5 * queries + 25.5 * numbers)
    assert around == [("activations", 0), ("activations", kernels[0]), ("gradients", kernels[1])]  # a layer, of each


@pytest.mark.parametrize(("plan", "merged"), [("+eager", 46), ("+compiled", 12.5), ("+graphed", 46)])
def test_kernels_of_a_ring_are_compiled_where_the_plan_says_so(plan: str, merged: float) -> None:
    """Whatever the trainer does by itself."""
    made = program(GROUPED.model, f"cp4:ring +bf16 {plan}", BATCH, "fsdp")
    found = max(m.around for m, _ in made.communications(made.kinds[0]) if m.what == "activations")
    queries = BATCH * GROUPED.seq * GROUPED.heads * GROUPED.head_dim // 4
    keys = 2 * BATCH * GROUPED.seq * GROUPED.kv_heads * GROUPED.head_dim // 4
    assert found == 3 * (merged * queries + (0 if plan == "+compiled" else 4) * keys)


def test_the_ring_of_torchtitan_as_it_was_rehearsed() -> None:
    """Messages that torchtitan 0.3 made among the four context ranks, one rank of 32 (studies/h200_rehearsals)."""
    name = "titan llama3-8b:layers=8 dp8:zero3 cp4 +bf16 +recompute:operators b8 s32768 r0"
    rows = map(json.loads, (STUDIES / "h200_rehearsals" / "rehearsals.jsonl").read_text().splitlines())
    (ran,) = (row["messages"] for row in rows if "case" in row and row["case"]["name"] == name)
    request = Request(
        model="llama3-8b:layers=8,seq=32768",
        plan=parse("dp8:zero3 cp4 +bf16 +recompute:operators"),
        batch=8,
        trainer="torchtitan",
    )
    made = expand(lower(resolve(request).setting))
    seen = {"shift": "all-to-all"}  # torch makes a permutation of it
    said: Counter[tuple[str, float]] = Counter()
    for message, times in made.communications(made.kinds[0]):
        if message.axes == ("cp",):
            said[seen.get(message.kind, message.kind), message.payload] += times * message.messages
    assert said == {(kind, size): count for kind, ranks, size, count in ran if ranks == 4}


def test_context_all_to_all() -> None:
    """Jacobs et al. 2023, section 3.2: queries, keys and values change to shares of heads, the output changes back."""
    made = program(GROUPED.model, "cp4:alltoall +bf16:pure", BATCH)
    query = BATCH * GROUPED.seq * GROUPED.heads * GROUPED.head_dim * 2 // 4
    layer = 2 * query + 2 * query // 2
    assert traffic(made) == {
        ("all-to-all", "cp", "activations"): (4 * GROUPED.layers, GROUPED.layers * layer),
        ("all-to-all", "cp", "gradients"): (4 * GROUPED.layers, GROUPED.layers * layer),
        ("all-reduce", "cp", "weight gradients"): (1, GROUPED.weights * 2),
    }


@pytest.mark.parametrize(("storage", "stored"), [("", 0), (":zero3", 1)])
def test_ranks_of_a_context_hold_weights_as_data_ranks_do(storage: str, stored: int) -> None:
    """Weights are the same for all positions: their gradients are summed, and shares kept, over both axes."""
    found = of_weights(program(LLAMA.model, f"dp2{storage} cp2:ring", BATCH))
    alone = of_weights(program(LLAMA.model, f"dp4{storage}", BATCH))
    assert found == {(kind, axis.replace("dp", "dp+cp"), what): value for (kind, axis, what), value in alone.items()}
    assert len(found) == 1 + stored


def of_weights(made: ExpandedProgram) -> Found:
    return {key: value for key, value in traffic(made).items() if key[2] in ("weights", "weight gradients")}


# Experts. --------------------------------------------------------------------------------------------

MIXTURE = Mixture()
EXPERTS = MIXTURE.expert_weights * WIDTH
OTHERS = MIXTURE.other_weights * WIDTH


def rows(batch: int) -> int:
    return MIXTURE.rows(batch) * WIDTH


def test_experts() -> None:
    """Lepikhin et al. 2021, section 3.2: rows go to their experts and come back, two all-to-alls each way.

    Experts' gradients are summed over the ranks that hold the same ones (8 / 4), all others' over all 8.
    """
    times = 2 * MIXTURE.layers
    assert traffic(program(MIXTURE.model, "dp8:zero1,ep4", 16)) == {
        ("all-to-all", "ep", "activations"): (times, times * rows(16) / 8),
        ("all-to-all", "ep", "gradients"): (times, times * rows(16) / 8),
        ("reduce-scatter", "dp+ep", "weight gradients"): (1, OTHERS),
        ("reduce-scatter", "dp", "weight gradients"): (1, EXPERTS / 4),
        ("all-gather", "dp+ep", "weights"): (1, OTHERS / 8),
        ("all-gather", "dp", "weights"): (1, EXPERTS / 4 / 2),
    }


def test_experts_over_all_data_ranks() -> None:
    """As many shares of the experts as data ranks: nobody else has the same, and nothing is summed for them."""
    times = 2 * MIXTURE.layers
    assert traffic(program(MIXTURE.model, "dp8:ep8", 16)) == {
        ("all-to-all", "ep", "activations"): (times, times * rows(16) / 8),
        ("all-to-all", "ep", "gradients"): (times, times * rows(16) / 8),
        ("all-reduce", "ep", "weight gradients"): (1, OTHERS),
    }


@pytest.mark.parametrize("groups", [4, 8])
def test_experts_not_divided_by_tensor_ranks(groups: int) -> None:
    """etp1 (Megatron-Core, expert tensor parallel size 1): tensor ranks do whole experts on their share of the tokens.

    Beside the two all-to-alls each way there is nothing in the experts; attention has its pair of
    Korthikanti et al. With ep4 both tensor ranks hold the same experts, and sum their gradients; ep8 goes on over
    the tensor ranks, and nobody else has the same.
    """
    ours, batch = MIXTURE, 16
    hidden = batch // 4 * ours.seq * ours.hidden * WIDTH
    times = ours.layers + 1
    norms = (2 * ours.layers + 1) * ours.hidden * WIDTH
    router = ours.layers * ours.hidden * ours.experts * WIDTH
    axis = "ep" if groups == 4 else "ep+tp"
    expected = {
        ("all-to-all", axis, "activations"): (2 * ours.layers, 2 * ours.layers * rows(batch) / 8),
        ("all-to-all", axis, "gradients"): (2 * ours.layers, 2 * ours.layers * rows(batch) / 8),
        ("all-gather", "tp", "activations"): (2 * times, 2 * times * hidden / 2),
        ("reduce-scatter", "tp", "activations"): (times, times * hidden),
        ("all-gather", "tp", "gradients"): (times, times * hidden / 2),
        ("reduce-scatter", "tp", "gradients"): (times, times * hidden),
        ("all-reduce", "tp", "statistics"): (3, 3 * batch // 4 * ours.seq * WIDTH),
        # what the tensor ranks have whole is summed along tp first (Megatron's norms), then with the rest
        ("all-reduce", "tp", "weight gradients"): (1, norms + router),
        ("all-reduce", "ep", "weight gradients"): (1, (OTHERS - norms - router) / 2 + norms + router),
    }
    if groups == 4:
        expected["all-reduce", "tp", "weight gradients"] = (2, norms + router + EXPERTS / 4)
    assert traffic(program(ours.model, f"dp4:ep{groups},etp1 tp2:sp", batch, FUSED)) == expected


def test_experts_divided_by_tensor_ranks() -> None:
    """As many ranks share an expert as the tensor axis has: its rows are gathered after the all-to-all, and
    summed into shares before the one back (Megatron-Core, token dispatcher with all-to-all)."""
    ours, batch = MIXTURE, 16
    hidden = batch // 4 * ours.seq * ours.hidden * WIDTH
    sent_rows = rows(batch) / 8
    found = traffic(program(ours.model, "dp4:ep4 tp2:sp", batch, FUSED))
    pairs = ours.layers + 1  # of attention, and of table and head
    assert found["all-to-all", "ep", "activations"] == (2 * ours.layers, 2 * ours.layers * sent_rows)
    assert found["all-gather", "tp", "activations"] == (
        2 * (pairs + ours.layers),
        2 * (pairs * hidden / 2 + ours.layers * sent_rows),
    )
    assert found["reduce-scatter", "tp", "activations"] == (
        pairs + ours.layers,
        pairs * hidden + ours.layers * 2 * sent_rows,
    )
    assert found["all-reduce", "ep", "weight gradients"][1] < OTHERS
    norms = (2 * ours.layers + 1) * ours.hidden * WIDTH
    router = ours.layers * ours.hidden * ours.experts * WIDTH
    assert found["all-reduce", "tp", "weight gradients"] == (1, norms + router)  # no expert among them


# Pipelines. ------------------------------------------------------------------------------------------

DEEP = LLAMA._replace(layers=8)
RANKS, COUNT = 4, 8

ROUND = [list(range(RANKS))]
"""The ranks that a micro-batch visits, one way for each stream of micro-batches."""

WAYS = {
    "gpipe": ROUND,
    "1f1b": ROUND,
    "interleaved,v2": [[0, 1, 2, 3, 0, 1, 2, 3]],
    "zb-h1": ROUND,
    "zb-v": [[0, 1, 2, 3, 3, 2, 1, 0]],
    "dualpipe": [[0, 1, 2, 3], [3, 2, 1, 0]],
    "dualpipe-v": [[0, 1, 2, 3, 3, 2, 1, 0]],
    "stash": ROUND,
}
"""Huang et al. 2019; Narayanan et al. 2021 (1F1B, interleaved: stages go round and round); Qi et al. 2024 (ZB-H1;
ZB-V: there and back); DeepSeek-AI 2024 (DualPipe: half of the micro-batches from each end); DualPipeV: folded."""


def messages(ways: list[list[int]], rank: int) -> dict[tuple[str, str, str], int]:
    """One message for each boundary between two ranks, direction and micro-batch."""
    each = COUNT // len(ways)
    found = dict.fromkeys([(kind, what) for kind in ("send", "receive") for what in ("activations", "gradients")], 0)
    for way in ways:
        for before, after in pairwise(way):
            if before != after:
                found["send", "activations"] += each * (rank == before)
                found["receive", "activations"] += each * (rank == after)
                found["send", "gradients"] += each * (rank == after)
                found["receive", "gradients"] += each * (rank == before)
    return {(kind, "pp", what): count for (kind, what), count in found.items() if count}


@pytest.mark.parametrize("schedule", WAYS)
def test_pipeline(schedule: str) -> None:
    """Neighbours exchange b s h of each micro-batch, once forward and once backward."""
    made = program(DEEP.model, f"pp{RANKS}:{schedule} +m{COUNT}", COUNT)
    size = DEEP.hidden_states(1) * WIDTH
    for rank in range(RANKS):
        found = {key: value for key, value in traffic(made, rank).items() if key[2] != "weight gradients"}
        expected = messages(WAYS[schedule], rank)
        assert found == {key: (count, count * size) for key, count in expected.items()}


@pytest.mark.parametrize("schedule", WAYS)
def test_pipeline_sums_gradients_only_of_copies(schedule: str) -> None:
    """Only DualPipe has each part twice: ranks i and p-1-i sum the gradients of their two parts."""
    made = program(DEEP.model, f"pp{RANKS}:{schedule} +m{COUNT}", COUNT)
    parts = [2 * DEEP.layer + end for end in (DEEP.table, 0, 0, DEEP.table + DEEP.hidden)]
    for rank, kind in enumerate(made.kinds):
        sums = [(m.ranks, m.payload) for m, _ in made.communications(kind) if m.what == "weight gradients"]
        both = parts[rank] + parts[RANKS - 1 - rank]
        assert sum(payload for _, payload in sums) == (both * WIDTH if schedule == "dualpipe" else 0)
        assert {ranks for ranks, _ in sums} == ({2} if schedule == "dualpipe" else set())


def test_pipeline_with_a_tied_table() -> None:
    """Narayanan et al. 2021 (Megatron-LM): first and last stage sum the gradient of the table that both use."""
    made = program(DEEP._replace(tied="true").model, "pp4:1f1b +m4", 4)
    tied = [traffic(made, rank).get(("all-reduce", "pp", "weight gradients")) for rank in range(4)]
    assert tied == [(1, DEEP.table * WIDTH), None, None, (1, DEEP.table * WIDTH)]


def test_data_tensor_pipeline() -> None:
    """Narayanan et al. 2021, section 3.2: all three, each with its own collectives on a share of the tensors."""
    made = program(DEEP.model, "pp2:1f1b dp2 tp2 +m4", 16, FUSED)
    size = DEEP.hidden_states(16 // 2 // 4) * WIDTH
    count = 4 * 2 * (DEEP.layers // 2)
    split = (DEEP.layers // 2) * ((DEEP.layer - 2 * DEEP.hidden) // 2 + 2 * DEEP.hidden) + DEEP.table // 2
    assert traffic(made, 0) == {
        ("all-reduce", "tp", "activations"): (count + 4, (count + 4) * size),
        ("all-reduce", "tp", "gradients"): (count, count * size),
        ("send", "pp", "activations"): (4, 4 * size),
        ("receive", "pp", "gradients"): (4, 4 * size),
        ("all-reduce", "dp", "weight gradients"): (1, split * WIDTH),
    }
    assert traffic(made, 1) == {
        ("all-reduce", "tp", "activations"): (count, count * size),
        ("all-reduce", "tp", "gradients"): (count + 4, (count + 4) * size),
        ("all-reduce", "tp", "statistics"): (4 * 3, 4 * 3 * 16 // 2 // 4 * DEEP.seq * WIDTH),
        ("receive", "pp", "activations"): (4, 4 * size),
        ("send", "pp", "gradients"): (4, 4 * size),
        ("all-reduce", "dp", "weight gradients"): (1, (split + DEEP.hidden) * WIDTH),
    }


# Splits of convolutional nets. -----------------------------------------------------------------------


def test_filter() -> None:
    """Kahira et al. 2021, section 3.3: y is gathered after every layer, dx summed before all but the first."""
    assert traffic(program("lenet", "filter2", BATCH)) == {
        ("all-gather", "filter", "activations"): (5, sum(layer.y for layer in LENET) * BATCH * WIDTH / 2),
        ("all-reduce", "filter", "gradients"): (4, sum(layer.x for layer in LENET[1:]) * BATCH * WIDTH),
    }


def test_channel() -> None:
    """The same: y is summed after every layer but the first, whose channels are few, and dx gathered."""
    assert traffic(program("lenet", "channel2", BATCH)) == {
        ("all-reduce", "channel", "activations"): (4, sum(layer.y for layer in LENET[1:]) * BATCH * WIDTH),
        ("all-gather", "channel", "gradients"): (4, sum(layer.x for layer in LENET[1:]) * BATCH * WIDTH / 2),
    }


def test_data_and_filter() -> None:
    """df: filter inside a group on its part of the batch; between groups only the own filters' gradients."""
    share = sum(layer.w + layer.b for layer in LENET) / 2
    assert traffic(program("lenet", "dp4 filter2", BATCH)) == {
        ("all-gather", "filter", "activations"): (5, sum(layer.y for layer in LENET) * BATCH / 4 * WIDTH / 2),
        ("all-reduce", "filter", "gradients"): (4, sum(layer.x for layer in LENET[1:]) * BATCH / 4 * WIDTH),
        ("all-reduce", "dp", "weight gradients"): (1, share * WIDTH),
    }


CONVOLUTIONS, DENSE = LENET[:2], LENET[2:]


def test_dense_layers_by_filters_beside_convolutions_by_samples() -> None:
    """Krizhevsky 2014, scheme (a): everybody's samples come to the first dense layer, and the sums of their gradients
    go back; the weights of convolutions alone are summed."""
    sums = sum(layer.w + layer.b for layer in CONVOLUTIONS)
    gathered = DENSE[0].x + sum(layer.y for layer in DENSE)
    assert traffic(program("lenet", "filter2[classifier*]:data", BATCH)) == {
        ("all-gather", "filter", "activations"): (4, gathered * BATCH * WIDTH / 2),
        ("all-gather", "filter", "gradients"): (1, DENSE[-1].y * BATCH * WIDTH / 2),
        ("all-reduce", "filter", "gradients"): (2, sum(layer.x for layer in DENSE[1:]) * BATCH * WIDTH),
        ("reduce-scatter", "filter", "gradients"): (1, DENSE[0].x * BATCH * WIDTH),
        ("all-reduce", "filter", "weight gradients"): (1, sums * WIDTH),
    }


def test_dense_layers_by_channels_beside_convolutions_by_samples() -> None:
    """The same by channels: samples of a rank become channels of all samples. The biases are on every rank."""
    sums = sum(layer.w + layer.b for layer in CONVOLUTIONS)
    back = DENSE[-1].y + sum(layer.x for layer in DENSE[1:])
    assert traffic(program("lenet", "channel2[classifier*]:data", BATCH)) == {
        ("all-to-all", "channel", "activations"): (1, DENSE[0].x * BATCH * WIDTH / 2),
        ("all-to-all", "channel", "gradients"): (1, DENSE[0].x * BATCH * WIDTH / 2),
        ("all-reduce", "channel", "activations"): (3, sum(layer.y for layer in DENSE) * BATCH * WIDTH),
        ("all-gather", "channel", "gradients"): (3, back * BATCH * WIDTH / 2),
        ("all-reduce", "channel", "weight gradients"): (1, sums * WIDTH),
    }


def test_samples_of_both_axes_are_summed_together() -> None:
    """Beside a data axis: convolutions over all ranks at once, shares of dense layers over the data ranks."""
    own, shares = (sum(layer.w + layer.b for layer in part) for part in (CONVOLUTIONS, DENSE))
    found = traffic(program("lenet", "dp2 filter2[classifier*]:data", BATCH))
    assert found["all-reduce", "dp+filter", "weight gradients"] == (1, own * WIDTH)
    assert found["all-reduce", "dp", "weight gradients"] == (1, shares / 2 * WIDTH)


CHANNELS = {"features.0": (3, 64, 64), "features.3": (64, 128, 32), "features.6": (128, 256, 16)}
CHANNELS["features.8"] = (256, 256, 16)
"""Of the first convolutions of VGG-11 at 64 pixels: channels, filters, pixels a side. Pooled to 8 after these."""

ROWS = "[features.0..features.10]"
KERNELS = sum(9 * c * f + f for c, f, _ in CHANNELS.values()) * WIDTH


def row(channels: int, pixels: int, batch: float = BATCH) -> float:
    """Bytes of one row of an image: what a 3x3 kernel needs from each neighbour."""
    return batch * channels * pixels * WIDTH


def test_spatial() -> None:
    """Dryden et al. 2019: a border of x before each convolution, of dy before each gradient of x but the first's.

    What leaves the part is gathered; gradients of the kernels are summed.
    """
    made = program(VGG, f"spatial4{ROWS}", BATCH)
    assert traffic(made) == {
        ("exchange", "spatial", "activations"): (4, sum(row(c, n) for c, _, n in CHANNELS.values())),
        ("exchange", "spatial", "gradients"): (3, sum(row(f, n) for _, f, n in list(CHANNELS.values())[1:])),
        ("all-gather", "spatial", "activations"): (1, BATCH * 256 * 8 * 8 * WIDTH / 4),
        ("all-reduce", "spatial", "weight gradients"): (2, KERNELS),
    }
    assert {m.messages for m, _ in made.communications(made.kinds[0]) if m.kind == "exchange"} == {2}


def test_spatial_with_strides() -> None:
    """ResNet: a 7x7 kernel with stride 2 and border 3 reads three rows before its share and two after it.

    A 3x3 kernel with stride 2 and border 1 reads one before and none after; a 1x1 kernel reads none.
    """
    made = program("resnet18:image=64", "spatial4", BATCH)
    first, _ = one(made, "exchange", "conv1")
    assert first.payload * first.messages == 5 * row(3, 64)
    pooled = [m for m, _ in made.communications(made.kinds[0]) if (m.kind, m.path) == ("exchange", "maxpool")]
    assert {(m.what, m.payload * m.messages) for m in pooled} == {
        ("activations", row(64, 32)),
        ("gradients", row(64, 16)),
    }
    halved = [m for m, _ in made.communications(made.kinds[0]) if (m.kind, m.path) == ("exchange", "layer2.0.conv1")]
    assert {(m.what, m.payload * m.messages) for m in halved} == {
        ("activations", row(64, 16)),
        ("gradients", row(128, 8)),
    }
    assert not [m for m, _ in made.communications(made.kinds[0]) if "downsample.0" in m.path]


def test_one_neighbour_of_two() -> None:
    """With two ranks nobody has a neighbour on both sides: one message an exchange, of as many rows as the larger."""
    made = program(VGG, f"spatial2{ROWS}", BATCH)
    exchanges = [m for m, _ in made.communications(made.kinds[0]) if m.kind == "exchange"]
    assert {m.messages for m in exchanges} == {1}
    rows = {m.path: m.payload for m in exchanges if m.what == "activations"}
    assert rows == {path: row(c, n) for path, (c, _, n) in CHANNELS.items()}
    first, _ = one(program("resnet18:image=64", "spatial2", BATCH), "exchange", "conv1")
    assert (first.messages, first.payload) == (1, 3 * row(3, 64))


def test_spatial_grid() -> None:
    """A border along each direction, of a row or column of the own tile; sums over all ranks of the grid."""
    made = program(VGG, f"spatial4x4{ROWS}", BATCH)
    inward = sum(row(c, n) / 4 for c, _, n in CHANNELS.values())
    outward = sum(row(f, n) / 4 for _, f, n in list(CHANNELS.values())[1:])
    assert traffic(made) == {
        ("exchange", "spatial.0", "activations"): (4, inward),
        ("exchange", "spatial.1", "activations"): (4, inward),
        ("exchange", "spatial.0", "gradients"): (3, outward),
        ("exchange", "spatial.1", "gradients"): (3, outward),
        ("all-gather", "spatial.0+spatial.1", "activations"): (1, BATCH * 256 * 8 * 8 * WIDTH / 16),
        ("all-reduce", "spatial.0+spatial.1", "weight gradients"): (2, KERNELS),
    }


def test_data_and_spatial() -> None:
    """ds: borders of the own part of the batch; kernels are summed over all ranks, the rest over the groups."""
    made = program(VGG, f"dp2 spatial4{ROWS}", BATCH)
    half = BATCH / 2
    everything = program(VGG, "dp2", BATCH).stages[0].memory.parameters * WIDTH
    found = traffic(made)
    rest = found.pop(("all-reduce", "dp", "weight gradients"))
    assert rest[1] == everything - KERNELS
    assert found == {
        ("exchange", "spatial", "activations"): (4, sum(row(c, n, half) for c, _, n in CHANNELS.values())),
        ("exchange", "spatial", "gradients"): (3, sum(row(f, n, half) for _, f, n in list(CHANNELS.values())[1:])),
        ("all-gather", "spatial", "activations"): (1, half * 256 * 8 * 8 * WIDTH / 4),
        ("all-reduce", "dp+spatial", "weight gradients"): (2, KERNELS),
    }


def test_synchronised_batch_norm() -> None:
    """Peng et al. 2018, section 3.3: a sum and a sum of squares of each channel forward, two sums backward."""
    channels = (64, 128, 256, 256, 512, 512, 512, 512)
    plain = traffic(program(f"{VGG},norm=true", "dp4", BATCH))
    found = traffic(program(f"{VGG},norm=true", "dp4 +syncbn", BATCH))
    assert found.pop(("all-reduce", "dp", "statistics")) == (2 * 8, 2 * sum(2 * c for c in channels) * WIDTH)
    assert found == plain


# Training over time. ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "ssp,s3", "async"])
@pytest.mark.parametrize("servers", [1, 2, 4])
def test_parameter_server(mode: str, servers: int) -> None:
    """Li et al. 2014: each rank sends all its gradients and asks for all weights, however many servers share them."""
    assert traffic(program(LLAMA.model, f"ps4:{mode},k{servers}", BATCH)) == {
        ("push", "ps", "weight gradients"): (1, WEIGHTS),
        ("pull", "ps", "weights"): (1, WEIGHTS),
    }


def test_parameter_server_in_groups() -> None:
    """Hierarchical servers: to the group's server, from there to the next level, and back the same way."""
    made = program(LLAMA.model, "ps8:sync,k2,group2", BATCH)
    messages = [(m.kind, m.axes, m.ranks, m.payload) for m, _ in made.communications(made.kinds[0])]
    assert messages == [
        ("push", ("ps.group",), 2, WEIGHTS),
        ("push", ("ps",), 4, WEIGHTS),
        ("pull", ("ps",), 4, WEIGHTS),
        ("pull", ("ps.group",), 2, WEIGHTS),
    ]


@pytest.mark.parametrize("tau", [1, 10])
def test_local_steps(tau: int) -> None:
    """Stich 2019: weights, not gradients, are averaged every tau steps."""
    (key, (count, payload)), *others = traffic(program(LLAMA.model, f"local8:tau{tau}", BATCH)).items()
    assert not others
    assert key == ("all-reduce", "local", "weights")
    assert (count * tau, payload * tau) == pytest.approx((1, WEIGHTS))


@pytest.mark.parametrize(("plan", "axis", "neighbours"), [("gossip8", "gossip", 1), ("ring8", "ring", 2)])
def test_averaging_with_neighbours(plan: str, axis: str, neighbours: int) -> None:
    """Blot et al. 2016: with one other; Lian et al. 2017: with both neighbours on a ring. All weights each time."""
    made = program(LLAMA.model, plan, BATCH)
    assert traffic(made) == {("exchange", axis, "weights"): (1, WEIGHTS)}
    assert sent(made) == neighbours * WEIGHTS


# Policies. -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["block", "full"])
def test_recompute_communicates_again(policy: str) -> None:
    """Narayanan et al. 2021, section 3.5: the second forward pass of a layer has its two all-reduces too."""
    plain = traffic(program(LLAMA.model, "tp4", BATCH, FUSED))
    times = 2 * LLAMA.layers + 1 + 2 * LLAMA.layers
    plain["all-reduce", "tp", "activations"] = (times, times * states(BATCH))
    assert traffic(program(LLAMA.model, f"tp4 +recompute:{policy}", BATCH, FUSED)) == plain


def test_recompute_of_attention_communicates_nothing_more() -> None:
    """Korthikanti et al. 2022, section 5: the core of attention is on one tensor rank."""
    plain = traffic(program(LLAMA.model, "tp4", BATCH, FUSED))
    assert traffic(program(LLAMA.model, "tp4 +recompute:attention", BATCH, FUSED)) == plain


def test_recompute_gathers_weights_no_more_often() -> None:
    """A layer's weights are gathered for its backward pass, before it runs again."""
    plain = traffic(program(LLAMA.model, "dp4:zero3", BATCH))
    assert traffic(program(LLAMA.model, "dp4:zero3 +recompute:block", BATCH)) == plain


@pytest.mark.parametrize(("storage", "sums", "gathers"), [("", 1, 0), (":zero1", 1, 1), (":zero2", 4, 1)])
def test_accumulation(storage: str, sums: int, gathers: int) -> None:
    """DDP and ZeRO-1 sum once a step (no_sync); where gradients lie in shares each micro-batch's are summed.

    ZeRO, section 5.2: a gradient that is reduced is no longer needed elsewhere. DeepSpeed and FSDP2 do so.
    """
    found = traffic(program(LLAMA.model, f"dp4{storage} +m4", 16))
    kind = "reduce-scatter" if storage else "all-reduce"
    assert found.pop((kind, "dp", "weight gradients")) == (sums, WEIGHTS * sums)
    assert found == ({("all-gather", "dp", "weights"): (gathers, WEIGHTS / 4)} if gathers else {})


def test_accumulation_gathers_weights_each_time() -> None:
    """FSDP: every micro-batch gathers and reduces for itself."""
    once, four = traffic(program(LLAMA.model, "dp4:zero3", 4)), traffic(program(LLAMA.model, "dp4:zero3 +m4", 16))
    assert four == {key: (4 * count, 4 * payload) for key, (count, payload) in once.items()}


# Trainers' own ways. -----------------------------------------------------------------------------------


def test_megatron_pads_the_vocabulary() -> None:
    """To a multiple of 128 times the tensor ranks (Megatron-LM, tokenizer): GPT-2's 50,257 words are 51,200 on 8."""
    made = program("gpt2-medium", "tp8 +bf16", 1, changed("megatron-lm-2021", "tensor"))
    heads = [action.loops["out"] for action, _ in made.computations(made.kinds[0]) if action.path == "head"]
    assert set(heads) == {51_200 // 8}


def test_pipelines_that_do_not_flush_update_after_each_micro_batch() -> None:
    """PipeDream (Narayanan et al. 2019): gradients are summed and weights updated for each of them, and rank r of p
    keeps p - r versions of its weights."""
    flushed, stashed = (program(DEEP.model, f"dp2 pp4:{word} +m8", 16) for word in ("1f1b", "stash"))
    sums = ("all-reduce", "dp", "weight gradients")
    assert traffic(stashed)[sums] == tuple(8 * figure for figure in traffic(flushed)[sums])
    for place in range(4):
        weights = flushed.stages[place].memory.weights
        assert stashed.stages[place].memory.weights == (4 - place) * weights


def test_torchtitan_gathers_once_a_step_in_a_pipeline() -> None:
    """torch's pipelining: no sum and no letting go before the last micro-batch."""
    found = traffic(program(DEEP.model, "pp2:1f1b dp2:zero3 +m4", 8, "torchtitan"))
    units = DEEP.layers // 2 + 1
    assert found["all-gather", "dp", "weights"][0] == found["reduce-scatter", "dp", "weight gradients"][0] == units


def test_recomputing_more_layers_together_keeps_less() -> None:
    """Chen et al. 2016: the input of each segment. Of a whole model nothing but what the loss keeps: the last norm's
    input, output and statistics go too."""
    kept = [
        program(DEEP.model, f"dp1 +recompute:{word}", 1).stages[0].memory.kept for word in ("block", "every4", "full")
    ]
    hidden = DEEP.seq * DEEP.hidden * WIDTH
    assert kept[0] - kept[1] == pytest.approx((8 - 2) * hidden)
    assert kept[0] - kept[2] == pytest.approx((8 + 2) * hidden + DEEP.seq * WIDTH)


def test_activations_on_the_host_are_not_on_the_device() -> None:
    usual, away = (program(DEEP.model, f"dp1{more}", 1) for more in ("", " +offload:activations"))
    assert away.stages[0].memory.kept < usual.stages[0].memory.kept / 3
    out = sum(
        a.bytes * times
        for body, times, _ in away.walk(away.kinds[0])
        for a in body.actions
        if isinstance(a, Copy) and a.to_host
    )
    assert out == pytest.approx(usual.stages[0].memory.kept, rel=0.05)


def test_a_tied_table_is_one_weight_on_a_rank() -> None:
    """A folded pipeline has both ends on rank 0."""
    plain, tied = (
        program(DEEP.model.replace("tied=false", f"tied={word}"), "pp4:zb-v dp2 +m8", 16) for word in ("false", "true")
    )
    table = DEEP.vocab * DEEP.hidden
    held = [sum(made.stages[at].memory.parameters for at in made.kinds[0].stages) for made in (plain, tied)]
    assert held[0] - held[1] == table


@pytest.mark.parametrize(("precision", "width"), [("bf16", 2), ("fp8", 1), ("mxfp8", 33 / 32)])
def test_transformer_engine_gathers_what_it_cast(precision: str, width: float) -> None:
    """Inputs of column-split products, in both passes, and gradients of row-split ones; sums stay in 16 bits."""
    model = LLAMA._replace(dtype="bf16")
    made = program(model.model, f"tp2:sp +{precision}", BATCH, "megatron-core")
    gathers = {(m.path, m.payload) for m, _ in made.communications(made.kinds[0]) if m.kind == "all-gather"}
    inside = {payload for path, payload in gathers if path.startswith("layers")}
    assert inside == {model.hidden_states(BATCH) // 2 * width}
    sums = {
        m.payload for m, _ in made.communications(made.kinds[0]) if m.kind == "reduce-scatter" and "layers" in m.path
    }
    assert sums == {model.hidden_states(BATCH) * 2}
