"""Trainers: every file reads, every constant has a source, bad files are refused, and what is legal is."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell import predict
from foretell.errors import BadInput, UnknownName
from foretell.plan import trainer_table
from foretell.plan.figures import look_up, look_up_depth
from foretell.plan.legality import Surroundings, legal
from foretell.plan.schedule import schedules
from foretell.plan.stages import RULES, Costs, empty_stages, layers_per_stage
from foretell.plan.text import parse
from foretell.plan.trainer import CONSTANTS, era, names, trainer

ALL = sorted(names())
PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"


@pytest.mark.parametrize("name", ALL)
def test_every_constant_has_a_source(name: str) -> None:
    found = trainer(name)
    assert [key for key, _ in found.sources] == list(CONSTANTS)
    for key, source in found.sources:
        assert len(source) > 15, key
        assert found.source(key) == source


@pytest.mark.parametrize("name", ALL)
def test_a_trainer_is_one_value(name: str) -> None:
    found = trainer(name)
    assert trainer(name) is found
    assert hash(found) == hash(msgspec.structs.replace(found))
    with pytest.raises(AttributeError):
        found.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", ALL)
def test_a_file_gives_only_what_differs_or_is_better_known(name: str) -> None:
    """What a file does not give says from where it is carried over; a trainer on its own carries nothing."""
    found = trainer(name)
    carried = [source for _, source in found.sources if source.startswith("carried over from ")]
    assert bool(carried) == bool(found.based_on)
    for source in carried:
        origin = re.match(r"carried over from ([\w-]+): .+", source)
        assert origin and origin[1] in ALL


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        # Fits to published runs: one-node A100 of Megatron-DeepSpeed, H100 sweep of nanotron, LLM Foundry.
        ("megatron-deepspeed", "host.layer", 3.1e-3),
        ("megatron-deepspeed", "host.tensor_growth", 0.12),
        ("megatron-deepspeed", "host.device_layer", 1e-3),
        ("megatron-deepspeed", "host.sharpness", 3.9),
        ("nanotron", "host.layer", 4.6e-3),
        ("nanotron", "host.floor", 5e-3),
        ("nanotron", "host.floor_tensor", 1.84e-3),
        ("nanotron", "host.floor_pair", 51e-6),
        ("nanotron", "host.sharpness", math.inf),
        ("nanotron", "memory.gather", 6.0),
        # Sources of the frameworks.
        ("pytorch", "gradients.first_bucket", 1024**2),
        ("pytorch", "gradients.bucket", 25 * 1024**2),
        ("horovod", "gradients.bucket", 128 * 1024**2),
        ("megatron-core", "gradients.bucket", 40e6 * 4),
        ("deepspeed", "gradients.bucket", 5e8 * 2),
        ("megatron-core", "tensor.vocabulary_multiple", 128),
        ("megatron-core", "tensor.reduce", "tensor"),
        ("pytorch", "tensor.reduce", "consumer"),
    ],
)
def test_constants_as_published(name: str, key: str, value: object) -> None:
    assert trainer(name).constant(key) == value


@pytest.mark.parametrize(
    ("name", "bytes_per_parameter"),
    [
        ("megatron-core", 18),  # Megatron: 2 weight, 4 gradient, 12 master and Adam
        ("nanotron", 18),  # besides 2 for buckets and 2 for gradients of the pass
        ("megatron-lm-2021", 16),  # Rajbhandari et al. 2020: 2 + 2 + 12 with fp16
        ("deepspeed", 16),
        ("fsdp", 16),  # fp32 weight, gradient and two states, in shares
    ],
)
def test_bytes_of_a_parameter_with_adam(name: str, bytes_per_parameter: int) -> None:
    stored = trainer(name).storage
    assert stored.weight + stored.gradient + stored.master + 2 * stored.state == bytes_per_parameter


def test_a_second_name_is_the_same_trainer() -> None:
    assert trainer("megatron-lm") is trainer("megatron-lm-2023")
    assert names()["megatron-lm"] == "the same as megatron-lm-2023"


def test_the_fingerprint_is_of_the_constants(tmp_path: Path) -> None:
    """Two files with the same constants are the same trainer, whatever they are called and cite."""
    mine = trainer(written(tmp_path, OWN))
    other = trainer(written(tmp_path, OWN.replace("2026-05", "2026-06").replace("2 ms", "2000 us"), "other.toml"))
    assert mine.fingerprint == other.fingerprint
    assert mine.fingerprint != trainer("nanotron").fingerprint
    assert len({trainer(name).fingerprint for name in ALL}) == len({trainer(name).name for name in ALL})


def test_a_bucket_grows_with_the_data_ranks() -> None:
    """Megatron-Core: 1 million gradients for each data rank, 40 million at least."""
    gradients = trainer("megatron-core").gradients
    assert gradients.later(8) == 160e6
    assert gradients.later(64) == gradients.first(64) == 256e6
    assert trainer("pytorch").gradients.first(512) == 1024**2


def test_tables_by_word_and_by_depth() -> None:
    assert look_up(trainer("pytorch").attention.peak, "flash3-hopper", "flash3", "hopper") == 0.72
    assert look_up(trainer("pytorch").attention.peak, "flash2-hopper", "flash2", "hopper") == 0.35
    assert look_up(trainer("llm-foundry").attention.peak, "flash1-ampere", "flash1", "ampere") == 0.4
    assert look_up(trainer("pytorch").attention.peak, "ampere") == 0.5
    assert look_up(trainer("deepspeed").gradients.overlap, "zero3") == 1
    held = trainer("nanotron").memory.held
    assert [look_up_depth(held, ranks) for ranks in (1, 2, 3, 4, 7, 8, 64)] == [100, 5, 5, 50, 50, 75, 75]


def test_an_unknown_trainer_gives_near_names() -> None:
    with pytest.raises(UnknownName, match="nanotrn") as problem:
        trainer("nanotrn")
    assert "nanotron" in problem.value.fix


def written(folder: Path, text: str, name: str = "mine.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


OWN = """
summary = "mine"
based_on = "nanotron"

