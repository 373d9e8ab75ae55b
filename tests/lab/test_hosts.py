"""Emulated hosts come up, carry what they should, and leave nothing, however they end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.lab.bench import Case, timed
from foretell.lab.hosts import Lab
from foretell.lab.measure import KINDS, everything
from foretell.lab.network import HEADERS, MTU, Network, Wire, address
from foretell.lab.traffic import Flow, sending
from foretell.runtime.collectives import chosen
from foretell.runtime.collectives._rehearsal import tally

SOURCE = Path(__file__).parents[2] / "src"
FAST = Network(hosts=2, rate=125e6, delay=1e-4)


def namespaces() -> set[str]:
    """The network namespaces that any process is in or holds open."""
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        for link in (process / "ns" / "net", *_files(process)):
            try:
                name = str(link.readlink())
            except OSError:
                continue
            if name.startswith("net:"):
                found.add(name)
    return found


def _files(process: Path) -> list[Path]:
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []


def switches() -> list[int]:
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() == "foretell-lab" and _parent(process) in _ours():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def _parent(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def _ours() -> set[int]:
    return {os.getpid(), 1}


def soon(what: str, true: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.05)
    assert true(), what


def test_each_host_has_its_address_and_only_that() -> None:
    def look(rank: int) -> list[str]:
        return sorted(name for _, name in socket.if_nameindex())

    with Lab(FAST) as lab:
        assert lab.each(look, 20) == [["lab0", "lo"], ["lab0", "lo"]]
        assert [host.address for host in lab.hosts] == [address(0), address(1)]
    assert "lab0" not in [name for _, name in socket.if_nameindex()]


CASES = {
    "two": FAST,
    "three": Network(hosts=3, rate=125e6, delay=1e-4),
    "islands": Network(hosts=4, rate=125e6, delay=1e-4, island=2, uplink=Wire(60e6, 1e-4)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_algorithm_is_right_between_hosts_and_sends_what_it_should(name: str) -> None:
    """Ranks check their sums themselves (`bench`); here, that what was sent is what the schedule says."""
    network = CASES[name]
    cases = [
        Case(text, kind, size, repeats=1)
        for text in everything(network)
        for kind in KINDS
        if chosen(text).does(kind)
        for size in (4 * network.hosts, 48_000 * network.hosts)
    ]
    with Lab(network) as lab:
        found = timed(lab, cases, 120)
    for one in found:
        size = one.case.size // 4
        said = [
            tally(chosen(one.case.algorithm), one.case.kind, rank, network.hosts, size) for rank in range(network.hosts)
        ]
        assert one.messages == [rank.messages for rank in said], one.case
        assert one.bytes == [4 * rank.elements for rank in said], one.case


def test_the_wire_carries_what_the_ranks_sent_and_headers() -> None:
    case = Case("ring", "all-reduce", 1 << 22, repeats=1)
    with Lab(FAST) as lab:
        (found,) = timed(lab, [case], 60)
        passed = lab.passed()
    sent = 2 * sum(found.bytes)  # the first time, and the one repeat
    carried = sum(path.bytes for path in passed)
    packets = sum(path.packets for path in passed)
    assert sent < carried < sent * 1.02
    assert packets >= sent / (MTU - HEADERS)
    assert sum(path.dropped for path in passed) == 0


def test_other_traffic_is_on_the_link() -> None:
    network = Network(hosts=2, rate=12.5e6, delay=1e-4)
    with Lab(network) as lab, sending(lab, [Flow(0, 1, 2e6)]):
        soon("datagrams arrive", lambda: _carried(lab, 0, 1) > 100_000)
        assert _carried(lab, 1, 0) < 1000


def _carried(lab: Lab, source: int, target: int) -> int:
    return next(path.bytes for path in lab.passed() if (path.source, path.target) == (source, target))


def test_ten_labs_in_a_row_leave_nothing_behind() -> None:
    before = namespaces()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        with Lab(FAST) as lab:
            lab.each(lambda rank: rank, 20)
            assert len(switches()) == 1
    soon("namespaces go", lambda: namespaces() <= before)
    assert switches() == []
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_an_error_on_a_host_is_told_and_the_lab_goes() -> None:
    def fails(rank: int) -> int:
        return 1 // (1 - rank)

    before = namespaces()
    with pytest.raises(BadInput, match=r"(?s)rank 1 failed: .*division"), Lab(FAST) as lab:
        lab.each(fails, 20)
    assert switches() == []
    soon("namespaces go", lambda: namespaces() <= before)


def test_a_host_that_hangs_is_given_up_and_ended() -> None:
    with Lab(FAST) as lab:
        with pytest.raises(BadInput, match="rank 1 did not end in time"):
            lab.each(lambda rank: rank and time.sleep(600), 1.0)
        assert lab.each(lambda rank: rank, 20) == [0, 1]


HOLD = """
import time
from foretell.lab.hosts import Lab
from foretell.lab.network import Network
with Lab(Network(hosts=2, rate=1e8, delay=1e-4)) as lab:
    print(lab.hosts[0].namespace.split("/")[2], flush=True)
    lab.each(lambda rank: time.sleep(600), 600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_command_that_is_killed(how: signal.Signals) -> None:
    before = namespaces()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = subprocess.Popen(
        [sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert command.stdout
    switch = int(command.stdout.readline())
    soon("ranks come up", lambda: len(namespaces() - before) == 2)
    command.send_signal(how)
    command.wait(20)
    command.stdout.close()
    soon("the switch goes", lambda: not Path(f"/proc/{switch}").exists())
    soon("namespaces go", lambda: namespaces() <= before)


def test_a_compiler_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="no C compiler"), Lab(FAST):
        pass
