"""Messages between hosts whose ranks are cores: gloo's have to be asked for, and each takes something of computing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.calibrated import calibrated
from foretell.cost.price import priced
from foretell.cost.prices import Prices
from foretell.cost.samples import Calibration, CollectiveSample, FigureSample, MeasuredMachine, form_of, sample
from foretell.hardware.catalog import cluster
from foretell.lab.describe import described
from foretell.lab.network import LabNetwork
from foretell.oracle.predict import predict
from foretell.plan.trainer import trainer
from foretell.program.action import Communicate
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime.assignment import Assignment
from foretell.timeline.simulate import simulate

LLAMA = "llama:layers=4,hidden=256,heads=8,kv_heads=4,ffn=512,vocab=1000,seq=64"
DELAY, RATE = 1e-3, 25e6
HOSTS = described(LabNetwork(hosts=4, rate=RATE, delay=DELAY))


@pytest.mark.parametrize(
    "plan", ["pp2:1f1b +m4", "pp4:1f1b +m8", "pp4:gpipe +m4", "pp2:interleaved +m4", "pp4:zb-h1 +m8"]
)
def test_who_asks_waits_in_the_play_as_in_the_composition(plan: str) -> None:
    setting = Assignment(model=LLAMA, plan=plan, batch=16).setting
    played = simulate(priced(setting, HOSTS))
    assert predict(setting, HOSTS).step_seconds == pytest.approx(played.step_seconds, rel=0.01)


def test_a_rank_that_asks_late_waits_for_the_whole_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages that pass micro-batches on in turn: each is asked for when the one before is done with.

    The last stage asks for each micro-batch but the first after the backward pass of the one before, and meanwhile the
    first one asks for a gradient. What would travel beside computing otherwise stands in the way then.
    """
    count, size = 8, 2 * 64 * 256 * 4
    setting = Assignment(model=LLAMA, plan=f"pp2:1f1b +m{count}", batch=2 * count).setting
    found = predict(setting, HOSTS).step_seconds
    monkeypatch.setattr(Prices, "asked", lambda self, message: 0.0)  # pyright: ignore[reportUnknownLambdaType]
    beside = predict(setting, HOSTS).step_seconds
    message = size / (RATE * HOSTS.levels[-1].link.efficiency["point"]) + DELAY
    assert found > beside + message
    assert found < beside + 2 * count * (message + DELAY)


def test_only_gloo_asks() -> None:
    setting = Assignment(model=LLAMA, plan="pp2:1f1b +m2", batch=4).setting
    message = Communicate("send", ("pp",), 2, 2**20, "activations", "")
    hosts, gpus = (
        Prices(expand(lower(setting)).axes, on, form_of("fp32"), setting.trainer) for on in (HOSTS, cluster("16xh100"))
    )
    assert gpus.asked(message) == 0
    assert hosts.asked(message) == pytest.approx(hosts.message(message) + DELAY, rel=0.2)
    assert hosts.asked(message) > hosts.message(message)


# what a message takes of computing


def timed(seconds: float, row: bool = True, held_up: float = 1.0) -> Calibration:
    """Small messages and large ones between two cores, which lengthen computing by so much."""
    machine = MeasuredMachine(device="cpu-core", title="a core", kind="cpu", count=2, memory_bytes=2**34)
    samples = [
        sample(
            "collectives",
            CollectiveSample(kind="all-reduce", ranks=2, payload=size, worked=True, row=row),
            [longer] * 3,
        )
        for size, longer in ((2**10, seconds), (2**12, seconds), (2**24, 1.0))
    ]
    samples.append(sample("crowded", FigureSample(name="held up", ranks=2), [held_up] * 3))
    return Calibration(machine=machine, samples=tuple(samples), complete=True)


def seconds_of(message: Communicate, found: Calibration, hosts: int = 2, per_host: int = 1) -> float:
    where = described(LabNetwork(hosts=hosts, rate=RATE, delay=DELAY), per_host=per_host)
    known = calibrated(where, trainer("pytorch"), found, 2)
    axes = expand(lower(Assignment(model="lenet", plan="dp2 filter2", batch=8).setting)).axes
    return float(Prices(axes, known.cluster, form_of("fp32"), known.trainer).message(message))


GATHER = Communicate("all-gather", ("filter",), 2, 2**20, "activations", "")


@given(st.floats(1e-4, 1e-2), st.floats(1.0, 3.0))
def test_a_message_between_hosts_takes_what_a_small_one_in_a_machine_does(longer: float, held_up: float) -> None:
    """However much threads are held up: rows were timed by the wall's clock."""
    found = seconds_of(GATHER, timed(longer, True, held_up)) - seconds_of(GATHER, timed(longer, False, held_up))
    assert found == pytest.approx(longer, rel=1e-6)


def test_buckets_travel_beside_computing() -> None:
    bucket = Communicate("all-reduce", ("filter",), 2, 2**20, "weight gradients", "")
    assert seconds_of(bucket, timed(1e-2)) == seconds_of(bucket, timed(1e-4))


def test_messages_inside_a_machine_were_timed_with_what_they_take() -> None:
    inside = msgspec.structs.replace(GATHER, payload=2**24)
    assert seconds_of(inside, timed(1e-2), per_host=2) == pytest.approx(seconds_of(inside, timed(1e-4), per_host=2))
