"""The plan language: what texts mean, what errors say, and that the page about it is true.

`python tests/unit/test_plan_text.py` writes the tables of the page anew.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from foretell.errors import BadInput
from foretell.plan import synonyms
from foretell.plan.members import policies, strategies
from foretell.plan.plan import Plan
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.bucket import Bucket
from foretell.plan.policies.compression import Compression
from foretell.plan.policies.execution import Execution
from foretell.plan.policies.imbalance import Imbalance
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.overlap import Overlap
from foretell.plan.policies.precision import FORMATS, Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.recomputation import recomputation
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.filter import Filter
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.server import Server
from foretell.plan.strategies.spatial import Spatial
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import Strategy
from foretell.plan.text import parse
from foretell.units import WIDTH

DATA_WORDS = "zero1, zero2, zero3, shardN, epN, etpN, allgather, alltoall, deepep"
PAGE = Path(__file__).parents[2] / "docs" / "7-plan.md"


# --- what texts mean ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("", (Data(ranks=1),)),
        ("dp8", (Data(ranks=8),)),
        ("dp4:zero3,shard8", (Data(ranks=4, storage="zero3", shard=8),)),
        ("dp8:ep8,etp1", (Data(ranks=8, experts=8, expert_tensor=1),)),
        ("tp8:sp cp4", (Tensor(ranks=8, sequence=True), Context(ranks=4, exchange="ring"))),
        ("pp8:interleaved,v3", (Pipeline(ranks=8, schedule="interleaved", chunks=3),)),
        ("pp3:split=10/12/8", (Pipeline(ranks=3, schedule="1f1b", split=(10, 12, 8)),)),
        ("pp5:split=1/2x3/1", (Pipeline(ranks=5, split=(1, 2, 2, 2, 1)),)),
        ("pp4:split=0/2/2/0", (Pipeline(ranks=4, split=(0, 2, 2, 0)),)),
        ("pp4:split=2x2/1x2", (Pipeline(ranks=4, split=(2, 2, 1, 1)),)),
        ("spatial4[conv1..pool2]", (Spatial(ranks=4, only="conv1..pool2"),)),
        ("spatial2x2", (Spatial(ranks=4, grid_ranks=(2, 2)),)),
        ("filter4[fc*] filter2[Conv*]", (Filter(ranks=4, only="fc*"), Filter(ranks=2, only="Conv*"))),
        ("ps4:ssp,s3", (Server(ranks=4, mode="ssp", staleness=3),)),
    ],
)
def test_axes(text: str, axes: tuple[Strategy, ...]) -> None:
    assert parse(text).axes == axes


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("+m16", Microbatches(count=16)),
        ("pp4:1f1b,m16", Microbatches(count=16)),
        ("+bf16:pure", Precision(name="bf16:pure")),
        ("+recompute:attention", Recompute(granularity="attention")),
        ("+recompute:every2", Recompute(every=2)),
        ("+recompute:first21", Recompute(first=21)),
        ("+recompute:nth2", Recompute(nth=2)),
        ("+offload:weights +offload:optimizer", Offload(moved=("optimizer", "weights"))),
        ("+offload:weights,optimizer", Offload(moved=("optimizer", "weights"))),
        ("+bucket:25MB", Bucket(size=25_000_000)),
        ("+bucket:25MiB", Bucket(size=26_214_400)),
        ("+no-overlap", Overlap(when="never")),
        ("+overlap", Overlap(when="always")),
        ("+compress:topk0.010", Compression(kept=0.01)),
        ("+compress:1bit", Compression(width="1bit")),
        ("+captured", Execution(mode="captured")),
        ("+syncbn", BatchNorm(synchronised=True)),
        ("+lora16", Lora(rank=16)),
        ("+imbalance1.20", Imbalance(factor=1.2)),
        ("+imbalance3", Imbalance(factor=3.0)),
    ],
)
def test_policies(text: str, policy: Policy) -> None:
    assert parse(text).policies == (policy,)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("pp4:1f1b,m16  dp8:zero3  tp8:sp  +recompute:block", "pp4:1f1b dp8:zero3 tp8:sp +m16 +recompute:block"),
        ("+bf16 pp4 +m1 dp8", "pp4:1f1b dp8 +bf16"),
        ("dp8 +fp32", "dp8 +fp32"),
        ("ps4:k2", "ps4:sync,k2"),
        ("local8", "local8:tau1"),
        ("pp4:interleaved +m4", "pp4:interleaved,v2 +m4"),
        ("pp4:zb-v,v2", "pp4:zb-v"),
        ("pp4:dualpipe,v2", "pp4:dualpipe"),
        ("pp4:1f1b,v1", "pp4:1f1b"),
        ("+bucket:1024KiB", "dp1 +bucket:1MiB"),
        ("+bucket:1500B", "dp1 +bucket:1500B"),
        ("+compress:topk1.0", "dp1 +compress:topk1"),
    ],
)
def test_one_plan_has_one_text(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


def test_plans_that_mean_the_same_are_equal() -> None:
    assert parse("pp4:interleaved") == parse("pp4:interleaved,v2") != parse("pp4:interleaved,v3")
    assert parse("pp4:zb-v") == parse("pp4:zb-v,v2")
    assert parse("local8") == parse("local8:tau1") != parse("local8:tau2")
    assert hash(parse("pp4:interleaved")) == hash(parse("pp4:interleaved,v2"))


def test_ranks_and_microbatches() -> None:
    assert parse("pp4:gpipe tp8:sp cp2 +m16").ranks == 64
    assert parse("spatial2x3 filter2").ranks == 12
    assert parse("pp4:gpipe +m16").microbatches == 16
    assert parse("pp4:gpipe").microbatches == 1


def test_hybrid_sharding_counts_its_groups_and_experts_are_folded() -> None:
    assert parse("dp4:zero3,shard8").ranks == 32
    assert parse("dp8:zero1,ep4 tp2").ranks == 16


def test_an_axis_or_policy_that_there_is_not() -> None:
    plan = parse("dp8 tp2")
    assert plan.axis("pp") is None
    assert plan.axis(Tensor) == Tensor(ranks=2)
    with pytest.raises(BadInput, match="no strategy is called 'ppp'"):
        plan.axis("ppp")
    with pytest.raises(BadInput, match="no policy is called 'precise'"):
        plan.policy("precise")


# --- what errors say ----------------------------------------------------------------------------

ERRORS = [
    # text, character, part of the message, the plan that is proposed
    ("ddp8", 1, "no strategy is called 'ddp'", "dp8"),
    ("dp8 filtr4", 5, "no strategy is called 'filtr'", "dp8 filter4"),
    ("ep4", 1, "no strategy is called 'ep'", "dp4:ep4"),
    ("pp4 ep8,deepep", 5, "experts are an option of dp", "pp4 dp8:ep8,deepep"),
    ("pp4 dp16:zero1 ep8", 16, "experts are an option of dp", "pp4 dp16:zero1,ep8"),
    ("dp8 m16", 5, "no strategy is called 'm'", "dp8 +m16"),
    ("dp", 3, "dp has no number of ranks", "dp2"),
    ("dp 8 tp4", 3, "dp has no number of ranks", "dp8 tp4"),
    ("dp=8", 3, "dp has no number of ranks", "dp8"),
    ("dp0", 3, "'0' cannot be a number of ranks", "dp1"),
    ("dp-8", 3, "dp has no number of ranks", "dp8"),
    ("dp08", 3, "without leading zeros", "dp8"),
    ("dp1000001", 3, "from 1 to 1,000,000", "dp1000000"),
    ("spatial1000x1001", 8, "at most 1,000,000 ranks", "spatial1000"),
    ("spatial2x0", 10, "'0' cannot be a number of ranks", "spatial2x1"),
    ("dp2x2", 4, "'x2' after dp2", "dp2"),
    ("dp8:zer03", 5, f"expected one of {DATA_WORDS}", "dp8:zero3"),
    ("tp8:zero3", 5, "tp has no option 'zero3'", "tp8"),
    ("dp8:shard", 10, "'shard' of dp is wrong", "dp8:shard2"),
    ("dp8:ep0", 7, "'ep0' of dp is wrong", "dp8:ep1"),
    ("ps4:group1", 10, "a whole number from 2", "ps4:group2"),
    ("dp8:", 5, "an option of dp is missing", "dp8"),
    ("dp8: zero3", 5, "an option of dp is missing", "dp8:zero3"),
    ("dp8:zero3,,ep4", 11, "an option of dp is missing", "dp8:zero3,ep4"),
    ("dp8:zero1,zero2", 11, "storage of dp a second time", "dp8:zero1"),
    ("pp4:split=3/x", 13, "a whole number", "pp4:split=3/2"),
    ("pp4:split=3/2x", 15, "a whole number", "pp4:split=3/2x2"),
    ("pp4:split=3/2x2x4", 16, "the end of the number", "pp4:split=3/2x2"),
    ("pp4:split=1/2x1000000", 13, "at most 1,000,000 numbers", "pp4:split=1"),
    ("pp4:1f1b,m0", 11, "'m0' of pp is wrong", "pp4:1f1b,m1"),
    ("+m4 pp4:1f1b,m8", 14, "microbatches a second time", "+m4 pp4:1f1b"),
    ("dp8 tp2 dp4", 9, "dp a second time", "dp8 tp2"),
    ("filter4[fc*] filter2[fc*]", 14, "filter a second time", "filter4[fc*]"),
    ("dp8[fc*]", 4, "dp is for the whole model", "dp8"),
    ("filter4[fc*", 12, "expected ]", "filter4[fc*]"),
    ("filter4[]", 9, "expected a path", "filter4"),
    ("filter4]", 8, "']' after filter4", "filter4"),
    ("filter4[a[b]]", 10, "expected ]", "filter4[a]"),
    ("dp8!", 4, "'!' after dp8", "dp8"),
    ("dp8+m16", 4, "'+m16' after dp8", "dp8 +m16"),
    ("dp8,tp8", 4, "',tp8' after dp8", "dp8 tp8"),
    ("dp8 +bf17", 6, "no policy is called 'bf17'", "dp8 +bf16"),
    ("dp8 +fp16 +bf16", 11, "precision a second time", "dp8 +fp16"),
    ("+m0", 3, "'+m0' is wrong", "+m1"),
    ("+m", 3, "'+m' is wrong", "+m2"),
    ("dp8 +", 6, "a + with no policy", "dp8"),
    ("+recompute", 11, "recompute does not say what", "+recompute:block"),
    ("+recompute:blok", 12, "one of attention, block, full, layernorm", "+recompute:block"),
    ("+recompute:every1", 17, "a whole number from 2", "+recompute:every2"),
    ("+recompute:first0", 17, "a whole number from 1", "+recompute:first1"),
    ("+recompute:nth1", 15, "a whole number from 2", "+recompute:nth2"),
    ("+offload:optimizer,optimizer", 20, "one of activations, weights", "+offload:optimizer"),
    ("+imbalance0.5", 11, "a number from 1 to 1000", "+imbalance1.2"),
    ("+offload:weights +offload:weights", 18, "offload a second time", "+offload:weights"),
    ("+bucket:25", 11, "a unit: B, KB, MB, GB, KiB, MiB, GiB", "+bucket:25MB"),
    ("+bucket:0MB", 9, "a size from 1B to 1024GiB", "+bucket:25MB"),
    ("+compress:topk2", 15, "above 0 and at most 1", "+compress:topk0.01"),
    ("+compress:powersgd", 19, "a whole number", "+compress:powersgd2"),
    ("dp1000000 tp1000000", 13, "dp1000000 tp1000000 are 1,000,000,000,000 ranks", "dp1000000"),
    ("dp1000 tp2000:sp +m4", 10, "at most 1,000", "dp1000 tp1000:sp +m4"),
    ("dp1000000:zero3,shard2", 3, "dp1000000:zero3,shard2 are 2,000,000 ranks", "dp500000:zero3,shard2"),
    ("dp\uff18", 3, "'\uff18' is not used in plans", "dp8"),
    ("dp8\u00a0tp2", 4, "is not used in plans", "dp8 tp2"),
    ("dp\u0668", 3, "is not used in plans", "dp8"),
    ("dp8\x00", 4, "is not used in plans", "dp8"),
]


@pytest.mark.parametrize(("text", "character", "message", "fix"), ERRORS, ids=[repr(row[0]) for row in ERRORS])
def test_errors_point_at_the_character_and_show_a_plan_that_works(
    text: str, character: int, message: str, fix: str
) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, where="--plan")
    problem = caught.value
    assert message in problem.what
    assert problem.where == f"--plan, character {character}"
    assert problem.what.split("\n")[2].index("^") == 4 + character - 1
    assert problem.fix == fix
    parse(fix)


ELSEWHERE = {
    # what other tools call it, and the plan
    "dp8 bfloat16": "dp8 +bf16",
    "dp8 +bfloat16": "dp8 +bf16",
    "dp8 +float32": "dp8 +fp32",
    "dp8 half": "dp8 +fp16",
    "dp8 +amp": "dp8 +amp_bf16",
    "fsdp": "dp8:zero3",
    "fsdp16 tp8": "dp16:zero3 tp8",
    "dp4 fsdp": "dp4:zero3",
    "dp4:ep2 fsdp": "dp4:ep2,zero3",
    "dp4:fsdp": "dp4:zero3",
    "zero tp2": "dp8:zero3 tp2",
    "dp4 +zero-2": "dp4:zero2",
    "dp8-zero3": "dp8:zero3",
    "dp8/zero3": "dp8:zero3",
    "dp8-zero3,ep4": "dp8:zero3,ep4",
    "dp=8:zero1": "dp8:zero1",
    "dp2 sp4": "dp2 tp4:sp",
    "tp8 +sequence_parallel": "tp8:sp",
    "ulysses4": "cp4:alltoall",
    "cp2:ulysses": "cp2:alltoall",
    "vpp2": "pp4:interleaved,v2",
    "pp8 vpp3 +m16": "pp8:interleaved,v3 +m16",
    "pp8:1f1b vpp3": "pp8:interleaved,v3",
    "pp8:vpp3": "pp8:interleaved,v3",
    "dp8 grad_accum4": "dp8 +m4",
    "dp8 +accumulate": "dp8 +m2",
    "dp8 gradient_accumulation_steps=16": "dp8 +m16",
    "dp8 activation_checkpointing": "dp8 +recompute:block",
    "dp8 +gradient_checkpointing": "dp8 +recompute:block",
    "dp8 ac": "dp8 +recompute:block",
}


@pytest.mark.parametrize("text", ELSEWHERE)
def test_words_of_other_tools_are_not_read_but_understood(text: str) -> None:
    with pytest.raises(BadInput) as problem:
        parse(text)
    assert problem.value.fix == ELSEWHERE[text]


def test_every_synonym_leads_to_a_plan_and_none_is_a_word_of_plans() -> None:
    for word in (*synonyms.POLICIES, *synonyms.OPTIONS):
        with pytest.raises(BadInput) as problem:
            parse(word)
        policy, option = synonyms.policy(word), synonyms.option(word)
        meant = f"+{policy}" if option is None else f"{option.axis}4:{option.option}"
        expected, found = parse(meant), parse(problem.value.fix)
        assert found.policies == expected.policies
        assert [msgspec.structs.replace(axis, ranks=1) for axis in found.axes] == [
            msgspec.structs.replace(axis, ranks=1) for axis in expected.axes
        ]


def test_many_mistakes_are_mended_in_one_suggestion() -> None:
    with pytest.raises(BadInput) as caught:
        parse("pp4:1f1bb ddp8:zero4 tp 8:sp, +m 16 +recompute:blok +bf17")
    assert caught.value.fix.startswith("pp4:1f1b dp8:zero")
    assert caught.value.fix.endswith("+recompute:block +bf16")


def test_a_long_text_is_refused_at_once_and_a_place_far_in_is_shown() -> None:
    with pytest.raises(BadInput, match="a plan of 4,000,000 characters"):
        parse("dp8 " * 1_000_000)
    with pytest.raises(BadInput) as caught:
        parse(f"dp8{' ' * 300}xyz")
    lines = str(caught.value).split("\n")
    assert lines[1][lines[2].index("^") :].startswith("xyz")
    assert max(map(len, lines[:2])) < 120


@pytest.mark.parametrize(
    ("axes", "said", "message"),
    [
        ((Data(ranks=0),), (), "dp with 0 ranks"),
        ((Data(ranks=2), Data(ranks=4)), (), "dp twice"),
        ((Data(ranks=1000), Tensor(ranks=1001)), (), "dp1000 tp1001 are 1,001,000 ranks"),
        ((Data(ranks=2, storage="zero9"),), (), "storage='zero9' cannot be written"),
        ((Data(ranks=2, shard=-1),), (), "shard=-1 cannot be written"),
        ((Spatial(ranks=5, grid_ranks=(2, 2)),), (), "5 ranks are not a grid of 2x2"),
        ((Filter(ranks=2, only="a b"),), (), "no path is written 'a b'"),
        ((), (Microbatches(count=2), Microbatches(count=4)), "two policies for microbatches"),
        ((), (Recompute(granularity="block", every=2),), "recompute is given twice"),
        ((), (Precision(name="fp7"),), "name='fp7' cannot be written"),
    ],
)
def test_a_plan_that_has_no_text_is_not_made(
    axes: tuple[Strategy, ...], said: tuple[Policy, ...], message: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        Plan(axes, said)


def test_json_with_what_there_is_not_is_refused() -> None:
    for text in ('{"axes":[{"strategy":"data"}]}', '{"axes":[{"strategy":"no"}]}', '{"speed":9}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(text, type=Plan)


NEW_STRATEGY = """
from typing import ClassVar
from foretell.plan.strategy import MeshAxis, Strategy
from foretell.plan.syntax import Number, WordChoice

