"""Refusals: each rule with its numbers and a way out, for plans that a model, a job or a trainer cannot take."""

from __future__ import annotations

import re

import pytest

from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.plan.facts import extents, facts
from foretell.plan.fitness import fits, refusals
from foretell.plan.job import Job
from foretell.plan.parts import members
from foretell.plan.refusal import Refusal
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from program_cases import load

SIZES = "layers=4,hidden=64,heads=8,vocab=256,head_dim=8,ffn=96"
FEW_KEYS = f"llama:{SIZES},kv_heads=4,seq=32"
ONE_KEY = f"llama:{SIZES},kv_heads=1,seq=32"
SHORT = f"llama:{SIZES},kv_heads=8,seq=24"
GPT = "gpt:layers=12,hidden=48,heads=12,vocab=256,seq=32"
MIXTURE = f"mixture:{SIZES},kv_heads=8,experts=6,top_k=2,seq=32"
VIT = "vit:layers=2,hidden=64,heads=8,image=32,patch=8"
RESNET = "resnet50"
COSMOFLOW = "cosmoflow"


def setting(model: str, plan: str, batch: int = 16, trained_by: str = "pytorch") -> Setting:
    parsed = parse(plan)
    return Setting(load(model, max(1, batch // parsed.microbatches)), Job(batch=batch), parsed, trainer(trained_by))


def refused(model: str, plan: str, batch: int = 16, trained_by: str = "pytorch", on: str = "") -> dict[str, Refusal]:
    found = refusals(setting(model, plan, batch, trained_by), catalog.cluster(on) if on else None)
    return {refusal.rule: refusal for refusal in found}


def way(plan: str) -> str:
    return f"--plan '{plan}'"


ONE_RULE = [
    # Options that one rank cannot follow are refused, not dropped.
    (GPT, "pp1:split=6/6", "stages to schedule", "12 layers", "dp1"),
    (GPT, "pp1:interleaved,v3", "stages to schedule", "pp1 is one stage", "dp1"),
    (GPT, "pp1:gpipe +m4", "stages to schedule", "pp1", "dp1 +m4"),
    (GPT, "dp1:ep8", "experts to divide", "ep8", "dp1"),
    (GPT, "dp8:etp1", "experts to divide", "etp1", "dp8"),
    (GPT, "dp1:shard1", "shares to shard", "shard1", "dp1"),
    (GPT, "dp8:zero3,shard1", "shares to shard", "groups of one rank", "dp8"),
    (GPT, "dp2:shard4", "shares to shard", "shard4 without zero1", "dp2:zero3,shard4"),
    # Groups of servers.
    (GPT, "ps1:group4", "groups divide", "ps1 is not a multiple of group4", "dp1"),
    (GPT, "ps2:group4", "groups divide", "ps2 is not a multiple of group4", "ps2:sync,group2"),
    (GPT, "ps8:group6", "groups divide", "ps8 is not a multiple of group6", "ps8:sync,group4"),
    (GPT, "ps4:k3,group2", "servers on ranks", "3 servers on 2 groups of 2 ranks", "ps4:sync,k2,group2"),
    (GPT, "ps4:k6", "servers on ranks", "6 servers on 4 ranks", "ps4:sync,k4"),
    (GPT, "ps4:s3", "bounded staleness", "s3 with sync", "ps4:ssp,s3"),
    # Axes that share a dim cut it into their product.
    (SHORT, "cp4 tp4:sp", "sequence divides", "24 is not a multiple of cp4 x tp4 = 16", "cp4:ring tp4"),
    (SHORT, "tp8:sp cp2", "sequence divides", "tp8 x cp2 = 16", "tp8 cp2:ring"),
    (SHORT, "cp16", "sequence divides", "24 is not a multiple of cp16", "dp2 cp8:ring"),
    (RESNET, "tp4:sp", "positions to divide", "resnet50 has no sequence", "tp4"),
    (RESNET, "cp4", "positions to divide", "no attention", "dp4"),
    # Images: every rank has a position of every extent that is cut.
    (RESNET, "spatial8", "spatial limit", "height into 8, and it is 7 at layer4.0.conv3 (7x7 = 49", "spatial4x2"),
    (RESNET, "spatial2x2x2", "extents to cut", "spatial2x2x2 cuts 3 extents, and", "spatial4x2"),
    (RESNET, "spatial2x8", "spatial limit", "width into 8, and it is 7", "spatial4x4"),
    (RESNET, "spatial8[layer4]", "spatial limit", "it is 7", "spatial4x2[layer4]"),
    (RESNET, "spatial8[fc]", "spatial limit", "[fc] of resnet50 has no spatial dimension to split", "dp8"),
    (GPT, "spatial2", "spatial limit", "no spatial dimension to split", "dp2"),
    (RESNET, "filter128[layer1]", "filter limit", "has 64 filters only", "dp2 filter64[layer1]"),
    (RESNET, "channel2[maxpool]", "channel limit", "[maxpool] of resnet50 has no channels to split", "dp2"),
    (RESNET, "filter128", "filter limit", "conv1 has 64 filters", "dp2 filter64"),
    # Heads: of keys and values too, unless there is only one for all.
    (FEW_KEYS, "tp8", "heads divide", "4 key and value heads are not a multiple of tp8", "dp2 tp4"),
    # Experts.
    (MIXTURE, "dp4:ep4", "experts divide", "6 experts are not a multiple of ep4", "dp4:ep2"),
    (MIXTURE, "dp4:ep3", "experts fold", "ep3 does not fold over 4 data ranks", "dp4:ep2"),
    (MIXTURE, "dp4:deepep", "rows to dispatch", "deepep is how rows reach experts of other ranks", "dp4"),
    (MIXTURE, "dp4:ep2,etp4 tp2", "expert tensor ranks", "etp4", "dp4:ep2 tp2"),
    # Versions and shares of weights.
    (
        GPT,
        "ps4 dp2:zero1",
        "one way to keep versions",
        "ps4 keeps versions of whole weights, and zero1",
        "ps4:sync dp2",
    ),
    (GPT, "dp2:zero3 local4:tau8", "one way to keep versions", "local4", "dp2 local4:tau8"),
    (GPT, "gossip4 dp2:zero2", "one way to keep versions", "gossip4", "gossip4 dp2"),
    (GPT, "ring4 dp2:zero3", "one way to keep versions", "ring4", "ring4 dp2"),
    (GPT, "local4 dp1:zero3 cp2", "one way to keep versions", "zero3", "local4:tau1 cp2:ring"),
    # Compressed gradients in shares.
    (
        GPT,
        "dp8:zero1 +compress:int8",
        "gradients that add up",
        "zero1 sums gradients into shares, and int8",
        "dp8:zero1",
    ),
    (GPT, "dp8:zero2 +compress:1bit", "gradients that add up", "1bit", "dp8:zero2"),
    (GPT, "dp8:zero3 +compress:topk0.1", "gradients that add up", "topk", "dp8:zero3"),
    (GPT, "dp8:zero2 +compress:powersgd4", "gradients that add up", "powersgd4", "dp8:zero2"),
    # Nothing to adapt, nobody to be uneven.
    (RESNET, "dp8 +lora8", "adapters", "no layer of resnet", "dp8"),
    (GPT, "dp8 +imbalance1.5", "expert rows", "has no experts", "dp8"),
    (MIXTURE, "dp8 +imbalance1.5", "expert rows", "the plan has none", "dp8"),
    (MIXTURE, "dp8:ep2 +imbalance2.5", "expert rows", "at most all rows, 2 times", "dp8:ep2"),
]


@pytest.mark.parametrize(("model", "plan", "rule", "why", "works"), ONE_RULE, ids=[row[1] for row in ONE_RULE])
def test_a_rule_with_its_numbers_and_a_way_out(model: str, plan: str, rule: str, why: str, works: str) -> None:
    batch = 64
    found = refused(model, plan, batch)
    assert list(found) == [rule]
    assert why in found[rule].why
    assert found[rule].way_out.split(", or ")[0] == way(works)
    assert not refused(model, works, batch)


FINE = [
    (GPT, "dp1:zero3"),
    (GPT, "pp1:1f1b tp1:sp cp1:ring"),
    (GPT, "pp1:split=12"),
    (RESNET, "cp1 tp1:sp"),
    (GPT, "spatial1 filter1 channel1"),
    (GPT, "ps4:k2,group2"),
    (GPT, "ps4:group4"),
    (GPT, "ps4 dp1:zero3"),
    (GPT, "local2 dp2"),
    (GPT, "dp8 +compress:int8"),
    (GPT, "dp8:zero1 +compress:powersgd4"),
    (GPT, "dp8:zero3 +compress:fp16"),
    (GPT, "dp8 +offload:optimizer,activations"),
    (GPT, "dp8 +offload:weights"),
    (GPT, "dp8 +lora8"),
    (MIXTURE, "dp8:ep2 +imbalance2"),
    (ONE_KEY, "tp8"),
    (FEW_KEYS, "tp4"),
    (SHORT, "cp2 tp4:sp"),
    (RESNET, "spatial4x2"),
    (RESNET, "spatial8[layer1,layer2]"),
    (COSMOFLOW, "spatial2x2x2"),
    (RESNET, "filter4[fc] filter2[layer1*]"),
    (RESNET, "filter128[fc,layer4]"),
]


@pytest.mark.parametrize(("model", "plan"), FINE, ids=[row[1] for row in FINE])
def test_what_fits_is_not_refused(model: str, plan: str) -> None:
    assert not refused(model, plan)
    assert fits(setting(model, plan))


@pytest.mark.parametrize("trained_by", ["pytorch", "megatron-core", "megatron-lm", "torchtitan"])
def test_tensor_ranks_divide_the_key_and_value_heads(trained_by: str) -> None:
    plan = "dp2 tp8:sp" if trained_by == "torchtitan" else "dp2 tp8"
    narrower = plan.replace("dp2", "dp4").replace("tp8", "tp4")
    found = refused(FEW_KEYS, plan, trained_by=trained_by)
    assert list(found) == ["heads divide"]
    assert found["heads divide"].way_out.startswith(f"--plan '{narrower}")
    assert not refused(ONE_KEY, plan, trained_by=trained_by)


def test_groups_of_servers_keep_their_ranks() -> None:
    """Also where they do not make whole groups: the plan is refused, and nothing is divided by zero ranks."""
    for text, ranks in {"ps1:group4": 1, "ps2:group4": 2, "ps6:group4": 6, "ps8:group4": 8}.items():
        assert parse(text).ranks == ranks


def test_there_is_one_rule_for_empty_stages() -> None:
    found = refused(GPT, "pp16 +m16", 32)
    assert list(found) == ["no empty stage"]
    assert "12 layers on 16 stages are 1x12/0x4; 4 would have nothing" in found["no empty stage"].why
    assert found["no empty stage"].way_out == way("pp8:1f1b dp2 +m16")


def test_a_length_is_offered_to_models_that_take_one() -> None:
    assert facts(load(SHORT, 1)).given_sequence
    assert refused(SHORT, "cp4 tp4:sp")["sequence divides"].way_out == f"{way('cp4:ring tp4')}, or --seq 32"
    assert not facts(load(VIT, 1)).given_sequence  # its positions are patches of an image
    assert "--seq" not in refused(VIT, "tp4:sp")["sequence divides"].way_out
    longer = SHORT.replace("seq=24", "seq=32")
    assert not refused(longer, "cp4 tp4:sp")


def test_a_part_is_asked_for_its_own_extents() -> None:
    whole, part = extents(load(RESNET, 1)), extents(load(RESNET, 1), "layer1,layer2")
    assert [(one.name, one.size) for one in whole] == [("height", 7), ("width", 7)]
    assert [(one.name, one.size) for one in part] == [("height", 28), ("width", 28)]
    assert [one.name for one in extents(load(COSMOFLOW, 1))] == ["depth", "height", "width"]


def test_parts_with_commas_mean_all_of_them() -> None:
    graph = load("resnet18:image=64,classes=16", 1)
    one, other = members(graph, "layer1.0"), members(graph, "layer2.0")
    assert one and other and members(graph, "layer1.0,layer2.0") == one | other
    span, dense = members(graph, "layer1.0..layer3.0"), members(graph, "fc")
    assert span and dense and members(graph, "layer1.0..layer3.0,fc") == span | dense
    assert span > one | other
    with pytest.raises(BadInput, match=r"no part of resnet18.* is called 'nothing'"):
        members(graph, "layer1.0,nothing")
    with pytest.raises(BadInput, match="comes before") as caught:
        members(graph, "fc,layer2..layer1")
    assert members(graph, caught.value.fix.strip("[]"))


def test_the_batch_and_the_plan_are_offered() -> None:
    found = refused(GPT, "dp8 +m4", 48)
    assert found["batch divides"].way_out == f"{way('dp8 +m3')}, or --batch 32 or --batch 64"
    found = refused(GPT, "dp3", 8)
    assert re.search("--batch 6 or --batch 9", found["batch divides"].way_out)


@pytest.mark.parametrize(
    ("plan", "on", "nearest"),
    [
        ("dp7", "8xh100", "dp8"),
        ("dp7", "2xh100", "dp2"),
        ("dp7", "", "dp4"),  # nobody said that there are more ranks than these
        ("dp5", "8xh100", "dp4"),
        ("dp7 tp2", "16xh100", "dp8 tp2"),
        ("tp7", "8xh100", "tp6"),
        ("tp8", "8xh100", "dp2 tp4"),
        ("dp3 tp2", "8xh100", "dp4 tp2"),
    ],
)
def test_the_nearest_plan_differs_least_from_the_one_asked(plan: str, on: str, nearest: str) -> None:
    ways = {refusal.way_out for refusal in refused(GPT, plan, 64, on=on).values()}
    assert ways and all(one.startswith(way(nearest)) for one in ways)


def test_a_way_out_passes_every_rule_at_once() -> None:
    """Mending heads gives ranks to the batch, which must divide too: then there are fewer ranks."""
    found = refused(FEW_KEYS, "dp2 tp8", 2)
    assert {refusal.way_out for refusal in found.values()} == {way("dp2 tp4")}
    found = refused(FEW_KEYS, "dp16 tp8 +imbalance2", 64, on="8xh100")
    assert set(found) == {"enough ranks", "heads divide", "expert rows"}
    for refusal in found.values():
        (text,) = re.findall("--plan '(.+?)'", refusal.way_out)
        assert not refused(FEW_KEYS, text, 64, on="8xh100")


def test_a_plan_that_cannot_be_mended_step_by_step_gets_a_plain_one() -> None:
    """Six rules against each other: what is named still passes, with ranks of data alone if need be."""
    found = refused(VIT, "pp3:interleaved,v3 spatial5x3x2 tp7:sp +m5 +compress:int8", 7, "nanotron", on="8xh100")
    assert len(found) > 4
    ways = {re.findall("--plan '(.+?)'", refusal.way_out)[0] for refusal in found.values()}
    assert len(ways) == 1
    assert not refused(VIT, ways.pop(), 7, "nanotron", on="8xh100")


@pytest.mark.parametrize("plan", ["spatial1[nothing]", "filter4[nothing]", "filter4[fc,nothing] tp3"])
def test_a_part_that_is_not_there_is_bad_input(plan: str) -> None:
    with pytest.raises(BadInput, match="is called 'nothing'"):
        refused(RESNET, plan)


def test_ranks_that_heads_do_not_take_are_kept_for_data() -> None:
    found = refused(GPT, "dp64 tp8", 64, on="8xh100")
    assert list(found) == ["enough ranks", "heads divide"]
    assert "12 heads are not a multiple of tp8" in found["heads divide"].why
    assert found["heads divide"].way_out == way("dp2 tp4")
