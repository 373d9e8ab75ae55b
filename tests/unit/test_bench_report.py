"""The report of a comparison: every row is in it, figures are well formed, and the command writes it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from answers import documented
from foretell.bench import study
from foretell.bench.group import groups
from foretell.bench.page import bench_page, over_time, predicted
from foretell.bench.row import UNFIT, BenchRow, LearningPoint, PredictedRow
from foretell.bench.study import About
from foretell.cli.command import cli
from foretell.report.page import html


def row(engine: str, plan: str, ranks: int, seed: int, step: float) -> BenchRow:
    looks = tuple(
        LearningPoint(step=at, epoch=at / 10, seconds=at * step, loss=3.0 / at, metric=0.1 * at + 0.02 * seed)
        for at in range(1, 5)
    )
    guess = PredictedRow(
        step_seconds=1.1 * step, low_seconds=step, high_seconds=1.2 * step, memory_bytes=2e8,
        breakdown={"forward": 0.4 * step, "backward": 0.7 * step}, error=0.1, memory_error=0.0,
    )  # fmt: skip
    return BenchRow(
        engine=engine, pair="image", ranks=ranks, seed=seed, batch_rule="", fingerprint=f"{engine}{ranks}{seed}",
        device="cpu", plan=plan, batch=8, epoch_samples=80, step_seconds=step, precision="fp32",
        phases={"forward": 0.3 * step, "backward": 0.6 * step, "exposed.dp": 0.1 * step}, curve=looks,
        memory_by_rank=(10**8,) * ranks, predicted=guess,
    )  # fmt: skip


ROWS = (
    row("ddp", "dp1", 1, 0, 0.2),
    *(row("ddp", "dp2", 2, seed, 0.12) for seed in (0, 1)),
    *(row("one_f_one_b", "pp2:1f1b +m8", 2, seed, 0.3) for seed in (0, 1)),
    BenchRow(
        engine="deepspeed", pair="image", ranks=2, seed=0, batch_rule="", status=UNFIT, reason="no <ninja>", fix="x"
    ),
)


def test_all_engines_are_in_the_page_and_those_that_did_not_run_with_their_reason() -> None:
    page = bench_page(ROWS, "a comparison")
    text = html(page)
    for word in ("ddp", "one-f-one-b", "deepspeed", "no &lt;ninja&gt;", "exposed communication", "What did not run"):
        assert word in text
    assert {chart.name for chart in page.charts} == {
        "seconds-cpu-image", "bytes-cpu-image", "epoch-cpu-image", "memory-cpu-image", "phases-cpu-image",
        "predicted-phases-cpu-image", "metric-cpu-image-epochs", "metric-cpu-image-minutes",
    }  # fmt: skip
    for chart in page.charts:
        ET.fromstring(chart.svg())


def test_epochs_are_drawn_over_ranks_by_factors_and_predictions_dashed() -> None:
    page = bench_page(ROWS, "a comparison")
    chart = next(one for one in page.charts if one.name == "epoch-cpu-image")
    assert ("ddp", "2", "1.2") in chart.rows and ("ddp, dashed", "2", "1.32") in chart.rows
    assert [name for _, name in chart.legend] == ["ddp", "one-f-one-b"]


def test_every_bar_has_its_prediction() -> None:
    page = bench_page(ROWS, "a comparison")
    bars = next(one for one in page.charts if one.name == "seconds-cpu-image")
    assert {name: error for name, _, _, error in bars.rows} == {"ddp 2": "+10.0%", "one-f-one-b 2": "+10.0%"}
    slow = bench_page([one for one in ROWS if one.engine == "one_f_one_b"], "a comparison")
    assert slow.cards[0].beside == "one-f-one-b on 2 ranks"


def test_the_metric_is_the_mean_of_the_seeds() -> None:
    (group,) = groups(ROWS)
    epochs, minutes = over_time(group)
    ddp = next(curve for curve in epochs.curves if curve.name == "ddp")
    assert ddp.points[0] == pytest.approx((0.1, 0.11)) and len(ddp.points) == 4
    assert next(iter(minutes.curves)).points[0][0] == pytest.approx(0.12 / 60)


def test_learning_is_compared_by_the_same_seeds() -> None:
    """One seed beside the mean of two would say of engines what is true of seeds."""
    more = [
        *ROWS,
        row("zero1", "dp2:zero1", 2, 0, 0.1),
        *(row("gpipe", "pp2:gpipe +m8", 2, at, 0.3) for at in range(3)),
    ]
    (group,) = groups(more)
    epochs, _ = over_time(group)
    points = {curve.name: curve.points for curve in epochs.curves}
    assert set(points) == {"ddp", "one-f-one-b", "gpipe"} and points["gpipe"] == points["ddp"]
    assert "Not drawn, of one seed only: zero1." in html(bench_page(more, "a comparison"))
    (alone,) = groups(one for one in more if one.seed == 0)
    assert {curve.name for curve in over_time(alone)[0].curves} == {*points, "zero1"}


def test_rows_without_a_metric_show_the_loss() -> None:
    unscored = [
        msgspec.structs.replace(one, curve=tuple(msgspec.structs.replace(look, metric=None) for look in one.curve))
        for one in ROWS
    ]
    (group,) = groups(unscored)
    assert over_time(group)[0].up == "loss of held-out data"


def test_a_prediction_is_a_row_of_its_own() -> None:
    assert len(predicted(ROWS)) == 5
    assert all(one.step_seconds > 0 and not one.curve for one in predicted(ROWS))


def test_nothing_measured_makes_a_page_too() -> None:
    assert "What did not run" in html(bench_page(ROWS[-1:], "nothing"))
    assert html(bench_page([], "nothing"))


def test_the_command_writes_page_and_figures(tmp_path: Path) -> None:
    study.begin(tmp_path / "study", About(command="x", created="", foretell="", machine="here", cores=2))
    for one in ROWS:
        study.keep(tmp_path / "study", one)
    asked = ["bench", "--show", str(tmp_path / "study"), "--html", str(tmp_path / "b.html")]
    asked += ["--figures", str(tmp_path / "figures"), "--json"]
    answer = CliRunner().invoke(cli, asked)
    assert answer.exit_code == 0, answer.output
    told = documented("bench", answer.output)
    assert all(Path(name).is_file() for name in told["files"]) and len(told["files"]) == 17
    assert {"finding": "advice-data", "status": "holds"}.items() <= next(
        one for one in told["findings"] if one["finding"] == "advice-data"
    ).items()
    assert any(one["name"] == "exposed communication" and one["engine"] == "ddp" for one in told["reasons"])
    shown = CliRunner().invoke(cli, asked[:3])
    assert "why it is slow" in shown.output and "data parallelism is the fastest" in shown.output


def test_phases_that_are_small_in_every_bar_are_others_and_nothing_is_lost() -> None:
    specked = [
        msgspec.structs.replace(one, phases={**one.phases, "host": 1e-5, "input": 2e-5}) if one.ok else one
        for one in ROWS
    ]
    chart = next(one for one in bench_page(specked, "specks").charts if one.name == "phases-cpu-image")
    assert {"other", "forward", "backward"} <= {row[1] for row in chart.rows}
    assert {"host", "input"}.isdisjoint({row[1] for row in chart.rows})


def test_points_of_one_number_of_ranks_are_no_figure() -> None:
    names = {chart.name for chart in bench_page([one for one in ROWS if one.ranks == 2], "two ranks").charts}
    assert not any(name.startswith(("epoch-", "memory-")) for name in names)
    assert any(name.startswith("phases-") for name in names)


def test_the_reference_is_beside_all_that_learn() -> None:
    pipes = (row(f"pipe{at}", "pp2:gpipe +m8", 2, seed, 0.3) for at in range(8) for seed in (0, 1))
    shares = (row(f"zero{at}", "dp2:zero1", 2, seed, 0.3) for at in range(3) for seed in (0, 1))
    page = bench_page([*ROWS, *pipes, *shares], "a comparison")
    figures = [one for one in page.charts if one.name.startswith("metric")]
    assert len(figures) > 4 and all("ddp" in {name for _, name in one.legend} for one in figures)


def test_more_engines_than_colours_are_drawn_by_family() -> None:
    counts = (2, 4)
    data = [row(f"data{at}", f"dp{n}", n, 0, 0.1 + at / 100) for at in range(9) for n in counts]
    piped = [row(f"piped{at}", f"pp{n}:gpipe +m8", n, 0, 0.2 + at / 100) for at in range(3) for n in counts]
    page = bench_page([*data, *piped], "many")
    epochs = {chart.name: chart for chart in page.charts if chart.name.startswith("epoch-")}
    assert set(epochs) == {"epoch-cpu-image-data", "epoch-cpu-image-data-2", "epoch-cpu-image-pipeline"}
    assert [len(chart.legend) for chart in epochs.values()] == [8, 1, 3]
    assert len({chart.name for chart in page.charts}) == len(page.charts)


def test_one_number_of_ranks_is_bars_beside_their_predictions() -> None:
    page = bench_page([one for one in ROWS if one.ranks == 2], "two ranks")
    names = {chart.name for chart in page.charts}
    assert "epoch-cpu-image" not in names and "memory-cpu-image" not in names
    chart = next(one for one in page.charts if one.name == "seconds-cpu-image")
    assert [name for name, *_ in chart.rows] == ["ddp 2", "one-f-one-b 2"]  # the fastest first
    assert chart.rows[0][1:] == ("1.2 s", "1.32 s", "+10.0%")