class Mirror(Strategy, frozen=True, kw_only=True, tag="mirror"):
    word: ClassVar = "mirror"
    summary: ClassVar = "every rank does the same"
    references: ClassVar = ("nobody",)
    syntax: ClassVar = (WordChoice("side", {"left": "left", "right": "right"}), Number("deep", "depth"))
    example: ClassVar = "mirror4:left"
    side: str = "left"
    depth: int = 0

    def axes(self):
        return (MeshAxis("mirror", self.ranks),)
"""

USE = """
import sys, msgspec
import foretell.plan.strategies
foretell.plan.strategies.__path__.append(sys.argv[1])
from foretell.plan.plan import Plan
from foretell.plan.text import parse
plan = parse("dp2 MIRROR4:deep3")
assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
print(plan, plan.ranks, plan.axis("mirror").depth)
"""


def test_a_new_file_is_a_new_strategy(tmp_path: Path) -> None:
    (tmp_path / "mirror.py").write_text(NEW_STRATEGY)
    ran = subprocess.run([sys.executable, "-c", USE, str(tmp_path)], capture_output=True, text=True, timeout=600)
    assert ran.stdout == "dp2 mirror4:left,deep3 8 3\n", ran.stderr


# --- what policies say --------------------------------------------------------------------------


def adam_bytes(name: str) -> int:
    row = FORMATS[name]
    return row.weight + row.accumulation + row.states(2)


def test_bytes_of_a_weight_with_adam() -> None:
    """ZeRO (section 3.1) counts 16 in mixed fp16; Megatron-Core's distributed optimizer 18 in bf16, 16 in fp32."""
    assert {name: adam_bytes(name) for name in FORMATS} == {
        "fp32": 16,
        "tf32": 16,
        "fp16": 16,
        "bf16": 18,
        "bf16:pure": 8,
        "amp_fp16": 16,
        "amp_bf16": 16,
        "fp8": 18,
        "fp8:block": 18,
        "mxfp8": 18,
        "nvfp4": 18,
    }


