"""Kernels of experts: grouped products by PyTorch's own tiles, sorting, choosing and adding up rows, wide heads."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.kernels import kernel_seconds
from foretell.cost.kernels.grouped import LARGE, NARROW, SMALL
from foretell.hardware.members import device
from foretell.model.operator import Operator
from foretell.model.operators.attention import Attention
from foretell.model.operators.experts import Gather, GroupedMatmul, ScatterAdd, Sort, TopK
from foretell.plan.policies.precision import FORMATS
from foretell.plan.trainer import Trainer, trainer
from foretell.program.action import Compute

H200, PYTORCH, BF16 = device("h200"), trainer("pytorch"), FORMATS["bf16:pure"]
WIDTHS = {"x": 2, "w": 2, "y": 2, "offsets": 4, "index": 8}
PARTS = ("forward", "input_gradient", "weight_gradient")
SIZES = st.sampled_from([128, 768, 1024, 2048, 2880, 4096, 7168])


def seconds(operator: Operator, part: str, sizes: dict[str, Any], runs: Trainer = PYTORCH, on: str = "h200") -> Any:
    tag = str(type(operator).__struct_config__.tag)
    action = Compute("layers.0", tag, part, sizes, operator.part(part, sizes, WIDTHS))
    return kernel_seconds(action, device(on), BF16, runs).seconds


def experts(count: int, rows: int, ins: int, outs: int) -> dict[str, int]:
    return {"expert": count, "row": count * rows, "in": ins, "out": outs}


@given(st.integers(1, 64), st.integers(1, 4096), SIZES, SIZES, st.sampled_from(PARTS))
def test_no_tile_beats_its_units(count: int, rows: int, ins: int, outs: int, part: str) -> None:
    """A grouped product is no faster than its flops at the peak, nor than its bytes at the memory's bandwidth."""
    sizes = experts(count, rows, ins, outs)
    took = seconds(GroupedMatmul(), part, sizes)
    assert took >= 2 * count * rows * ins * outs / (H200.matrix_rate("bf16") * LARGE.rate)
    cost = GroupedMatmul().part(part, sizes, WIDTHS)
    assert took >= (cost.read + cost.written) / H200.memory_bandwidth


@given(st.integers(1, 64), st.integers(1, 2000), SIZES, SIZES, st.sampled_from(PARTS))
def test_more_rows_take_no_less_with_one_tile(count: int, rows: int, ins: int, outs: int, part: str) -> None:
    """Among rows that get the same tile, more take as long or longer."""
    more = rows + 64
    if part != "weight_gradient" and rows <= NARROW < more:
        rows = more - 1
    took = [seconds(GroupedMatmul(), part, experts(count, each, ins, outs)) for each in (rows, more)]
    assert took[0] <= took[1] * (1 + 1e-12)


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 3000)), min_size=2, max_size=6), SIZES, SIZES)
def test_arrays_are_priced_as_numbers(drawn: list[tuple[int, int]], ins: int, outs: int) -> None:
    for part in PARTS:
        alone = [float(seconds(GroupedMatmul(), part, experts(count, rows, ins, outs))) for count, rows in drawn]
        counts, rows = (numpy.array(column) for column in zip(*drawn, strict=True))
        together = seconds(GroupedMatmul(), part, {"expert": counts, "row": counts * rows, "in": ins, "out": outs})
        assert together.tolist() == alone


def test_tiles_by_hand() -> None:
    """Two experts of 256 rows and 512 columns: (256 / 128 + 1/2) x 2 x 2 tiles fit one wave of 132 multiprocessors."""
    rate = H200.matrix_rate("bf16") / 132
    wave = 1024 * 2 * 128 * 256 / (rate * LARGE.rate) + 4000 / H200.clock_hz
    small = 1024 * max(2 * 64 * 128 / (rate * SMALL.rate), (64 + 128) * 2 / 64 / H200.clock_hz) + 4000 / H200.clock_hz
    beside = 5.5e-6 + 2 * H200.launch_seconds
    assert seconds(GroupedMatmul(), "forward", experts(2, 256, 1024, 512)) == pytest.approx(wave + beside)
    assert seconds(GroupedMatmul(), "forward", experts(2, 64, 1024, 512)) == pytest.approx(small + beside)


