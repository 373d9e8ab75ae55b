"""Emulated hosts come up, carry what they should, and leave nothing, however they end."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.hardware.disturbance import BackgroundTraffic
from foretell.lab import rights
from foretell.lab.bench import CollectiveCase, timed
from foretell.lab.hosts import Lab, Passed
from foretell.lab.measure import KINDS, everything
from foretell.lab.network import HEADERS, MTU, LabNetwork, Wire, address
from foretell.lab.traffic import sending
from foretell.runtime.collectives import chosen
from foretell.runtime.collectives._rehearsal import tally

SOURCE = Path(__file__).parents[2] / "src"
LONG = 120.0
"""Seconds after which something is wrong, however busy the machine is."""

FAST = LabNetwork(hosts=2, rate=125e6, delay=1e-4)


def tree(root: int) -> list[Path]:
    """A process and all that come of it. Other labs of the machine, of a test beside this one, are not looked at."""
    found, parents = [Path(f"/proc/{root}")], _parents()
    for process in found:
        found += [Path(f"/proc/{child}") for child, parent in parents.items() if parent == int(process.name)]
    return found


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def namespaces(root: int) -> set[str]:
    """The network namespaces that a process, or one that comes of it, is in or holds open."""
    found: set[str] = set()
    for process in tree(root):
        for link in (process / "ns" / "net", *_files(process)):
            with suppress(OSError):
                found.add(str(link.readlink()))
    return {name for name in found if name.startswith("net:")}


def _files(process: Path) -> list[Path]:
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []


def elsewhere(root: int) -> list[int]:
    """Those of a process's tree that are in another network namespace than this one: ranks, and the switch."""
    home, found = Path("/proc/self/ns/net").readlink(), list[int]()
    for process in tree(root):
        with suppress(OSError):
            if (process / "ns" / "net").readlink() != home:
                found.append(int(process.name))
    return found


def switches() -> list[int]:
    """That this process started."""
    found: list[int] = []
    for process in tree(os.getpid()):
        with suppress(OSError):
            if (process / "comm").read_text().strip() == "foretell-lab":
                found.append(int(process.name))
    return found


def gone(process: int) -> bool:
    """Whether a process has ended; its parent may not have asked yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def soon(true: Callable[[], bool], seconds: float = LONG) -> bool:
    """Whether something comes true."""
    until = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def test_each_host_has_its_address_and_only_that() -> None:
    def look(rank: int) -> list[str]:
        return sorted(name for _, name in socket.if_nameindex())

    with Lab(FAST) as lab:
        assert lab.each(look, LONG) == [["lab0", "lo"], ["lab0", "lo"]]
        assert [host.address for host in lab.hosts] == [address(0), address(1)]
    assert "lab0" not in [name for _, name in socket.if_nameindex()]


CASES = {
    "two": FAST,
    "three": LabNetwork(hosts=3, rate=125e6, delay=1e-4),
    "islands": LabNetwork(hosts=4, rate=125e6, delay=1e-4, island=2, uplink=Wire(60e6, 1e-4)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_algorithm_is_right_between_hosts_and_sends_what_it_should(name: str) -> None:
    """Ranks check their sums themselves (`bench`); here, that what was sent is what the schedule says."""
    network = CASES[name]
    cases = [
        CollectiveCase(text, kind, size, repeats=1)
        for text in everything(network)
        for kind in KINDS
        if chosen(text).does(kind)
        for size in (4 * network.hosts, 48_000 * network.hosts)
    ]
    with Lab(network) as lab:
        found = timed(lab, cases, 3 * LONG)
    for one in found:
        size = one.case.size // 4
        said = [
            tally(chosen(one.case.algorithm), one.case.kind, rank, network.hosts, size) for rank in range(network.hosts)
        ]
        assert one.messages == [rank.messages for rank in said], one.case
        assert one.bytes == [4 * rank.elements for rank in said], one.case


def test_the_wire_carries_what_the_ranks_sent_and_headers() -> None:
    case = CollectiveCase("ring", "all-reduce", 1 << 22, repeats=1)
    with Lab(FAST) as lab:
        (found,) = timed(lab, [case], LONG)
        passed = lab.passed()
    sent = 2 * sum(found.bytes)  # the first time, and the one repeat
    carried = sum(path.bytes for path in passed)
    packets = sum(path.packets for path in passed)
    assert sent < carried < sent * 1.02
    assert packets >= sent / (MTU - HEADERS)
    assert sum(path.dropped for path in passed) == 0


def test_other_traffic_is_on_the_link() -> None:
    network = LabNetwork(hosts=2, rate=12.5e6, delay=1e-4)
    with Lab(network) as lab, sending(lab, [BackgroundTraffic(0, 1, 2e6)]):
        assert soon(lambda: _carried(lab, 0, 1) > 100_000)
        assert _carried(lab, 1, 0) < 1000


def test_two_flows_may_go_to_one_host() -> None:
    network = LabNetwork(hosts=3, rate=12.5e6, delay=1e-4)
    with Lab(network) as lab, sending(lab, [BackgroundTraffic(0, 2, 2e6), BackgroundTraffic(1, 2, 2e6)]):
        assert soon(lambda: min(_carried(lab, 0, 2), _carried(lab, 1, 2)) > 100_000)
        assert _carried(lab, 0, 1) < 1000


def test_what_a_slow_port_cannot_take_is_dropped_and_not_kept() -> None:
    """Fifty times what it takes: two seconds' worth waits before it, the rest goes."""
    network = LabNetwork(hosts=2, rate=12.5e6, delay=1e-4, ports={1: 1e5})
    with Lab(network) as lab, sending(lab, [BackgroundTraffic(0, 1, 5e6)]):
        assert soon(lambda: _path(lab, 0, 1).dropped > 1000)
        there, back = _path(lab, 0, 1), _path(lab, 1, 0)
        assert there.packets < there.dropped
        assert back.dropped == 0