def test_formats_are_consistent() -> None:
    for name, row in FORMATS.items():
        assert row.source
        assert row.kernels == name.partition(":")[0].removeprefix("amp_")
        assert row.activation in WIDTH
        assert row.loss_scaling == (row.activation == "fp16")
        assert row.autocast == (row.weight > WIDTH[row.activation])
        assert row.master == 0 or row.master > row.weight
        assert row.operand <= row.weight
        assert (row.operand < WIDTH[row.activation]) == (row.kernels != row.other_kernels)


def test_operands_of_block_scaled_products() -> None:
    """OCP MX: 8 bits for 32 elements of 8; NVFP4: 8 bits for 16 elements of 4."""
    assert FORMATS["mxfp8"].operand * 8 * 32 == 32 * 8 + 8
    assert FORMATS["nvfp4"].operand * 8 * 16 == 16 * 4 + 8


@pytest.mark.parametrize(
    ("text", "like", "together"),
    [
        ("", "none", 0),
        ("+recompute:attention", "attention", 0),
        ("+recompute:block", "block", 1),
        ("+recompute:every3", "block", 3),
        ("+recompute:every20", "block", 8),
        ("+recompute:full", "block", 8),
    ],
)
def test_recompute(text: str, like: str, together: int) -> None:
    rule = parse(text).policy(Recompute).rule
    assert rule.of_one_layer() == recomputation(like)
    assert rule.together(8) == together


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("", 1024 * 4096 * 4),
        ("+compress:fp16", 1024 * 4096 * 2),
        ("+compress:int8", 1024 * 4096 + 4),
        ("+compress:1bit", 1024 * 4096 // 8 + 4),
        ("+compress:topk0.01", 41_944 * 8),  # 41,943.04 of the elements, each 4 bytes and its place
        ("+compress:powersgd4", 4 * (1024 + 4096) * 4),
    ],
)
def test_payload_of_a_matrix_of_1024_by_4096(text: str, payload: int) -> None:
    policy = parse(text).policy(Compression)
    assert policy.payload(1024 * 4096, 1024, 4) == payload
    many = policy.payload(np.array([1024.0 * 4096, 8.0]), np.array([1024.0, 1.0]), 4)
    assert many[0] == payload