def test_libraries_and_other_devices_keep_their_own_kernels() -> None:
    sizes = experts(1, 512, 2048, 2048)
    library = msgspec.structs.replace(PYTORCH, fusion=msgspec.structs.replace(PYTORCH.fusion, grouped="library"))
    assert trainer("megatron-core").fusion.grouped == "library" and PYTORCH.fusion.grouped == "pytorch"
    assert seconds(GroupedMatmul(), "forward", sizes) > 1.5 * seconds(GroupedMatmul(), "forward", sizes, library)
    for other in ("a100-80", "b200"):
        assert seconds(GroupedMatmul(), "forward", sizes, on=other) == seconds(
            GroupedMatmul(), "forward", sizes, library, on=other
        )


def test_rows_are_added_one_element_at_a_time() -> None:
    """Adding rows up is bound by instructions, two for index_add where scatter_add has one; picking is not."""
    n = {"source": 8192, "row": 65536, "feature": 2048, "target": 8192}
    elements = 65536 * 2048
    cycle = 1 / (132 * H200.clock_hz)
    gathered, added = (seconds(Gather(), part, n) for part in ("forward", "input_gradient"))
    scattered = seconds(ScatterAdd(), "forward", n)
    assert added - 2 * H200.launch_seconds == pytest.approx(2.02 * elements * cycle)
    assert scattered - 2 * H200.launch_seconds == pytest.approx(0.93 * elements * cycle)
    assert gathered < scattered / 3


def test_sorting_waits_and_choosing_walks() -> None:
    few, many = (float(seconds(Sort(), "forward", {"row": rows})) for rows in (8192, 65536))
    assert 70e-6 < few < many < 1.2 * few
    each = [float(seconds(TopK(), "forward", {"row": 65536, "class": size, "chosen": 8})) for size in (8, 128, 256)]
    assert each[0] < each[1] < each[2] < 2 * each[1]


@pytest.mark.parametrize(("part", "slower"), [("forward", 1.0), ("input_gradient", 1.5)])
def test_heads_of_256_lose_their_backward_pass(part: str, slower: float) -> None:
    """As many flops in heads of 256 as of 128: forward as fast, backward half as slow again."""
    took: list[float] = []
    for heads, size in ((16, 128), (8, 256)):
        sizes = {"sample": 1, "kv_head": heads, "share": 1, "query": 16384, "key": 16384, "qk": size, "value": size}
        operator = Attention("flash")
        cost = operator.part(part, sizes, dict.fromkeys(("q", "k", "v", "y"), 2))
        took.append(
            float(kernel_seconds(Compute("layers.0", "attention", part, sizes, cost), H200, BF16, PYTORCH).seconds)
        )
    assert took[1] / took[0] == pytest.approx(slower, abs=0.15)


@pytest.mark.parametrize(("group", "most"), [("attention", 0.1), ("permutation", 0.08), ("compression", 0.1)])
def test_the_half_set_aside_is_met(group: str, most: float) -> None:
    """The median error on rows that no constant was chosen on, as the study prints it."""
    score = _study("h200_experts_and_context")
    off = [abs(ratio - 1) for row, ratio in score.rated([group]) if row["set_aside"]]
    assert len(off) > 30 and statistics.median(off) < most


def test_merges_of_attention_set_aside_are_met() -> None:
    score = _study("h200_experts_and_context")
    off = [abs(ratio - 1) for row, ratio in score.rated(["merges"]) if row["set_aside"]]
    assert len(off) == 10 and statistics.median(off) < 0.05


def test_grouped_products_set_aside_are_met() -> None:
    score = _study("h200_experts_and_context")
    rows = [(row, ratio) for row, ratio in score.rated(["experts"]) if row["way"] == "grouped" and row["set_aside"]]
    assert len(rows) > 200 and statistics.median(abs(ratio - 1) for _, ratio in rows) < 0.08


def test_the_halves_were_drawn_by_name() -> None:
    """What is set aside follows from a row's name alone: nobody chose it after measuring."""
    import hashlib

    folder = Path(__file__).parents[2] / "studies" / "h200_experts_and_context"
    rows = [json.loads(line) for line in (folder / "measured.jsonl").read_text().splitlines()]
    named = [row for row in rows if "id" in row and not row["id"].startswith("alone")]
    assert len(named) > 2000
    for row in named:
        assert row["set_aside"] == (hashlib.sha256(f"29 {row['id']}".encode()).digest()[0] % 2 == 1)


def _study(name: str) -> Any:
    import importlib.util

    path = Path(__file__).parents[2] / "studies" / name / "score.py"
    spec = importlib.util.spec_from_file_location(f"{name}_score", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
