"""`foretell lab` as people type it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from answers import documented

SOURCE = Path(__file__).parents[2] / "src"


def ran(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_DATA_HOME": str(folder)}
    command = [sys.executable, "-m", "foretell", "lab", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_the_selftest_tells_what_is_attained(tmp_path: Path) -> None:
    found = ran("selftest", "--rate", "100Mbit", "--delay", "2ms", "--json", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    answer = documented("lab selftest", found.stdout)
    (pair,) = answer["pairs"]
    assert pair["asked_delay"] == 2e-3
    assert pair["delay"] >= 2e-3
    assert pair["rate"] <= 1.05 * 12.5e6
    assert answer["overhead"] == pytest.approx(pair["delay"] - 2e-3)


def test_measure_keeps_raw_samples_beside_formulas(tmp_path: Path) -> None:
    arguments = ("--algorithm", "ring", "--algorithm", "ps:2", "--sizes", "1KiB,16KiB", "--repeats", "2")
    found = ran("measure", *arguments, "--out", "raw.jsonl", "--json", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    answer = documented("lab measure", found.stdout)
    assert {(row["algorithm"], row["kind"]) for row in answer["rows"]} >= {
        ("ring", "all-reduce"),
        ("parameter_server:2", "all-reduce"),
    }
    assert all(len(row["samples"]) == 2 and row["formula"] > 0 for row in answer["rows"])
    lines = (tmp_path / "raw.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == answer["rows"]
    assert {order["size"] for order in answer["orders"]} == {1024, 16384}


@pytest.mark.slow
def test_crossovers_are_timed_around_where_formulas_cross(tmp_path: Path) -> None:
    pair = ("--algorithm", "butterfly", "--algorithm", "recursive")
    found = ran("crossover", "--hosts", "4", *pair, "--repeats", "1", "--json", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    answer = documented("lab crossover", found.stdout)
    assert {(one["below"], one["above"]) for one in answer["crossovers"]} <= {("butterfly", "recursive")}
    assert bool(answer["rows"]) == bool(answer["crossovers"])


RIGHTS = {"sys_admin": ("namespaces", "SYS_ADMIN"), "net_admin": ("devices", "NET_ADMIN")}


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv")
@pytest.mark.parametrize("right", RIGHTS)
def test_rights_that_are_missing_are_told(right: str, tmp_path: Path) -> None:
    """As somebody who has all others."""
    less = ["setpriv", f"--bounding-set=-{right}", "--inh-caps=-all", sys.executable, "-m", "foretell"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [*less, "lab", "selftest"]
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    what, fix = RIGHTS[right]
    assert found.returncode == 2
    assert f"network {what} may not be made by this user" in found.stderr
    assert f"--cap-add {fix}" in found.stderr


@pytest.mark.parametrize("words", [("--on", "8xh100"), ("--on=8xh100",)])
def test_the_cluster_of_a_run_is_the_lab(tmp_path: Path, words: tuple[str, ...]) -> None:
    found = ran("run", "lenet", "--plan", "dp2", "--batch", "4", *words, folder=tmp_path)
    assert found.returncode == 2
    assert "--on is this network" in found.stderr


def test_the_description_is_a_cluster(tmp_path: Path) -> None:
    found = ran("describe", "mine.toml", "--hosts", "4", "--overhead", "100us", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_DATA_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "foretell", "predict", "lenet", "--on", "mine.toml", "--plan", "dp4"]
    predicted = subprocess.run(
        [*command, "--batch", "8", "--json"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert predicted.returncode == 0, predicted.stderr
    answer = json.loads(predicted.stdout)
    assert answer["breakdown"]["exposed.dp"] > 12 * 0.6e-3  # a ring of four, asked for and answered


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("selftest", "--hosts", "1"), "--hosts"),
        (("selftest", "--rate", "fast"), "--rate"),
        (("selftest", "--island", "2"), "--island"),
        (("selftest", "--port", "7:1Gbit"), "no host 7"),
        (("selftest", "--link", "0-0:1Gbit,1ms"), "0-1"),
        (("describe", "mine.yaml", "--overhead", "1us"), "mine.yaml.toml"),
        (("measure", "--algorithm", "rings"), "ring"),
        (("measure", "--algorithm", "ps:9", "--hosts", "4"), "9 servers on 4 ranks\n  where  --algorithm"),
        (("measure", "--algorithm", "hierarchical:3", "--hosts", "4"), "islands of 3\n  where  --algorithm"),
        (("crossover", "--algorithm", "ps:9", "--algorithm", "ring"), "9 servers on 2 ranks\n  where  --algorithm"),
        (("run", "lenet", "--on", "8xh100"), "--on"),
        (("run", "lenet", "--plan", "dp4", "--batch", "4"), "--hosts 4, or --per-host 2"),
        (("run", "lenet", "--ranks", "3", "--batch", "6"), "--hosts 3, or a plan of 2 ranks"),
        (("run", "lenet", "--per-host", "2", "--plan", "dp2", "--batch", "4"), "2 hosts with 2 ranks each"),
        (("run", "lenet", "--plan", "dp2", "--traffic", "0-5:1Gbit"), "no rank 5 among 2"),
        (
            ("run", "--rate", "200Mbit", "lenet", "--plan", "dp2", "--batch", "4", "--traffic", "0-1:900Mbit"),
            "other jobs send 900 Mb/s over a link of 200 Mb/s between ranks 0 and 1",
        ),
        (("run", "lenet", "--plan", "dp2", "--slow-rank", "9:2x"), "no rank 9 among 2"),
        (("run", "lenet", "--plan", "dp2", "--slow-link", "0-1"), "0-1:4x"),
        (("run", "lenet", "--plan", "dp2", "--slow-rank", "1:0.5x"), "1:2x"),
    ],
)
def test_slips_are_told_with_what_would_work(arguments: tuple[str, ...], word: str, tmp_path: Path) -> None:
    found = ran(*arguments, folder=tmp_path)
    assert found.returncode == 2
    assert word in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.slow
def test_a_run_goes_across_hosts_and_is_compared_with_them(tmp_path: Path) -> None:
    network = ("--rate", "100Mbit", "--delay", "2ms", "--slow-rank", "1:3x")
    what = ("lenet", "--plan", "dp2", "--batch", "64", "--steps", "4", "--collectives", "ring", "--compare", "--json")
    found = ran("run", *network, *what, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    answer = documented("lab run", found.stdout)
    assert answer["ranks"] == 2
    assert answer["comparison"]["collectives"] == {"unexpected": [], "missing": []}
    told = {(one["kind"], one["name"]) for one in answer["comparison"]["outside"]}
    assert ("straggler", "rank 0") not in told
    assert {("straggler", "rank 1"), ("other programs", "rank 1")} & told  # where those take more, they are the cause
    sent = sum(one["payload"] for one in answer["collectives"] if one["kind"] == "all-reduce")
    assert answer["step_seconds"] > 2 * 2e-3 + sent / 12.5e6  # it cannot be faster than its links
    assert answer["comparison"]["predicted"]["breakdown"]["exposed.dp"] > sent / 12.5e6
