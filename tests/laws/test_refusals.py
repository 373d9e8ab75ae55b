"""Laws of refusals: nothing that can be written breaks the rules' own arithmetic, and every way out works."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.plan.fitness import fits, refusals
from foretell.plan.job import Job
from foretell.plan.members import policies as all_policies
from foretell.plan.members import strategies as all_strategies
from foretell.plan.plan import Plan
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import names, trainer
from law_examples import examples, reached
from program_cases import load

many = examples(60)

SIZES = "layers=4,hidden=64,heads=8,vocab=256,head_dim=8"
SEQ = 24
MODELS = (
    f"llama:{SIZES},ffn=96,kv_heads=4",
    f"llama:{SIZES},ffn=96,kv_heads=1",
    f"mixture:{SIZES},ffn=32,kv_heads=8,experts=6,top_k=2",
    "resnet18:image=64,classes=16",
    "vit:layers=2,hidden=64,heads=8,image=32,patch=8",
    "lstm:layers=2",
    "cosmoflow",
)
LANGUAGE = ("llama", "mixture", "lstm")
TRAINERS = ("pytorch", *names())
CLUSTERS = ("", "8xh100", "64xh100")

AXES = {
    "dp": ("", ":zero1", ":zero2", ":zero3", ":shard{}", ":zero3,shard{}", ":ep{}", ":zero1,ep{},etp1", ":etp{}"),
    "tp": ("", ":sp"),
    "cp": (":ring", ":alltoall"),
    "pp": ("", ":gpipe", ":interleaved,v{}", ":dualpipe", ":dualpipe-v", ":zb-h1", ":zb-v", ":stash", ":split={}/{}"),
    "ps": ("", ":async", ":ssp,s{}", ":s{}", ":k{}", ":group{}", ":k{},group{}"),
    "local": (":tau{}",),
    "gossip": ("",),
    "ring": ("",),
    "spatial": ("", "x{}", "x{}x{}", "[conv1]"),
    "filter": ("", "[fc]"),
    "channel": ("",),
}
POLICIES = (
    *("+m{}", "+m{}", "+bf16", "+fp8", "+recompute:block", "+syncbn", "+compress:int8", "+compress:topk0.1"),
    *("+compress:powersgd{}", "+offload:weights", "+offload:optimizer,weights", "+lora{}", "+imbalance{}"),
)
NUMBERS = (1, 2, 3, 4, 5, 6, 8, 16)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of up to three axes, most of which do not fit."""

    def numbered(text: str) -> str:
        return re.sub("{}", lambda _: str(draw(st.sampled_from(NUMBERS))), text)

    words = draw(st.lists(st.sampled_from(sorted(AXES)), min_size=1, max_size=3, unique=True))
    axes = [numbered(f"{word}{{}}{draw(st.sampled_from(AXES[word]))}") for word in words]
    said = [numbered(text) for text in draw(st.lists(st.sampled_from(POLICIES), max_size=2, unique=True))]
    try:
        return parse(" ".join([*axes, *said]))
    except BadInput:  # a group of one, two policies of a kind
        return parse(numbered("dp{} tp{} +m{}"))


def asked(model: str, plan: Plan, batch: int, trained_by: str, seq: int = SEQ) -> Setting:
    text = f"{model},seq={seq}" if model.startswith(LANGUAGE) else model
    return Setting(load(text, 4), Job(batch=batch), plan, trainer(trained_by))


def test_all_strategies_are_tried() -> None:
    assert set(AXES) == set(all_strategies())


@many
@pytest.mark.reaches(fits=10, refused=10)
@given(
    st.sampled_from(MODELS),
    plans(),
    st.sampled_from((1, 2, 7, 12, 64)),
    st.sampled_from(TRAINERS),
    st.sampled_from(CLUSTERS),
)
def test_every_way_out_passes(model: str, plan: Plan, batch: int, trained_by: str, on: str) -> None:
    try:
        setting, cluster = asked(model, plan, batch, trained_by), catalog.cluster(on) if on else None
        found = tuple(refusals(setting, cluster))
    except BadInput as problem:
        assert "no part of" in str(problem)  # a part that the model does not have is no plan for it
        return
    assert fits(setting, cluster) is not bool(found)
    reached("refused" if found else "fits")
    for refusal in found:
        assert refusal.rule and refusal.why and refusal.way_out and not refusal.mends
        (text,) = re.findall("--plan '(.+?)'", refusal.way_out)
        mended = parse(text)
        assert str(mended) == text
        assert mended.ranks <= max(plan.ranks, cluster.ranks if cluster else 0)
        assert mended.axes == parse("dp1").axes or all(axis.world > 1 for axis in mended.axes)
        assert fits(asked(model, mended, batch, trained_by), cluster), f"{plan} -> {text}"
        for size in re.findall(r"--batch (\d+)", refusal.way_out):
            again = refusals(asked(model, plan, int(size), trained_by), cluster)
            assert "batch divides" not in [other.rule for other in again]
        for length in re.findall(r"--seq (\d+)", refusal.way_out):
            again = refusals(asked(model, plan, batch, trained_by, int(length)), cluster)
            assert "sequence divides" not in [other.rule for other in again]


@pytest.mark.parametrize("word", sorted(all_strategies()))
@pytest.mark.parametrize("model", MODELS)
def test_one_rank_of_any_strategy_fits(model: str, word: str) -> None:
    """One rank divides nothing, so no rule of dividing holds for it."""
    assert fits(asked(model, parse(f"{word}1"), 4, "pytorch"))


@pytest.mark.parametrize("word", sorted(all_policies()))
def test_a_policy_that_holds_anyway_is_not_refused(word: str) -> None:
    setting = asked(MODELS[0], parse("dp2:zero3 tp2"), 4, "pytorch")
    assert not list(all_policies()[word]().refusals(setting))


def test_strategies_for_several_parts_are_asked_one_by_one() -> None:
    setting = asked("resnet18:image=64,classes=16", parse("filter4[fc] filter2[layer1] spatial2[conv1]"), 4, "pytorch")
    assert fits(setting)
    wider = asked("resnet18:image=64,classes=16", parse("spatial64[conv1] spatial8[layer3]"), 4, "pytorch")
    (refusal,) = refusals(wider)
    assert "spatial8 cuts the height into 8" in refusal.why
    assert refusal.way_out.startswith("--plan 'spatial64[conv1] spatial4x2[layer3]'")
