"""`foretell predict --oracle paper`: pages, JSON, and messages for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.model.zoo.paradl import FOLDER, NETWORKS, Paradl
from foretell.plan import text
from foretell.replicas.paradl import rows, table3
from foretell.replicas.paradl.answer import interval
from foretell.replicas.paradl.choice import split_layers
from foretell.replicas.paradl.limits import limit, refusals
from foretell.replicas.paradl.predict import project, question
from foretell.replicas.paradl.release import RELEASES
from foretell.replicas.paradl.shapes import INNER, ROW_OF, SHAPES, RowShape, asked
from law_examples import reached

VGG = ("predict", "vgg16-paradl", "--oracle", "paper")


KEYS = {"step_seconds", "memory_bytes", "breakdown", "interval", "fits", "bottlenecks", "provenance"}
MORE = {"epoch_seconds", "limit", "terms", "cost_rank_minutes", "releases"}
PLANS = SHAPES.split(", ")


@pytest.mark.parametrize("plan", PLANS)
def test_json_is_an_observation(foretell: Any, plan: str) -> None:
    answer = json.loads(foretell(*VGG, "--plan", plan, "--batch", "8192", "--json").out)
    assert set(answer) >= KEYS | MORE
    assert answer["plan"] == plan
    assert sum(answer["breakdown"].values()) == pytest.approx(answer["step_seconds"], rel=1e-12)
    terms = sum(term["epoch_seconds"] for term in answer["terms"])
    assert answer["computation_seconds"]["epoch"] + terms == pytest.approx(answer["epoch_seconds"], rel=1e-12)
    assert answer["interval"][0] < answer["step_seconds"] < answer["interval"][1]
    assert set(answer["releases"]) == set(RELEASES) - {"2020"}


def test_the_first_golden_row(foretell: Any) -> None:
    answer = json.loads(foretell(*VGG, "--plan", "dp16", "--batch", "512", "--json").out)
    assert answer["memory_bytes"] == 9_360_484_864
    assert answer["computation_seconds"]["epoch"] == pytest.approx(659.64712, rel=1e-11)
    assert answer["communication_seconds"]["epoch"] == pytest.approx(256.975362, rel=1e-11)
    assert (answer["cost_rank_minutes"], answer["limit"]["ranks"], answer["fits"]) == (256, 512, True)


def test_the_release_is_said_and_changes_the_cables(foretell: Any) -> None:
    old, new = (
        json.loads(foretell(*VGG, "--plan", "dp16", "--batch", "512", "--json", "--release", name).out)
        for name in ("2020", "2021")
    )
    assert old["provenance"]["constants"]["cable_startup"] == 15e-6
    assert new["provenance"]["constants"]["cable_startup"] == 20e-6
    # 15 steps of a ring, there and back, each 2 x 5 us later
    steps, later = old["steps_per_epoch"], 2 * 15 * 2 * 5e-6
    assert new["epoch_seconds"] - old["epoch_seconds"] == pytest.approx(steps * later)
    assert old["releases"]["2021"]["epoch_seconds"] == new["epoch_seconds"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("plan", PLANS)
def test_a_page_fits_eighty_columns(foretell: Any, plan: str, release: str) -> None:
    ran = foretell(*VGG, "--plan", plan, "--batch", "8192", "--on", "abci", "--release", release)
    assert ran.code == 0, ran.err
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    assert f"release {release}" in ran.out


def test_every_strategy_on_so_many_ranks(foretell: Any) -> None:
    arguments = (*VGG, "--ranks", "8", "--batch", "128")
    ran = foretell(*arguments)
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    answer = json.loads(foretell(*arguments, "--json").out)
    found = {row["strategy"]: row for row in answer["rows"]}
    assert set(found) == set(ROW_OF.values())
    fitting = [row["step_seconds"] for row in answer["rows"] if row["fits"]]
    assert fitting == sorted(fitting)
    assert answer["rows"][0]["plan"] == "dp8"
    assert all(row["plan"] in ran.out for row in answer["rows"])
    for row in answer["rows"]:  # the same as asked for alone
        alone = json.loads(foretell(*VGG, "--plan", row["plan"], "--batch", "128", "--json").out)
        assert alone == row


@pytest.mark.parametrize(("ranks", "why"), [(4, "4 ranks are one group"), (6, "6 ranks are not whole nodes")])
def test_hybrids_that_are_left_out_are_named(foretell: Any, ranks: int, why: str) -> None:
    arguments = (*VGG, "--ranks", str(ranks), "--batch", "96")
    ran = foretell(*arguments)
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    page = " ".join(ran.out.split())
    assert f"data+filter, data+spatial: left out, a group is a node of 4 ranks, and {why}" in page
    answer = json.loads(foretell(*arguments, "--json").out)
    assert {"data+filter", "data+spatial"} <= set(answer["refused"])
    assert not {"data+filter", "data+spatial"} & {row["strategy"] for row in answer["rows"]}


@pytest.mark.parametrize(("plan", "better"), [("filter4 dp256", "dp256 filter4"), ("spatial4 dp2", "dp2 spatial4")])
def test_axes_in_the_other_order(foretell: Any, plan: str, better: str) -> None:
    ran = foretell(*VGG, "--plan", plan, "--batch", "8192")
    assert ran.code == 2
    assert "only the order of the axes is wrong" in ran.err
    assert f"try    {better}\n" in ran.err
    assert foretell(*VGG, "--plan", better, "--batch", "8192").code == 0


def test_a_path_is_as_good_as_a_name(foretell: Any) -> None:
    for network, plan in (("cosmoflow512", "dp2 spatial4"), ("resnet50", "filter4")):
        named, path = (
            json.loads(foretell("predict", model, "--oracle", "paper", "--plan", plan, "--batch", "8", "--json").out)
            for model in (f"{network}-paradl", str(FOLDER / f"{network}.net"))
        )
        assert named.pop("model") != path.pop("model")
        assert named == path


def test_a_file_without_seconds_runs_at_the_tools_speed(foretell: Any, tmp_path: Path) -> None:
    file = tmp_path / "small.net"
    file.write_text("Input|1000x3x8x8\nCONV1|3x8x8|3x4x3x3|4x8x8\nFC2|4x8x8|4x10x8x8|10x1x1\n")
    answer = json.loads(
        foretell("predict", str(file), "--oracle", "paper", "--plan", "dp2", "--batch", "10", "--json").out
    )
    flops = 2 * (2 * 3 * 4 * 9 * 64) + 3 * 4 * 9 + 2 * 2560 + 2560
    assert answer["computation_seconds"]["epoch"] == pytest.approx(500 * flops / 7.8e12)


def test_windows_of_one_position_have_no_halo(foretell: Any, tmp_path: Path) -> None:
    """The tool splits such layers, Table 3 has nothing to split."""
    file = tmp_path / "narrow.net"
    file.write_text("Input|1000x3x8x8\nCONV1|3x8x8|3x4x1x1|4x8x8|0.001\n")
    arguments = ("predict", str(file), "--oracle", "paper", "--batch", "4", "--plan", "dp2 spatial2", "--json")
    answer = json.loads(foretell(*arguments).out)
    assert answer["terms"][0]["epoch_seconds"] == 0
    assert set(answer["releases"]) == {"2021", "source"}
    assert foretell(*arguments, "--release", "table3").code == 2


def test_layers_can_be_named(foretell: Any) -> None:
    arguments = ("predict", "cosmoflow512-paradl", "--oracle", "paper", "--batch", "2", "--json", "--plan")
    usual, same, more = (
        json.loads(foretell(*arguments, f"dp2 spatial4{part}").out) for part in ("", "[conv1,conv2]", "[conv1..conv3]")
    )
    assert usual["provenance"]["split_layers"] == same["provenance"]["split_layers"] == ["CONV1", "CONV2"]
    assert usual["step_seconds"] == same["step_seconds"]
    assert more["provenance"]["split_layers"] == ["CONV1", "APOOL1", "CONV2", "APOOL2", "CONV3"]


BAD = {
    ("predict", "vgg16-paradl", "--plan", "dp16", "--batch", "512"): "--oracle paper",
    ("predict", "vgg16", "--oracle", "paper", "--plan", "dp16", "--batch", "512"): "vgg16-paradl",
    ("predict", "gpt2", "--oracle", "paper", "--plan", "dp16", "--batch", "512"): "resnet50-paradl",
    ("predict", "", "--oracle", "paper", "--plan", "dp16", "--batch", "512"): "no model is given",
    ("predict", "nowhere.net", "--oracle", "paper", "--plan", "dp16", "--batch", "512"): "no such file",
    ("predict", "vgg16-paradl:dtype=bf16", "--oracle", "paper", "--plan", "dp2", "--batch", "4"): "4 bytes",
    ("predict", "paradl:network=vgg", "--oracle", "paper", "--plan", "dp2", "--batch", "4"): "vgg16",
    (*VGG, "--plan", "dp16"): "--batch",
    (*VGG, "--batch", "512"): "--plan",
    (*VGG, "--plan", "dp16", "--ranks", "4", "--batch", "512"): "--ranks",
    (*VGG, "--plan", "dp16", "--batch", "0"): "batch of 0",
    (*VGG, "--plan", "dp16", "--batch", "-5"): "batch of -5",
    (*VGG, "--plan", "dp16", "--batch", "many"): "many",
    (*VGG, "--plan", "dp16", "--batch", "100"): "--batch 112",
    (*VGG, "--plan", "dp16", "--batch", "8"): "p <= B = 8",
    (*VGG, "--plan", "dp16", "--batch", "512", "--on", "64xh100", "--release", "2021"): "table3",
    (*VGG, "--plan", "dp16", "--batch", "512", "--release", "2019"): "2020",
    (*VGG, "--plan", "filter128", "--batch", "32"): "least filters = 64 (CONV1_1)",
    (*VGG, "--plan", "channel65", "--batch", "32"): "least channels = 64",
    (*VGG, "--plan", "spatial16", "--batch", "32"): "first extent = 8",
    (*VGG, "--plan", "dp2 filter128", "--batch", "32"): "filter64 at most",
    (*VGG, "--plan", "dp64 filter4", "--batch", "32"): "dp32 at most",
    (*VGG, "--plan", "pp39:gpipe", "--batch", "39"): "layers = 38",
    (*VGG, "--plan", "pp38:gpipe", "--batch", "38"): "stages only",
    (*VGG, "--plan", "pp4:gpipe +m3", "--batch", "128"): "+m3",
    (*VGG, "--plan", "pp4:1f1b +m4", "--batch", "128"): "pp4:gpipe",
    (*VGG, "--plan", "dp16:zero1", "--batch", "512"): "zero1",
    (*VGG, "--plan", "dp16 +m4", "--batch", "512"): "+m4",
    (*VGG, "--plan", "dp16 +bf16", "--batch", "512"): "+bf16",
    (*VGG, "--plan", "tp8", "--batch", "512"): "dp256 spatial4",
    (*VGG, "--plan", "filter4 dp4", "--batch", "512"): "dp4 filter4",
    (*VGG, "--plan", "dp2 pp2:gpipe", "--batch", "512"): "dp256 filter4",
    (*VGG, "--plan", "spatial2x2", "--batch", "512"): "spatial4",
    (*VGG, "--plan", "spatial4[nothing]", "--batch", "512"): "CONV1_1",
    (*VGG, "--plan", "spatial4[conv2_1..conv1_1]", "--batch", "512"): "CONV1_1",
    (*VGG, "--plan", "spatial4[conv1_1]", "--batch", "512", "--release", "table3"): "Table 3",
    (*VGG, "--plan", "nonsense", "--batch", "512"): "nonsense",
    (*VGG, "--ranks", "1", "--batch", "512"): "--plan dp1",
}


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_is_told_and_exits_with_2(foretell: Any, arguments: tuple[str, ...]) -> None:
    ran = foretell(*arguments)
    assert ran.code == 2
    assert not ran.out
    assert BAD[arguments] in ran.err


# Laws, over every row, network and release


@pytest.mark.reaches(refused=2, predicted=8, more_ranks=5, one_rank=1)
@given(
    st.sampled_from(sorted(ROW_OF.values())),
    st.sampled_from(NETWORKS),
    st.sampled_from(sorted(RELEASES)),
    st.just(1) | st.integers(1, 64),
    st.just(1) | st.integers(1, 8) | st.just(9999),
    st.integers(1, 8),
)
def test_laws(strategy: str, network: str, release: str, groups: int, ranks: int, samples: int) -> None:
    groups = groups if strategy in ("data", *INNER) else 1
    ranks = 1 if strategy in ("serial", "data") else ranks
    row = RowShape(strategy, groups, ranks, segments=samples if strategy == "pipeline" else 1)
    q = question(Paradl(network=network).file(), row, groups * samples, RELEASES[release])
    broken = list(refusals(strategy, q))
    assert (ranks > limit(INNER.get(strategy, strategy), q).ranks) is ("p limit" in [r.rule for r in broken])
    if broken:
        assert all(refusal.way_out for refusal in broken)
        reached("refused")
        return
    reached("predicted")
    found = project(strategy, q)
    serial = project("serial", question(q.file, RowShape("serial"), samples, q.release))
    assert found.ranks == groups * ranks
    assert found.communication >= 0
    if strategy != "data+spatial" or q.release.clean:  # the tool leaves layers out there
        reached("more_ranks")
        assert found.computation * (1 + 1e-12) >= serial.computation / found.ranks
    if groups * ranks == 1 and strategy != "pipeline" and not strategy.endswith("spatial"):
        reached("one_rank")
        assert found.communication == 0
        assert found.memory == pytest.approx(serial.memory)
        # rows with filters or channels count the last step of an epoch as a full one
        full = strategy.endswith(("filter", "channel")) and not q.release.clean
        counted = q.steps * q.batch / q.file.samples if full else 1
        assert found.computation == pytest.approx(serial.computation * counted)
    low, high = interval(found)
    assert low < found.a_step(found.seconds) < high


def test_both_tables_have_all_rows() -> None:
    assert set(rows.ROWS) == set(table3.ROWS) == set(ROW_OF.values())


@pytest.mark.parametrize("plan", ["dp8", "spatial8", "filter8", "channel8", "dp2 filter4", "dp2 spatial4"])
def test_every_oddity_that_is_named_matters(plan: str) -> None:
    """Switching an oddity of a row off changes the row, for some release."""
    import msgspec

    row = asked(text.parse(plan))
    for release in RELEASES.values():
        for name in release.quirks(row.strategy):
            plain = type(getattr(release, name))(1 if name == "ds_gather_contention" else 0)
            if name in ("df_contention", "ds_leader_flows", "ds_leader_contention"):
                plain = getattr(release, name) * 2  # there is no link without flows
            changed = msgspec.structs.replace(release, **{name: plain})
            file = Paradl(network="resnet50").file()
            uneven = msgspec.structs.replace(
                file, layers=(msgspec.structs.replace(file.layers[0], seconds=1.0), *file.layers[1:])
            )
            before, after = (project(row.strategy, question(uneven, row, 24, one)) for one in (release, changed))
            assert (before.memory, before.seconds) != (after.memory, after.seconds), (release.name, name)


def test_a_model_that_cannot_be_split_in_space_says_so() -> None:
    file = Paradl(network="vgg16").file()
    row = RowShape("spatial", ranks=2)
    q = question(file, row, 2, RELEASES["2020"])
    none = type(q)(file=file, release=q.release, batch=2, ranks=2, split=split_layers(file, "data"))
    assert [refusal.rule for refusal in refusals("spatial", none)] == ["p limit"]
    with pytest.raises(BadInput, match="split in space"):
        project("spatial", none)