def test_powersgd_sends_what_it_cannot_shrink_as_it_is() -> None:
    """Vogels et al. 2019 compress matrices only; a product of rank 64 is no smaller than 64 x 64 elements."""
    assert Compression(rank=2).payload(1000, 1, 4) == 4000
    assert Compression(rank=64).payload(64 * 64, 64, 2) == 64 * 64 * 2


def test_lora_trains_two_thin_matrices() -> None:
    """Hu et al. 2021, section 7.1: of GPT-3 (96 layers, hidden 12288) r = 4 on two weights a layer trains 18 M."""
    assert 96 * 2 * Lora(rank=4).parameters(12288, 12288) == 18_874_368


# --- the page -----------------------------------------------------------------------------------


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _forms(kind: type[Strategy] | type[Policy]) -> str:
    return " ".join(f"`{form}`" for option in kind.syntax for form in option.forms) or "-"


def strategy_table() -> str:
    rows = [
        [f"`{kind.word}N`", kind.summary, _forms(kind), f"`{kind.example}`", "; ".join(kind.references)]
        for kind in strategies().values()
    ]
    return table(["axis", "means", "options", "example", "from"], rows)


def policy_table() -> str:
    rows = [
        [
            kind.word if kind.bare else f"`+{kind.word}:`",
            kind.summary,
            _forms(kind),
            f"`{kind.example}`",
            "; ".join(kind.references),
        ]
        for kind in policies().values()
    ]
    return table(["policy", "means", "written", "example", "from"], rows)