[sources]
us = "measured on our cluster, 2026-05"

[host]
layer = { value = "2 ms", source = "us" }
"""


def test_a_trainer_of_your_own_is_a_few_lines(tmp_path: Path) -> None:
    mine = trainer(written(tmp_path, OWN))
    assert (mine.name, mine.based_on) == ("mine", "nanotron")
    assert mine.host.layer == 2e-3
    assert mine.source("host.layer") == "measured on our cluster, 2026-05"
    assert mine.host.floor == trainer("nanotron").host.floor
    assert mine.source("host.floor").startswith("carried over from nanotron: ")
    assert mine.source("memory.context").startswith("carried over from pytorch: ")


def test_it_predicts_as_its_base_does(tmp_path: Path) -> None:
    """Nothing that a prediction looks up by the trainer's name takes it for one of ours."""
    mine = written(tmp_path, 'summary = "mine"\nbased_on = "nanotron"\n')
    base, found = (predict("gpt2", "8xh100", "dp8 +bf16", 8, trainer=name) for name in ("nanotron", mine))
    assert (found.step_seconds, found.memory) == (base.step_seconds, base.memory)


def test_it_may_be_based_on_a_second_name_and_be_called_as_its_base(tmp_path: Path) -> None:
    assert trainer(written(tmp_path, OWN.replace("nanotron", "megatron-lm"))).legal.layers_divide
    assert trainer(written(tmp_path, OWN, "nanotron.toml")).host.layer == 2e-3