def _path(lab: Lab, source: int, target: int) -> Passed:
    return next(path for path in lab.passed() if (path.source, path.target) == (source, target))


def _carried(lab: Lab, source: int, target: int) -> int:
    return _path(lab, source, target).bytes


def test_ten_labs_in_a_row_leave_nothing_behind() -> None:
    gc.collect()
    before, descriptors = namespaces(os.getpid()), _open()
    for _ in range(10):
        with Lab(FAST) as lab:
            lab.each(lambda rank: rank, LONG)
            assert len(switches()) == 1
    assert switches() == []
    assert namespaces(os.getpid()) <= before
    assert _open() <= descriptors


def _open() -> int:
    return len(_files(Path("/proc/self")))


def test_an_error_on_a_host_is_told_and_the_lab_goes() -> None:
    def fails(rank: int) -> int:
        return 1 // (1 - rank)

    before = namespaces(os.getpid())
    with pytest.raises(BadInput, match=r"(?s)rank 1 failed: .*division"), Lab(FAST) as lab:
        lab.each(fails, LONG)
    assert switches() == []
    assert namespaces(os.getpid()) <= before


def test_an_answer_that_cannot_be_told_is_an_error_of_its_rank() -> None:
    with pytest.raises(BadInput, match=r"rank \d failed: .*object"), Lab(FAST) as lab:
        lab.each(lambda rank: lambda: rank, LONG)
    assert switches() == []


def test_a_switch_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec sleep 600\n")
    mute.chmod(0o755)
    before = tree(os.getpid())
    monkeypatch.setattr("foretell.lab.compiler.program", lambda: mute)
    monkeypatch.setattr("foretell.lab.hosts.START_SECONDS", 0.1)
    with pytest.raises(BadInput, match="does not answer"), Lab(FAST):
        pass
    assert set(tree(os.getpid())) <= set(before)


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "no `ip`" in " ".join(what for what, _ in rights.missing())


def test_a_host_that_hangs_is_given_up_and_ended() -> None:
    with Lab(FAST) as lab:
        with pytest.raises(BadInput, match="rank 0 did not end in time"):
            lab.each(lambda rank: rank or time.sleep(600), 1.0)
        assert lab.each(lambda rank: rank, LONG) == [0, 1]


HOLD = """
import signal, time
from foretell.lab.hosts import Lab
from foretell.lab.network import LabNetwork
signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup and `&` start programs that ignore it
with Lab(LabNetwork(hosts=2, rate=1e8, delay=1e-4)) as lab:
    print("up", flush=True)
    lab.each(lambda rank: time.sleep(600), 600)
"""
SWITCH_AND_RANKS = 3


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_command_that_is_killed(how: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as command:
        try:
            assert command.stdout
            assert command.stdout.readline() == "up\n"
            assert soon(lambda: len(elsewhere(command.pid)) == SWITCH_AND_RANKS)
            started = elsewhere(command.pid)
            command.send_signal(how)
            command.wait(LONG)
        finally:
            command.kill()
    # A namespace without a name lasts as long as those that are in it or hold it open: no others do.
    assert soon(lambda: all(gone(process) for process in started))


def test_a_compiler_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="no C compiler"), Lab(FAST):
        pass