def precision_table() -> str:
    def row(name: str) -> list[str]:
        f = FORMATS[name]
        numbers = [f.weight, f.gradient, f.accumulation, f.master, f.state]
        kernels = f.kernels if f.kernels == f.other_kernels else f"{f.kernels}, else {f.other_kernels}"
        return [f"`+{name}`", f.activation, *map(str, numbers), kernels, f.source]

    header = ["", "activations", "weight", "gradient", "sum", "master", "state", "products", "source"]
    return table(header, [row(name) for name in FORMATS])


TABLES = {"strategies": strategy_table, "policies": policy_table, "precisions": precision_table}


def with_tables(page: str) -> str:
    """The page with its tables as the code has them now."""
    for name, build in TABLES.items():
        page = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda found, build=build: f"{found[1]}{build()}\n{found[2]}",
            page,
            flags=re.DOTALL,
        )
    return page


def examples() -> list[str]:
    """The plans in the table of examples."""
    section = PAGE.read_text().partition("## Twenty examples")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| \S.*\|$", section, re.MULTILINE)


def test_the_page_has_the_tables_of_the_code() -> None:
    page = PAGE.read_text()
    assert all(f"<!-- {name} -->" in page for name in TABLES)
    assert with_tables(page) == page, "python tests/unit/test_plan_text.py writes them"


def test_the_examples_of_the_page_are_canonical_and_use_every_member() -> None:
    texts = examples()
    assert len(texts) == len(set(texts)) == 29
    plans = [parse(text) for text in texts]
    assert [str(plan) for plan in plans] == texts
    assert {axis.word for plan in plans for axis in plan.axes} == set(strategies())
    assert {policy.word for plan in plans for policy in plan.policies} == set(policies())


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("1/2/2/1", "1/2/2/1"),
        ("2/2/2/1/1", "2x3/1/1"),
        ("2x62/1x2", "2x62/1/1"),
        ("1/2x62/1", "1/2x62/1"),
        ("7x1/7", "7/7"),
        ("10x3", "10x3"),
    ],
)
def test_splits_have_one_text_with_runs(written: str, canonical: str) -> None:
    """Three or more equal stages in a row are a run; older texts say each stage."""
    plan = parse(f"pp2:1f1b,split={written}")
    assert str(plan) == f"pp2:1f1b,split={canonical}"
    assert parse(str(plan)) == plan