@pytest.mark.parametrize(
    ("change", "says", "where"),
    [
        (("2 ms", "2 m"), "'m' is not a unit of a time", "mine.toml, host.layer"),
        (("2 ms", "2 GiB"), "GiB is the unit of a memory, not of a time", "mine.toml, host.layer"),
        (('"2 ms"', "2"), "a time needs its unit", "mine.toml, host.layer"),
        (("2 ms", "-2 ms"), "not a number with a unit", "mine.toml, host.layer"),
        (("2 ms", "1e999999999 ms"), "not a number with a unit", "mine.toml, host.layer"),
        (("layer =", "layers ="), "unknown key 'host.layers'", "mine.toml"),
        (("[host]", "[hosts]"), "unknown key 'hosts'", "mine.toml"),
        (('source = "us"', 'source = "them"'), "'them'", "mine.toml, host.layer"),
        (('value = "2 ms", ', ""), "the figure has no value", "mine.toml, host.layer"),
        (("us = ", 'other = "x"\nus = '), "no figure names the source 'other'", "mine.toml, sources"),
        (('"measured on our cluster, 2026-05"', "3"), "the source 'us' is not a text", "mine.toml"),
        (('summary = "mine"', ""), "summary is missing", "mine.toml"),
        (('summary = "mine"', "summary = 3"), "is not a text", "mine.toml, summary"),
        (('summary = "mine"', 'summary = "mine"\nalias_of = "fsdp"'), "nothing of its own", "mine.toml"),
        (('based_on = "nanotron"', ""), "execution is missing (and 1", "mine.toml"),
        (('"nanotron"', '"nanotrom"'), "nanotrom", "mine.toml, based_on"),
        (("[host]", "[host"), "not a TOML file", "mine.toml"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, change: tuple[str, str], says: str, where: str) -> None:
    text = OWN.replace(*change)
    assert text != OWN
    with pytest.raises(BadInput) as problem:
        trainer(written(tmp_path, text))
    assert says in str(problem.value)
    assert problem.value.where.endswith(where)


@pytest.mark.parametrize(
    ("figure", "says"),
    [
        ('[host]\ntensor_growth = { value = 1.2, source = "us" }', "<= 1.0"),
        ('[host]\nlayer_recomputes = { value = 1, source = "us" }', "bool"),
        ('[attention]\nkernel = { value = "flash9", source = "us" }', "flash9"),
        ('[attention]\npeak = { value = { hopper = 0.3 }, source = "us" }', "no entry for `any`"),
        ('[attention]\npeak = { value = 0.3, source = "us" }', "0.3 cannot be used"),
        ('[memory]\nheld = { value = { 2 = 1, 1 = 3 }, source = "us" }', "not pipeline ranks from 1 up"),
        ('[memory]\nheld = { value = {}, source = "us" }', "not pipeline ranks from 1 up"),
        ('[storage]\nprefetch = { value = -1, source = "us" }', ">= 0"),
        ('[legal]\nstrategies = { value = ["dp", "dq"], source = "us" }', "'dq'"),
        ('[pipeline]\nschedules = { value = ["1fb1"], source = "us" }', "'1fb1'"),
        ('[defaults]\noptimizer = { value = "adamx", source = "us" }', "'adamx'"),
        ('[defaults]\nprecision = { value = "fp8", source = "us" }', "fp8 is not legal"),
        ('[memory]\ncontext = { value = "1 GBit", source = "us" }', "'GBit' is not a unit of a memory"),
    ],
)
def test_bad_values_are_refused(tmp_path: Path, figure: str, says: str) -> None:
    section, _, line = figure.partition("\n")
    text = OWN.replace("[host]", f"{section}\n{line}") if section == "[host]" else f"{OWN}\n{figure}\n"
    with pytest.raises(BadInput) as problem:
        trainer(written(tmp_path, text))
    assert says in str(problem.value)
    assert line.split(" ")[0] in problem.value.where


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        trainer(str(tmp_path / "none.toml"))


# What is legal


def rules(name: str, plan: str, **around: int) -> dict[str, str]:
    return {r.rule: r.way_out for r in legal(trainer(name), parse(plan), Surroundings(**around))}


@pytest.mark.parametrize(
    ("name", "plan", "around", "rule", "way_out"),
    [
        ("horovod", "dp4 tp2", {}, "trainer's strategies", "dp8"),
        ("megatron-lm-2019", "pp4:1f1b tp2 +m4", {}, "trainer's strategies", "dp4 tp2 +m4"),
        ("megatron-lm-2021", "dp4 tp8:sp", {}, "trainer's sequence parallelism", "dp4 tp8"),
        ("torchtitan", "dp4:zero3 tp8", {}, "trainer's sequence parallelism", "dp4:zero3 tp8:sp"),
        ("nanotron", "dp4 cp2:alltoall", {}, "trainer's context exchange", "dp4 cp2:ring"),
        ("megatron-lm-2023", "dp8:zero1,ep4", {}, "trainer's experts", "dp8:zero1"),
        ("nanotron", "dp8:zero3", {}, "trainer's storages", "dp8:zero1"),
        ("torchtitan", "dp8:zero1", {}, "trainer's storages", "dp8:zero2"),
        ("chainer", "dp8:zero3", {}, "trainer's storages", "dp8"),
        # Megatron-DeepSpeed: ZeRO 2 and 3 do not go with its pipeline engine.
        ("megatron-deepspeed", "pp4:1f1b dp8:zero2 +m8", {}, "storage with pipeline", "pp4:1f1b dp8:zero1 +m8"),
        ("deepspeed", "pp4:1f1b dp8:zero3 +m8", {}, "storage with pipeline", "pp4:1f1b dp8:zero1 +m8"),
        ("nanotron", "dp4:zero1,shard8", {}, "trainer's hybrid sharding", "dp32:zero1"),
        ("megatron-core", "pp4:zb-v +m8", {}, "trainer's schedules", "pp4:1f1b +m8"),
        ("chainer", "pp4:1f1b +m8", {}, "trainer's schedules", "pp4:gpipe +m8"),
        ("nanotron", "pp8:1f1b +m6", {}, "enough micro-batches", "pp8:1f1b +m7"),
        ("pytorch", "pp8:1f1b +m7", {}, "enough micro-batches", "pp8:1f1b +m8"),
        ("megatron-core", "pp4:interleaved,v2 +m6", {}, "interleaved micro-batches", "pp4:interleaved,v2 +m8"),
        ("pytorch", "pp4:interleaved,v2 +m9", {}, "interleaved micro-batches", "pp4:interleaved,v2 +m12"),
        ("nanotron", "dp8 +fp8", {}, "trainer's precisions", "dp8 +bf16"),
        ("pytorch", "dp2 tp16", {"heads": 24}, "heads divide", "dp4 tp8"),
        (
            "megatron-core",
            "pp8:1f1b dp2 +m8",
            {"layers": 20},
            "layers divide",
            "pp8:1f1b,split=1/3x6/1 dp2 +m8",
        ),
        ("megatron-lm-2021", "pp8:1f1b dp2 +m8", {"layers": 20}, "layers divide", "pp4:1f1b dp4 +m8"),
        ("megatron-core", "pp4:interleaved dp2 +m8", {"layers": 12}, "layers divide", "pp2:interleaved,v2 dp4 +m8"),
        ("pytorch", "pp8:1f1b +m8", {"layers": 6}, "no empty stage", "pp4:1f1b dp2 +m8"),
        ("nanotron", "pp2:1f1b,split=10/6 +m8", {}, "equal stages", "pp2:1f1b +m8"),
    ],
)
def test_what_a_trainer_refuses(name: str, plan: str, around: dict[str, int], rule: str, way_out: str) -> None:
    found = rules(name, plan, **around)
    assert found == {rule: f"--plan '{way_out}'"}
    assert not rules(name, way_out, **around)


def test_a_tensor_axis_stays_in_a_node_where_a_trainer_says_so(tmp_path: Path) -> None:
    strict = OWN.replace("[host]", "[legal]").replace("layer =", "tensor_in_node =").replace('"2 ms"', "true")
    found = list(legal(trainer(written(tmp_path, strict)), parse("dp2 tp16"), Surroundings(node=8)))
    assert [(r.rule, r.way_out) for r in found] == [("tensor inside a node", "--plan 'dp4 tp8'")]
    assert not rules("nanotron", "dp2 tp16", node=8)


def test_the_vocabulary_divides_where_a_trainer_says_so(tmp_path: Path) -> None:
    strict = OWN.replace("[host]", "[legal]").replace("layer =", "vocabulary_divide =").replace('"2 ms"', "true")
    found = list(legal(trainer(written(tmp_path, strict)), parse("tp4"), Surroundings(vocabulary=50258)))
    assert [(r.rule, r.way_out) for r in found] == [("vocabulary divide", "--plan 'dp2 tp2'")]


def test_a_refusal_has_its_numbers() -> None:
    (refusal,) = legal(trainer("nanotron"), parse("pp8:1f1b +m6"))
    assert refusal.why == "nanotron: 6 micro-batches for 8 pipeline ranks; 1f1b needs at least 7"


def test_several_rules_have_one_way_out() -> None:
    found = rules("megatron-lm", "pp4:zb-v dp8 tp8:sp cp2 +m3 +fp8", heads=6)
    assert len(found) == 4
    assert set(found.values()) == {"--plan 'pp4:1f1b dp64 tp2:sp +m3 +bf16'"}


@pytest.mark.parametrize("schedule", sorted(schedules()))
def test_the_default_trainer_runs_every_schedule(schedule: str) -> None:
    """A new schedule needs no other edit."""
    assert "trainer's schedules" not in rules("pytorch", f"pp4:{schedule} +m8")


PLANS = [
    "dp8",
    "dp2:zero3,shard4 tp2:sp",
    "pp4:interleaved,v2 dp2:zero2,ep2 tp4 +m6 +fp8",
    "pp8:dualpipe dp2 cp2 +m3 +amp_bf16",
    "pp4:stash,split=3/5/4/4 cp4:alltoall +m2",
    "spatial2x2 filter4[fc*] dp2",
    "ps4:ssp,s3 +fp16",
    "local4:tau10 tp8:sp +nvfp4",
]


@given(st.sampled_from(ALL), st.sampled_from(PLANS), st.integers(0, 40), st.sampled_from([0, 6, 25, 32]))
def test_every_way_out_is_a_plan_that_passes_on_as_many_ranks(name: str, plan: str, layers: int, heads: int) -> None:
    around = Surroundings(layers=layers, heads=heads, node=8)
    for refusal in legal(trainer(name), parse(plan), around):
        text = re.fullmatch(r"--plan '(.+)'", refusal.way_out)
        assert text, refusal
        assert parse(text[1]).ranks == parse(plan).ranks
        assert not list(legal(trainer(name), parse(text[1]), around))


# Stages


def llama(hidden: int, feed_forward: int) -> Costs:
    """The costs that nanotron counts, with its sweep's vocabulary."""
    return Costs(layer=4 * hidden**2 + 3 * hidden * feed_forward, head=131072 * hidden)


def test_stages_of_nanotron() -> None:
    """The ultra-scale playbook's models: an 8B on 8 stages has 5 layers on the first, a 1B on 2 has 10 of 16."""
    assert layers_per_stage("nanotron", 32, 8, llama(4096, 14336))[0] == 5
    assert layers_per_stage("nanotron", 16, 2, llama(2048, 8192)) == (10, 6)


@pytest.mark.parametrize(("layers", "hidden", "first_empty"), [(16, 2048, 16), (28, 3072, 32)])
def test_empty_stages_of_nanotron(layers: int, hidden: int, first_empty: int) -> None:
    """Published failures: the 1B from 16 stages on, the 3B from 32 on."""
    depths = [2, 4, 8, 16, 32, 64]
    empty = [stages for stages in depths if empty_stages("nanotron", layers, stages, llama(hidden, 8192))]
    assert empty[0] == first_empty


def test_stages_of_torchtitan() -> None:
    """Embedding and head count as a layer each."""
    assert layers_per_stage("torchtitan", 32, 4) == (8, 9, 8, 7)
    assert layers_per_stage("torchtitan", 30, 4) == (7, 8, 8, 7)


def test_stages_by_parameters_lighten_the_ends() -> None:
    assert layers_per_stage("parameters", 24, 4, Costs(1.0, head=3.0, embedding=3.0)) == (5, 8, 8, 3)
    assert layers_per_stage("parameters", 24, 4) == (6, 6, 6, 6)


@given(st.sampled_from(sorted(RULES)), st.integers(1, 130), st.integers(1, 64), st.floats(0, 8))
def test_stages_have_all_layers(rule: str, layers: int, stages: int, head: float) -> None:
    counts = layers_per_stage(rule, layers, stages, Costs(1.0, head, head))
    assert len(counts) == stages
    assert sum(counts) == layers
    assert min(counts) >= 0
    assert stages > 1 or counts == (layers,)


def test_an_unknown_split_rule() -> None:
    with pytest.raises(UnknownName, match="evn"):
        layers_per_stage("evn", 4, 2)


# Their years


def test_trainers_of_other_years_are_behind_those_of_today(foretell: Any) -> None:
    years = {name: era(name) for name in names() if era(name)}
    assert {name for name in names() if re.search(r"-20\d\d$", name)} < set(years)
    assert not {"pytorch", "fsdp", "torchtitan", "megatron-core", "nemo", "deepspeed"} & set(years)
    assert era("megatron-lm") == era("megatron-lm-2023") == "2023"
    told = json.loads(foretell("list", "trainers", "--json").out)
    assert told["historical"] == years
    assert set(told["trainers"]) == set(names())
    assert list(told["trainers"])[-len(years) :] == list(years)
    today, past = foretell("list", "trainers").out.split("of other years")
    assert all(f"\n{name} " not in today and f"\n{name} " in past for name in years)


# The page


@pytest.mark.parametrize("table", [trainer_table.name_table, trainer_table.constant_table])
def test_the_page_shows_the_tables(table: object) -> None:
    assert callable(table)
    assert table() in PAGE.read_text()


def test_the_page_explains_every_section() -> None:
    page = PAGE.read_text()
    for section in {key.split(".")[0] for key in CONSTANTS}:
        assert f"**{section}**" in page, section
