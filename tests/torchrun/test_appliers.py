"""The two laws of everything that runs: it trains exactly as one process does, and it says what the program says.

A run is made in double precision; its losses and weights are those of one process up to rounding. The collectives
that it was seen to make are those of the program, in single precision, which is half the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import torch
from equalities import (
    BERT,
    BOX,
    CNN,
    DEEP,
    DEEPSEEK,
    LENET,
    LLAMA,
    MIXTURE,
    NORMED,
    TIED,
    VIT,
    alone,
    assert_same_collectives,
    assert_same_values,
    assignment,
    double,
    half,
    trained,
)

from foretell import modules
from foretell.errors import BadInput
from foretell.program.action import Communicate
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime.assignment import Collective
from foretell.runtime.expected import expected
from foretell.runtime.launch import Ranks

CASES = (
    (LLAMA, "dp2 +bucket:1MB +overlap +eager"),
    (LLAMA, "dp2:zero3 +m2"),
    (LLAMA, "tp2:sp"),
    (DEEP, "pp2:1f1b,split=1/3 +m2 +fp32"),
    (LLAMA, "dp4 +m2 +tf32"),
    (LLAMA, "dp2 +recompute:full"),
    (LLAMA, "dp4:zero3 +recompute:block"),
    (LLAMA, "dp2 +recompute:operators"),
    (LLAMA, "dp2:zero3 +recompute:attention,mlp"),
    (MIXTURE, "dp2 +recompute:moe"),
    (
        f"{DEEPSEEK.replace('first_dense=2', 'first_dense=1')},experts=4,top_k=2,expert_ffn=12,groups=2,top_groups=1",
        "dp2 +recompute:shared_experts",
    ),
    (LLAMA, "dp2:zero3,shard2"),
    (LLAMA, "tp2 +m2"),
    (f"{LLAMA},qk_norm=true,qkv_bias=true", "tp2:sp +m2"),
    (LLAMA, "dp2 tp2:sp"),
    (LLAMA, "dp2:zero3 tp2:sp +m2"),
    (DEEP, "pp2:gpipe +m4"),
    (DEEP, "pp2:interleaved +m4"),
    (DEEP, "pp4:1f1b +m4"),
    (TIED, "tp2:sp +m2"),
    (TIED, "dp2:zero3 tp2"),
    (TIED, "pp2:1f1b dp2 +m2"),
    (TIED, "pp4:gpipe +m4"),
    (DEEP, "pp2:zb-v +m4"),
    (DEEP, "pp2:dualpipe-v +m4"),
    (DEEP, "pp4:dualpipe +m8"),
    (DEEP, "pp2:dualpipe +m4"),
    (TIED, "pp2:zb-h1 +m4"),
    (TIED, "pp2:zb-v dp2 +m4"),  # a rank has the table and the head
    (TIED, "pp2:1f1b tp2:sp +m2"),
    (TIED, "pp2:dualpipe-v tp2 +m4"),
    (DEEP, "pp2:1f1b,split=3/1 dp2 +m2"),
    (DEEP, "pp2:interleaved dp2 +m2"),
    (DEEP, "pp2:1f1b tp2:sp +m2"),
    (CNN, "dp2 +m2"),
    (CNN, "dp4:zero3"),
    (CNN, "pp2:1f1b +m2"),
    (CNN, "pp2:gpipe dp2 +m2"),
    (CNN, "dp2 +recompute:block"),
    (CNN, "filter2"),
    (CNN, "dp2 filter2 +m2"),
    (CNN, "pp2:1f1b filter2 +m2"),
    (CNN, "channel2"),
    (LENET, "dp2 channel2"),
    (LENET, "dp2:zero3 filter2"),
    (NORMED, "dp2 +syncbn"),
    (LLAMA, "pp2:gpipe dp2 tp2 +m2"),
    (TIED.replace("vocab=40", "vocab=41"), "tp2"),
    (LLAMA, "cp4:ring"),
    (LLAMA, "dp2 cp2:alltoall +m2"),
    (LLAMA, "cp2:ring tp2:sp"),
    (LLAMA, "dp2:zero3 cp2:ring"),
    (TIED, "cp2:ring +m2"),
    (DEEP, "pp2:1f1b cp2:ring +m2"),
    (DEEP, "pp2:zb-h1 dp2 +m4"),
    (DEEP, "pp2:zb-v dp2 +m4"),
    (DEEP, "dp2 +recompute:every2"),
    (DEEP, "dp2:zero3 +recompute:first1"),
    (DEEP, "pp2:1f1b +m2 +recompute:nth2"),
    (DEEP, "cp2:alltoall +recompute:attention"),
    (DEEP, "dp2 +no-overlap +m2"),
    (MIXTURE, "tp2"),
    (BERT, "dp2 tp2 +m2"),
    (VIT, "dp2:zero3 tp2"),
    (DEEPSEEK, "dp2 cp2:ring"),
    (CNN, "filter2[blocks.2.*]"),
    (LLAMA, "cp2:alltoall dp2"),  # the other way round
    (LENET, "filter4[classifier.*]"),  # ten classes: the last rank has one
    (LENET, "pp4:zb-h1 +m8"),  # a stage ends in a view
    (LLAMA, "dp2 +offload:optimizer,activations"),
    (LLAMA, "dp2 +offload:optimizer,weights"),
    (TIED, "pp2:1f1b dp2 +m2 +offload:optimizer,activations,weights"),
    (LLAMA, "dp2:zero3 +offload:optimizer,activations +recompute:block"),
    (LENET, "channel4[classifier.*]"),
    (LENET, "filter2[classifier*]:data"),  # convolutions by samples, dense layers by weights
    (LENET, "dp2 filter2[classifier*]:data +m2"),
    (LENET, "channel2[classifier*]:data"),
    (CNN, "channel4[fc]:data"),
    (CNN, "filter2[blocks.1.conv,blocks.3.around]:data"),  # in the middle, between layers of other samples
    (LENET, "dp2:zero3 filter2[classifier*]:data"),
    (NORMED, "channel2[fc]:data +syncbn"),
    (NORMED, "dp2 filter2[blocks.3.conv]:data +syncbn"),
)


def _name(case: tuple[str, str]) -> str:
    model, plan = case
    return f"{Path(model).name.partition(',')[0]} {plan}"


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_it_trains_and_talks_as_it_should(ranks: Ranks, case: tuple[str, str]) -> None:
    model, plan = case
    found = trained(ranks, model, plan)
    assert_same_values(found, alone(ranks, model))
    assert_same_collectives(model, plan, found.reports)


NO_BORDER = (
    (CNN, "filter2[blocks.1]:data", r"change hands at blocks\.1, which is no layer"),  # the sum of two layers
    (CNN, "pp2:1f1b channel2[fc]:data +m2", r"channel2\[fc\]:data beside pp does not run yet"),
    (DEEP, "filter2[head]:data +lora4", r"filter2\[head\]:data beside adapters does not run yet"),
)


@pytest.mark.parametrize(("model", "plan", "why"), NO_BORDER)
def test_samples_do_not_change_hands_where_nothing_can_be_put(ranks: Ranks, model: str, plan: str, why: str) -> None:
    with pytest.raises(BadInput, match=f"(?s){why}"):
        ranks.run(assignment(model, plan))


UNEQUAL = (
    "dp2:shares=3/1",
    "dp2:shares=1/3 +m2",  # one micro-batch of two samples, and three
    "dp4:zero1,shares=3/1 +m2",
    "dp2:zero3,shares=3/1 +m2",
    "dp2:zero3,shard2,shares=1/1/3/3",
)


@pytest.mark.parametrize("plan", UNEQUAL)
def test_unequal_shares_train_as_one_process(ranks: Ranks, plan: str) -> None:
    """The loss of each rank counts by its samples; micro-batches are as large everywhere, or as many."""
    found = trained(ranks, LLAMA, plan)
    assert_same_values(found, alone(ranks, LLAMA))


@pytest.mark.parametrize(
    ("plan", "why"), [("dp2:shares=5/1", "no shares of these sizes"), ("dp2:shares=3/1 tp2", "beside tp do not run")]
)
def test_shares_that_do_not_run_are_refused(ranks: Ranks, plan: str, why: str) -> None:
    with pytest.raises(BadInput, match=f"(?s){why}"):
        ranks.run(assignment(LLAMA, plan))


LOCAL_NORMS = ((NORMED, "dp2"), (NORMED, "pp2:1f1b +m2"))


@pytest.mark.parametrize("case", LOCAL_NORMS, ids=_name)
def test_batch_norm_sees_the_samples_of_its_rank_and_pass(ranks: Ranks, case: tuple[str, str]) -> None:
    model, plan = case
    found = trained(ranks, model, plan)
    assert_same_values(found, alone(ranks, model, "dp1 +m2"))
    with pytest.raises(AssertionError):
        assert_same_values(found, alone(ranks, model))


IN_SHARES = (
    (CNN, "spatial2"),
    (CNN, "dp2 spatial2 +m2"),
    (CNN, "spatial3"),
    (LENET, "spatial2"),
    (NORMED, "dp2 spatial2 +syncbn"),
    (NORMED, "spatial2x2 +syncbn"),
    (LENET, "spatial2x2"),
    (BOX, "spatial2"),
    (BOX, "spatial1x2x2"),
    (CNN, "pp2:1f1b spatial2 +m2"),
    (CNN, "spatial2 filter2"),
    (CNN, "spatial2[blocks.0..blocks.1]"),
    (CNN, "spatial2 +recompute:block"),
    (CNN, "dp2:zero3 spatial2"),
    (NORMED, "spatial2 dp2:zero3 +syncbn"),
    (NORMED, "spatial2[blocks.1..blocks.2]:data +syncbn"),
    (CNN, "dp2 spatial2[blocks.0..blocks.2]:data"),
)


@pytest.mark.parametrize("case", IN_SHARES, ids=_name)
def test_images_in_shares(ranks: Ranks, case: tuple[str, str]) -> None:
    """Sums are those of the program; so are the rows that travel forward, where two ranks divide padded layers.

    Backward a run gives back the gradients of the rows that it fetched, but those of images, which have none. The
    program sends those of the outputs: as many rows, but of other sizes where a layer strides, or has more filters
    than channels.
    """
    model, plan = case
    found = trained(ranks, model, plan)
    assert_same_values(found, alone(ranks, model))
    program = expand(lower(assignment(model, plan).setting))
    by_share = "filter" in plan or ":data" in plan
    largest = [report for report in found.reports if not by_share or not report.place["spatial"]]
    for report in largest:  # the program's; what filters gather of smaller shares, and what becomes samples, is less
        said, ran = (
            [one for one in side if one.kind not in MESSAGES or one.axes == ("pp",)]
            for side in (expected(program, report.place.get("pp", 0)), half(report.collectives))
        )
        assert [one for one in ran if one.axes != ("pp",)] == [one for one in said if one.axes != ("pp",)]
        assert [one.count for one in ran if one.axes == ("pp",)] == [one.count for one in said if one.axes == ("pp",)]
        fetched, given_back = (
            _rows(report.collectives, "receive", "forward"),
            _rows(report.collectives, "send", "backward"),
        )
        assert given_back and (given_back <= fetched or "recompute" in plan)  # which fetches rows again
    if model == CNN and plan in ("spatial2", "dp2 spatial2 +m2"):
        # shares of odd sizes begin elsewhere: others fetch a row more, or less
        rows = {message.payload for message, _ in program.communications(program.kinds[0]) if _goes_forward(message)}
        ran = {one.payload // 2 for report in found.reports for one in report.collectives if _went_forward(one)}
        assert ran == rows


MESSAGES = ("send", "receive")


def _rows(found: Sequence[Collective], kind: str, phase: str) -> Counter[tuple[tuple[str, ...], int]]:
    """Rows of neighbours that went in one direction, by axis and size."""
    seen = [one for one in found if (one.kind, one.phase) == (kind, phase) and one.axes[0].startswith("spatial")]
    return Counter({(one.axes, one.payload): one.count for one in seen})


def _goes_forward(message: Communicate) -> bool:
    return message.kind == "exchange" and message.what == "activations"


def _went_forward(one: Collective) -> bool:
    return one.kind in ("send", "receive") and one.phase == "forward"


WITH_ADAPTERS = (
    "dp2 +lora4",
    "pp2:1f1b cp2:ring +m2 +lora4",
    "dp2:zero3 +lora4",
    "tp2 +lora4",
    "dp2:zero3 tp2:sp +lora4 +recompute:block",
    "filter2 +lora4",
    "dp2 channel2 +lora4",
    "pp2:zb-v +m4 +lora4",
)


@pytest.mark.parametrize("plan", WITH_ADAPTERS)
def test_adapters_alone_are_trained(ranks: Ranks, plan: str) -> None:
    found = trained(ranks, DEEP, plan)
    assert_same_values(found, alone(ranks, DEEP, "dp1 +lora4"))
    torch.manual_seed(0)
    for name, weight in modules.build(double(DEEP)).named_parameters():
        assert torch.equal(weight, found.weights[name]), f"{name} is frozen"
    assert_same_collectives(DEEP, plan, found.reports)


ADAPTERS_OF_SOME = (
    ("dp2 +lora4 +adapt:attention", "dp1 +lora4 +adapt:attention"),
    ("tp2 +lora4 +adapt:query,value", "dp1 +lora4 +adapt:query,value"),
    ("dp2 +lora4 +adapt:key,output,feed_forward", "dp1 +lora4 +adapt:key,output,feed_forward"),
    ("pp2:1f1b +m2 +lora4 +adapt:embeddings", "dp1 +lora4 +adapt:embeddings"),
    ("dp2 +lora4 +nf4", "dp1 +lora4 +nf4"),
    ("dp2 +lora4 +fp32-adapters", "dp1 +lora4"),
    ("dp2:zero3 +lora4 +dora", "dp1 +lora4 +dora"),
    ("pp2:1f1b +m2 +lora4 +dora,rslora +recompute:block", "dp1 +lora4 +dora"),
    ("pp2:1f1b dp2 +m2 +lora4 +nf4 +recompute:block", "dp1 +lora4 +nf4"),
)


@pytest.mark.parametrize(("plan", "single"), ADAPTERS_OF_SOME)
def test_adapters_of_some_layers_and_packed_weights(ranks: Ranks, plan: str, single: str) -> None:
    found = trained(ranks, DEEP, plan)
    assert_same_values(found, alone(ranks, DEEP, single))
    assert_same_collectives(DEEP, plan, found.reports)


SOME_TRAINED = (
    (DEEP, "dp2:zero3 +recompute:block +train:last2", "dp1 +train:last2"),
    (DEEP, "pp2:1f1b +m2 +train:embeddings,norms", "dp1 +train:embeddings,norms"),
    (DEEP, "dp2 tp2 +train:attention,head", "dp1 +train:attention,head"),
    (TIED, "dp2 +train:biases,feed_forward", "dp1 +train:biases,feed_forward"),
)


@pytest.mark.parametrize(("model", "plan", "single"), SOME_TRAINED)
def test_parts_of_a_model_are_trained(ranks: Ranks, model: str, plan: str, single: str) -> None:
    found, one = trained(ranks, model, plan), alone(ranks, model, single)
    assert_same_values(found, one)
    if "zero3" in plan:  # torch gathers the layer before the first that is trained ahead, which nobody reads
        said = expected(expand(lower(assignment(model, plan).setting)), 0)
        assert [(a.payload, a.count - b.count) for a, b in zip(half(found.reports[0].collectives), said, strict=True)
                if a != b] == [(3904, 1)]  # fmt: skip
    else:
        assert_same_collectives(model, plan, found.reports)
    torch.manual_seed(0)
    before = dict(modules.build(double(model)).named_parameters())
    kept = [name for name, weight in found.weights.items() if torch.equal(before[name], weight)]
    assert 0 < len(kept) < len(before)


EXPERTS_WITH_ADAPTERS = ("tp2 +lora4", "dp2:ep2 tp2:sp +lora4", "dp2:zero3,ep2 +lora4")


@pytest.mark.parametrize("plan", EXPERTS_WITH_ADAPTERS)
def test_adapters_of_experts(ranks: Ranks, plan: str) -> None:
    found = trained(ranks, MIXTURE, plan)
    assert_same_values(found, alone(ranks, MIXTURE, "dp1 +lora4"))
    if plan == "tp2 +lora4":
        assert_same_collectives(MIXTURE, plan, found.reports)


# Where torch does something else than the program says: both sides are pinned, with the reason. -----------------


def _bytes(found: Iterable[Collective]) -> dict[tuple[str, tuple[str, ...]], int]:
    sums: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for one in found:
        sums[one.kind, one.axes] += one.payload * one.count
    return dict(sums)


def _counts(found: Sequence[Collective]) -> Counter[tuple[str, tuple[str, ...], int]]:
    return Counter({(one.kind, one.axes, one.payload): one.count for one in found})


SUMMED_FOR_EVERYBODY = ("dp2:zero1", "pp2:1f1b dp2:zero1 +m2")


@pytest.mark.parametrize("plan", SUMMED_FOR_EVERYBODY)
def test_torch_sums_for_everybody_under_zero1(ranks: Ranks, plan: str) -> None:
    """DistributedDataParallel all-reduces; ZeroRedundancyOptimizer then sends each weight from the rank that has it.

    The program says what ZeRO's paper says: a reduce-scatter, and one all-gather.
    """
    found = trained(ranks, DEEP, plan)
    assert_same_values(found, alone(ranks, DEEP))
    said = _bytes(expected(expand(lower(assignment(DEEP, plan).setting))))
    ran = _bytes(half(found.reports[0].collectives))
    along = ("dp",)
    weights = said.pop(("reduce-scatter", along))
    assert said.pop(("all-gather", along)) == weights // 2
    assert ran.pop(("all-reduce", along)) == weights
    assert ran.pop(("broadcast", along)) == weights
    assert ran == said


GATHERED_BY_LAYER = ("dp2:zero2", "dp2:zero2 +m2")


@pytest.mark.parametrize("plan", GATHERED_BY_LAYER)
def test_torch_gathers_and_sums_layer_by_layer_under_zero2(ranks: Ranks, plan: str) -> None:
    """FSDP2 gathers each layer in the forward pass; the program gathers all weights at once after the update."""
    found = trained(ranks, LLAMA, plan)
    assert_same_values(found, alone(ranks, LLAMA))
    said, ran = expected(expand(lower(assignment(LLAMA, plan).setting))), half(found.reports[0].collectives)
    assert _bytes(ran) == _bytes(said)
    assert sum(one.count for one in ran) == 3 * sum(one.count for one in said)  # two layers, and what is in none


NOT_FINISHED = (
    "tp2 +recompute:block",
    "dp2 tp2:sp +recompute:block",
    "tp2 +recompute:block +partitioned",
    "dp2 tp2 +recompute:block +partitioned",
    "tp2 +recompute:block +partitioned +offload:activations",
)


@pytest.mark.parametrize("plan", NOT_FINISHED)
def test_torch_does_not_finish_what_it_recomputes(ranks: Ranks, plan: str) -> None:
    """`torch.utils.checkpoint` stops when it has the last tensor that was saved: before a layer's last product.

    The program runs a layer again to its end, with the sum over the tensor ranks there.
    """
    found = trained(ranks, LLAMA, plan)
    assert_same_values(found, alone(ranks, LLAMA))
    said = _counts(expected(expand(lower(assignment(LLAMA, plan).setting))))
    ran = _counts(half(found.reports[0].collectives))
    (missing,) = (said - ran).items()
    assert ran - said == Counter()
    (kind, axes, _), count = missing
    assert (kind, axes, count) == ("reduce-scatter" if ":sp" in plan else "all-reduce", ("tp",), 2)  # one a layer


KEPT = ("pp2:1f1b dp2:zero3 +m2",)


@pytest.mark.parametrize("plan", KEPT)
def test_torch_keeps_weights_from_the_first_backward_pass_of_a_pipeline(ranks: Ranks, plan: str) -> None:
    """The pipeline tells FSDP2 not to let go of weights after a backward pass; the program gathers them for each."""
    found = trained(ranks, DEEP, plan)
    assert_same_values(found, alone(ranks, DEEP))
    said = _counts(expected(expand(lower(assignment(DEEP, plan).setting))))
    ran = _counts(half(found.reports[0].collectives))
    assert ran - said == Counter()
    assert {kind for kind, _, _ in said - ran} == {"all-gather"}
    assert sorted((said - ran).values()) == [1, 2]  # of the table once, and of both layers in the second pass


HALVES = (
    "pp2:zb-h1 dp2:zero3 +m4",
    "pp2:zb-v dp2:zero2 +m4",
    "pp2:dualpipe dp2:zero3 +m4",
    "pp2:dualpipe-v dp2:zero3 +m4",
)


@pytest.mark.parametrize("plan", HALVES)
def test_half_passes_find_weights_that_lie_in_shares(ranks: Ranks, plan: str) -> None:
    """Gradients are summed into shares once a step. Weights are brought together for each half of a pass, where the
    program has them stay."""
    found = trained(ranks, DEEP, plan)
    assert_same_values(found, alone(ranks, DEEP))
    for report in found.reports:
        said = expected(expand(lower(assignment(DEEP, plan).setting)), report.place["pp"])
        ran = half(report.collectives)
        assert _bytes(one for one in ran if one.kind != "all-gather") == _bytes(
            one for one in said if one.kind != "all-gather"
        )


# Experts: whoever is chosen decides how many rows go where. --------------------------------------------------------

DIVIDED = (
    "dp4:ep4",
    "dp4:ep2 +m2",
    "dp2:ep2,etp1 tp2:sp",
    "dp2:ep4,etp1 tp2:sp",
    "dp4:zero3,ep2",
    "pp2:1f1b dp2:ep2 +m2",
)


@pytest.mark.parametrize("plan", DIVIDED)
def test_rows_go_where_their_experts_are(ranks: Ranks, plan: str) -> None:
    """The program says that ranks have equal loads. Those of a run are not; their mean is what the program says.

    Beside them go the numbers of rows, an all-to-all a layer and pass that the program leaves out.
    """
    found = trained(ranks, MIXTURE, plan)
    assert_same_values(found, alone(ranks, MIXTURE))
    program = expand(lower(assignment(MIXTURE, plan).setting))
    sums: Counter[str] = Counter()
    for report in found.reports:
        said, ran = expected(program, report.place.get("pp", 0)), half(report.collectives)
        assert [one for one in ran if one.kind != "all-to-all"] == [one for one in said if one.kind != "all-to-all"]
        numbers = [one for one in ran if one.kind == "all-to-all" and one.payload == 4 * EXPERTS]
        rows = [one for one in ran if one.kind == "all-to-all" and one not in numbers]
        assert {one.axes for one in rows} == {one.axes for one in said if one.kind == "all-to-all"}
        assert _times(rows) == 4 * _times(numbers) == sum(one.count for one in said if one.kind == "all-to-all")
        sums["ran"] += sum(one.payload * one.count for one in rows)
        sums["said"] += sum(one.payload * one.count for one in said if one.kind == "all-to-all")
    assert sums["ran"] == sums["said"]


LIMITED = (
    f"{DEEPSEEK.replace('first_dense=2', 'first_dense=1')},experts=8,top_k=2,expert_ffn=12,shared_experts=1,"
    "groups=4,top_groups=2,group_best=1"
)
"""A shared expert beside eight, of which a token reaches those of two groups of four."""


@pytest.mark.parametrize("plan", ["dp4:ep4", "dp4:zero3,ep2", "dp4:zero1,ep2", "pp2:1f1b dp2:ep2 +m2"])
def test_limited_routing_and_shared_experts_train_in_shares(ranks: Ranks, plan: str) -> None:
    found = trained(ranks, LIMITED, plan)
    assert_same_values(found, alone(ranks, LIMITED))


SHARED = f"{MIXTURE},shared_ffn=24"


@pytest.mark.parametrize("plan", ["dp2:ep2,etp1 tp2:sp", "dp2:ep4,etp1 tp2:sp", "pp2:1f1b dp2:ep2 +m2"])
def test_an_expert_that_all_tokens_share_trains_beside_expert_ranks_of_another_number(ranks: Ranks, plan: str) -> None:
    """Expert ranks over data ranks, and over data and tensor ranks, which share the columns of all else."""
    found = trained(ranks, SHARED, plan)
    assert_same_values(found, alone(ranks, SHARED))


SECOND_TOKEN = f"{LIMITED},mtp=1"


SECOND_TOKEN_PLANS = ("dp4:ep4", "dp4:zero3,ep2", "dp2:zero1 +recompute:block")


@pytest.mark.parametrize("plan", SECOND_TOKEN_PLANS)
def test_a_layer_of_the_second_token_trains_in_shares(ranks: Ranks, plan: str) -> None:
    found = trained(ranks, SECOND_TOKEN, plan)
    assert_same_values(found, alone(ranks, SECOND_TOKEN))


def test_a_stage_that_reads_tokens_late_is_refused(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match=r"mtp\.0 reads tokens on a later stage") as refused:
        trained(ranks, SECOND_TOKEN, "pp2:1f1b dp2:ep2 +m2")
    assert "mtp=0" in str(refused.value)


@pytest.mark.parametrize("way", ["deepep", "hybridep", "allgather"])
def test_other_ways_of_dispatch_are_refused(ranks: Ranks, way: str) -> None:
    with pytest.raises(BadInput, match=f"rows do not go to experts by {way} yet") as refused:
        trained(ranks, MIXTURE, f"dp4:ep4,{way}")
    assert "dp4:ep4,alltoall" in str(refused.value)


EXPERTS_AND_SHARES = (
    "dp4:zero1,ep2",
    "dp4:ep2,alltoall",
    "dp2:ep2,alltoall",
    "dp4:zero2,ep2",
    "dp2:zero1,ep2",
    "dp2:ep2 tp2",
)


@pytest.mark.parametrize("plan", EXPERTS_AND_SHARES)
def test_experts_beside_states_and_columns_in_shares(ranks: Ranks, plan: str) -> None:
    """Of each kind of weight what travels is what the program says, in the way in which torch does it (see above)."""
    found = trained(ranks, MIXTURE, plan)
    assert_same_values(found, alone(ranks, MIXTURE))
    said = _bytes(expected(expand(lower(assignment(MIXTURE, plan).setting))))
    sums: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for report in found.reports:
        sums += Counter(_bytes(half(report.collectives)))
    ran = {key: total / len(found.reports) for key, total in sums.items()}
    for (kind, axes), total in said.items():
        if kind == "all-to-all":  # beside rows, the numbers of them, in the forward pass of both layers
            assert ran[kind, axes] == total + 2 * 4 * EXPERTS
        elif "zero1" not in plan:
            assert ran[kind, axes] == total
        elif kind == "reduce-scatter":
            assert ran["all-reduce", axes] == ran["broadcast", axes] == total


EXPERTS = 4


def _times(found: Sequence[Collective]) -> int:
    return sum(one.count for one in found)


COLUMNS = ("tp2:sp", "dp2:ep2 tp2:sp")


def test_columns_of_experts_are_told_how_many_rows_come(ranks: Ranks) -> None:
    """With shares of the sequence, ranks gather each other's rows, and the numbers of them for each expert."""
    found = trained(ranks, MIXTURE, COLUMNS[0])
    assert_same_values(found, alone(ranks, MIXTURE))
    said = expected(expand(lower(assignment(MIXTURE, COLUMNS[0]).setting)))
    for report in found.reports:
        more = [one for one in half(report.collectives) if one not in said]
        assert [(one.kind, one.payload, one.count) for one in more] == [("all-gather", 4 * EXPERTS, 2)]


def test_columns_of_divided_experts_take_as_many_rows_as_the_rank_with_most(ranks: Ranks) -> None:
    """Rows came from other ranks, to each as many as chose its experts: tensor ranks gather what one has at most."""
    plan = COLUMNS[1]
    found = trained(ranks, MIXTURE, plan)
    assert_same_values(found, alone(ranks, MIXTURE))
    said = expected(expand(lower(assignment(MIXTURE, plan).setting)))
    fixed = [one for one in said if one.kind == "all-reduce"]
    for report in found.reports:
        ran = half(report.collectives)
        assert [one for one in ran if one.kind == "all-reduce"] == fixed
        numbers = {"all-gather": 2, "all-to-all": 2}  # of rows, in the forward pass of both layers
        for kind in ("all-gather", "reduce-scatter", "all-to-all"):
            told = _times([one for one in said if one.kind == kind])
            assert _times([one for one in ran if one.kind == kind]) == told + numbers.get(kind, 0)
