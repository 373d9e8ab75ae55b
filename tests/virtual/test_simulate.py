"""The command: what it answers, refuses, writes; the batch-size trade-off."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from answers import documented
from foretell.cli.command import cli
from foretell.cli.simulate_pages import simulation_page
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.learning.members import about, composed
from foretell.learning.topologies.proxies import Proxies
from foretell.learning.topologies.sharded import Sharded
from foretell.learning.topologies.single import Single
from foretell.virtual import batches
from foretell.virtual.delays import figure14
from foretell.virtual.disturbance import MembershipChange, read
from foretell.virtual.pace import INSIDE, OnCluster, Seated, seats
from foretell.virtual.problems.squares import Squares
from foretell.virtual.simulate import Contest, on_several, simulate

QUICK = [
    "simulate",
    "lenet",
    "--on",
    "8xv100-16",
    "--learn",
    "squares",
    "--rate",
    "1",
    "--target",
    "0.005",
    "--workers",
    "2,4",
    "--algorithms",
]


def answer(*words: str) -> Any:
    ran = CliRunner().invoke(cli, [*words, "--json"])
    if ran.exception is not None:
        raise ran.exception
    return json.loads(ran.stdout)


def test_runs_are_in_the_order_of_their_time_to_the_target() -> None:
    found = answer(*QUICK, "sync@replicated,ssp:s=1,local:tau=4")
    assert [run["workers"] for run in found["runs"]] == [2, 2, 2, 4, 4, 4]
    times = [run["virtual_seconds_to_target"] for run in found["runs"]]
    assert times[:3] == sorted(times[:3])
    assert found["fastest"]["2"] == found["runs"][0]["algorithm"]
    for run in found["runs"]:
        assert run.keys() >= {"algorithm", "workers", "virtual_seconds_to_target", "updates", "staleness", "bytes"}
        assert run["ended"] == "target"
        assert run["curve"][-1][3] <= found["target"]


def test_several_clusters_say_who_wins_or_that_nobody_does() -> None:
    several = [*QUICK, "sync@replicated,local:tau=4", "--on", "2x4xv100-16,eth-1"]
    found = CliRunner().invoke(cli, several)
    assert found.exit_code == 0 and "the fastest" in found.stdout
    nobody = CliRunner().invoke(cli, [*several, "--target", "1e-12", "--samples", "64"])
    assert "no algorithm got to the target on any" in nobody.stdout, nobody.output
    assert "the same algorithm" not in nobody.stdout


def test_what_the_others_pay_is_samples_times_the_time_of_each() -> None:
    found = answer(*QUICK, "sync@replicated,ssp:s=1,local:tau=4")
    for workers in ("2", "4"):
        first, *others = [run for run in found["runs"] if str(run["workers"]) == workers]
        told = found["others"][workers]
        assert [one["algorithm"] for one in told] == [run["algorithm"] for run in others]
        for one, run in zip(told, others, strict=True):
            assert one["times"] == run["virtual_seconds_to_target"] / first["virtual_seconds_to_target"] >= 1
            assert one["samples"] * one["pace"] == pytest.approx(one["times"])
    never = answer(*QUICK, "sync,async", "--rate", "0.001", "--samples", "400")
    assert never["fastest"] == never["others"] == {}


def test_several_clusters_are_several_answers() -> None:
    found = answer(*QUICK, "sync@replicated,async", "--on", "8xv100-16,eth-1")
    assert [one["cluster"] for one in found["simulations"]] == ["8xv100-16", "8xv100-16,eth-1"]
    with pytest.raises(BadInput, match="several drawings"):
        answer(*QUICK, "sync", "--on", "8xv100-16,eth-1", "--plot", "curves.svg")


def test_options_with_commas_stay_with_their_algorithm() -> None:
    found = answer(*QUICK, "easgd:tau=2,alpha=0.2,sync")
    assert {run["algorithm"] for run in found["runs"]} == {"easgd:tau=2,alpha=0.2", "sync"}


def test_the_best_rate_counts() -> None:
    few, many = (answer(*QUICK, "sync", "--rate", rates)["runs"][0] for rates in ("0.1", "0.1,0.5,1"))
    assert many["virtual_seconds_to_target"] < few["virtual_seconds_to_target"]
    assert many["rate"] > few["rate"] == 0.1


def test_stragglers_and_failures_cost_time() -> None:
    calm = answer(*QUICK, "sync")["runs"][0]
    late = answer(*QUICK, "sync", "--stragglers", "0.2x10", "--failures", "0.05/0.01")["runs"][0]
    assert late["seconds"] > calm["seconds"]
    assert late["failures"] > 0 == calm["failures"]


def test_plots_and_traces_can_be_opened(tmp_path: Path) -> None:
    plot, timeline = tmp_path / "curves.svg", tmp_path / "trace.json"
    answer(*QUICK, "sync,async", "--plot", str(plot), "--trace", str(timeline))
    drawn = ElementTree.parse(plot).getroot().iter("{http://www.w3.org/2000/svg}path")
    assert sum("line" in one.attrib["class"] for one in drawn) == 2 * 2 * 3  # over time, over samples, staleness
    events = json.loads(timeline.read_text())["traceEvents"]
    assert {"gradient"} <= {event["name"] for event in events}
    with pytest.raises(BadInput, match="no drawing"):  # before anything runs, or another mistake is found
        answer(*QUICK, "nosuch", "--plot", str(tmp_path / "curves.pdf"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["simulate"], "no model is given"),
        (["simulate", "lenet"], "no cluster is given"),
        ([*QUICK, "nosuch"], "no algorithm is called 'nosuch'"),
        ([*QUICK, "sync@nosuch"], "no topology is called"),
        ([*QUICK, "sync+nosuch"], "no compressor is called"),
        ([*QUICK, "ssp:q=3"], "has no option 'q'"),
        ([*QUICK, "ssp:s=many"], "is no number"),
        ([*QUICK, "gosgd@single"], "has no server"),
        ([*QUICK, "sync@ring"], "needs somebody to push to"),
        ([*QUICK, "tree_easgd@ring"], "goes up and down a tree"),
        ([*QUICK, "async@replicated"], "does not wait for all"),
        ([*QUICK, "sync", "--workers", "64"], "64 workers on 8 ranks"),
        ([*QUICK, "sync", "--stragglers", "often"], "are not two numbers"),
        ([*QUICK, "sync", "--rate", "fast"], "are no rates"),
        ([*QUICK, "dpsgd", "--changes", "-1@0.01"], "nobody can join or leave"),
    ],
)
def test_what_cannot_run_says_what_would(words: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said) as problem:
        answer(*words)
    assert problem.value.fix


def test_disturbances_as_they_are_written() -> None:
    found = read(0.2, "0.1x5", "2x3", "600/30", "+3@10,-0@20.5")
    assert found[:7] == (0.2, 0.1, 5.0, 2, 3.0, 600.0, 30.0)
    assert found.changes == (MembershipChange(10.0, 3, True), MembershipChange(20.5, 0, False))


def test_every_member_has_a_paper_and_a_summary() -> None:
    for what in ("algorithms", "topologies", "compressors"):
        for row in about(what):
            assert row["paper"], row
            assert row["summary"], row
            assert what != "algorithms" or row["invariant"]
    assert answer("list", "algorithms")["algorithms"] == about("algorithms")
    assert composed("async").algorithm.__class__.__name__ == "Downpour"


# figure 14


def test_figure_14_reads_as_its_paper_does() -> None:
    found = {(one.model.split(",")[0], one.link, one.pattern): one for one in figure14()}
    assert len(found) == 3 * 2 * 7
    small = [one for (model, _, pattern), one in found.items() if model == "ResNet-110" and "single" not in pattern]
    assert all(one.hidden_to == 15 for one in small)
    vgg = [one for (model, link, _), one in found.items() if (model, link) == ("VGG-A", "10G Ethernet")]
    assert sum(one.seconds[14] > one.compute_seconds for one in vgg) >= 6
    ring = found["VGG-A", "InfiniBand QDR", "sync@replicated"]
    assert ring.seconds[14] == pytest.approx(ring.compute_seconds, rel=0.35)
    flat = found["ResNet-152", "10G Ethernet", "sync@shares"]
    assert flat.seconds[14] < 1.3 * flat.seconds[3]


# the batch-size trade-off


def test_noise_scale_of_known_gradients() -> None:
    """Gradients of single samples that are +1 and -1 about a mean of 0.5: a variance of 1 over a square of 0.25."""

    class Known(Squares):
        def gradients(self, weights: Any, rows: Any) -> Any:
            return [np.full(1, 0.5 + np.mean(np.where(chosen % 2, 1.0, -1.0))) for chosen in rows]

    scale = batches.noise_scale(Known(size=1), np.zeros(1), np.random.default_rng(0))
    assert scale == pytest.approx(4.0, rel=0.05)


def test_the_law_is_found_in_steps_that_obey_it() -> None:
    law = [(batch, round(1000 * (1 + 64 / batch))) for batch in (4, 16, 64, 256, 1024)]
    least, critical = batches._fit(law)  # pyright: ignore[reportPrivateUsage]
    assert least == pytest.approx(1000, rel=1e-3)
    assert critical == pytest.approx(64, rel=1e-3)


def test_larger_batches_take_fewer_steps_and_more_samples() -> None:
    words = [
        "simulate",
        "lenet",
        "--learn",
        "squares",
        "--batches",
        "1..64",
        "--rate",
        "0.05,0.2,0.5,1",
        "--target",
        "0.01",
    ]
    found = documented("simulate --batches", json.dumps(answer(*words)))
    steps = [one["steps"] for one in found["batches"]]
    samples = [one["samples"] for one in found["batches"]]
    assert steps[0] > steps[-1]
    assert samples[0] < samples[-1]
    assert 0.5 < found["critical_batch"] < 64
    assert "--noise-scale" in CliRunner().invoke(cli, words).stdout


# where servers lie


def test_what_a_server_and_its_own_worker_say_takes_no_time() -> None:
    ranks = OnCluster(cluster("2x4xv100-16,eth-1"))
    for topology, workers in ((Sharded(k=2), 4), (Proxies(group=4), 8), (Single(), 3)):
        beside = Seated(ranks, workers, topology.beside(workers))
        for server, worker in enumerate(topology.beside(workers)):
            assert beside.flight(worker, workers + server, 1e6) == INSIDE
            other = (worker + 1) % workers
            assert beside.flight(other, workers + server, 1e6) == ranks.flight(other, worker, 1e6) != INSIDE
            inside, beyond = beside.ports(worker, workers + server), beside.ports(other, workers + server)
            assert not {*inside} & {*beyond}  # what is told inside waits for no message


@pytest.mark.parametrize("workers", [3, 4, 6, 8])
def test_hosts_of_their_own_are_beyond_the_network(workers: int) -> None:
    there = cluster("2x4xv100-16,eth-1")
    found = seats(Sharded(k=3), workers, there, "own")
    ranks = OnCluster(there)
    hosts = {seat // there.domain for seat in found}
    assert len(hosts) == 3 and not hosts & {worker // there.domain for worker in range(workers)}
    assert {ranks.flight(0, seat, 1e6) for seat in found} == {ranks.flight(0, there.domain, 1e6)}


def test_where_servers_lie_counts_and_is_told() -> None:
    there, names = cluster("2x4xv100-16,eth-1"), ("async", "sync@replicated")
    asked = Contest("lenet", there, (8,), names, learns="squares", rates=(1.0,), target=0.005)
    near, far = (simulate(asked._replace(servers=where)) for where in ("beside", "own"))
    one, other = (next(run for run in found.runs if run.algorithm == "async") for found in (near, far))
    assert one.virtual_seconds_to_target is not None and other.virtual_seconds_to_target is not None
    assert one.virtual_seconds_to_target < other.virtual_seconds_to_target
    assert "on the ranks of the first workers" in simulation_page(near)
    assert "on a host of its own" in simulation_page(far)
    assert simulate(asked._replace(algorithms=("sync@replicated",))).servers == ""
    with pytest.raises(BadInput, match="no place for servers"):
        simulate(asked._replace(servers="cloud"))


def test_whoever_watches_is_told_what_runs_and_how_far_it_is() -> None:
    told: list[tuple[str, float]] = []
    asked = Contest("lenet", cluster("8xv100-16"), (2, 4), ("sync@replicated", "async"), "squares", rates=(0.5, 1.0))
    simulate(asked, lambda now, share: told.append((now, share)))
    shares = [share for _, share in told]
    assert shares == sorted(shares) and shares[0] == 0.0 and 0.875 <= shares[-1] <= 1.0
    assert list(dict.fromkeys(now for now, _ in told)) == [
        *("sync@replicated, 2 workers", "async, 2 workers", "sync@replicated, 4 workers", "async, 4 workers")
    ]
    on_several([asked, asked._replace(cluster=cluster("16xv100-16"))], lambda now, share: told.append((now, share)))
    assert told[-1][0] == "async, 4 workers, 16xv100-16" and told[-1][1] > 0.9


def test_batches_tell_how_far_they_are() -> None:
    told: list[tuple[str, float]] = []
    batches.measured(Squares(), [4, 8], [1.0], 0.05, watch=lambda now, share: told.append((now, share)))
    assert told == [("batches of 4", 0.0), ("batches of 8", 0.5)]
