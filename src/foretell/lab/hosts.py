"""Emulated hosts that are up, processes on them, and an end that leaves nothing behind.

No namespace has a name and no device outlives the switch, which ends with this process however it ends: nothing has to
be cleaned up, so nothing can be forgotten. A process on a host ends with the one that started it, too.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.lab import compiler, network, rights
from foretell.lab.network import MTU, Network
from foretell.runtime import hosts

PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

START_SECONDS = 60.0


class Host(NamedTuple):
    """A network namespace that a process can enter."""

    number: int
    address: str
    namespace: str  # a file

    def enter(self) -> None:
        """Put this thread, and what it starts from now on, on the host."""
        hosts.enter(self.namespace)


class Passed(msgspec.Struct, frozen=True):
    """What went from one host to another since the lab came up."""

    source: int
    target: int
    packets: int
    bytes: int
    dropped: int


class Lab:
    """Hosts that are up while this is open."""

    def __init__(self, plan: Network) -> None:
        self.network = plan
        self.hosts: tuple[Host, ...] = ()

    def __enter__(self) -> Lab:
        rights.check()
        command = [str(compiler.program()), str(self.network.hosts), str(MTU), str(network.window(self.network))]
        self._switch = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C goes to this process, which ends the switch last
        )
        try:
            spaces = self._asked(network.wiring(self.network)).split()
            if spaces[:1] != ["ready"]:
                raise self._broken()
        except BaseException:  # nobody is to close what did not open
            self.__exit__(None, None, None)
            raise
        self.hosts = tuple(
            Host(number, network.address(number), f"/proc/{self._switch.pid}/fd/{space}")
            for number, space in enumerate(spaces[1:])
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._switch.kill()
        for stream in (self._switch.stdin, self._switch.stdout, self._switch.stderr):
            assert stream
            stream.close()
        self._switch.wait()

    def _asked(self, words: str) -> str:
        """One line of the switch's answer, within bounded time."""
        assert self._switch.stdin and self._switch.stdout
        try:
            self._switch.stdin.write(words)
            self._switch.stdin.flush()
        except BrokenPipeError:
            raise self._broken() from None
        with selectors.DefaultSelector() as ready:
            ready.register(self._switch.stdout, selectors.EVENT_READ)
            if not ready.select(START_SECONDS):
                raise BadInput(f"the switch does not answer within {START_SECONDS:g} s", where="foretell lab")
        return self._switch.stdout.readline()

    def _broken(self) -> BadInput:
        self._switch.kill()
        _, said = self._switch.communicate()
        return BadInput(f"the switch ended: {said.strip()}", where="foretell lab")

    def passed(self) -> tuple[Passed, ...]:
        """What every path carried so far, headers included."""
        found: list[Passed] = []
        line = self._asked("stats\n")
        assert self._switch.stdout
        while line and line != "end\n":
            found.append(Passed(*(int(word) for word in line.split())))
            line = self._switch.stdout.readline()
        return tuple(found)

    def throttle(self, pipe: str, rate: float) -> None:
        """Give a pipe (`out 0`, `in 1`, `up 0`, `link 0 1`) another rate while the lab runs."""
        assert self._switch.stdin
        self._switch.stdin.write(f"rate {network.pipe_number(self.network, pipe)} {rate!r}\n")
        self._switch.stdin.flush()

    def each(self, work: Callable[[int], Any], seconds: float, ranks: int = 0) -> list[Any]:
        """Do `work(rank)` in a process of its own for each rank, on hosts in turn of blocks; what each returned."""
        count = ranks or len(self.hosts)
        crew = [_Forked(work, rank, self.hosts[rank * len(self.hosts) // count]) for rank in range(count)]
        try:
            until = time.monotonic() + seconds
            return [one.answer(until) for one in crew]
        finally:
            for one in crew:
                one.end()


class _Forked:
    """A process on a host that does one thing and tells the answer."""

    def __init__(self, work: Callable[[int], Any], rank: int, host: Host) -> None:
        self._rank = rank
        self._answers, hand = os.pipe()
        self._child = os.fork()
        if not self._child:
            os.close(self._answers)
            _do(work, rank, host, hand)
        os.close(hand)

    def answer(self, until: float) -> Any:
        found = b""
        with selectors.DefaultSelector() as ready:
            ready.register(self._answers, selectors.EVENT_READ)
            while ready.select(max(0.0, until - time.monotonic())):
                more = os.read(self._answers, 1 << 20)
                if not more:
                    return self._said(found)
                found += more
        raise BadInput(f"rank {self._rank} did not end in time", where="foretell lab")

    def _said(self, found: bytes) -> Any:
        if not found:
            raise BadInput(f"rank {self._rank} ended without an answer", where="foretell lab")
        answer, problem = msgspec.json.decode(found)
        if problem:
            raise BadInput(f"rank {self._rank} failed: {problem}", where="foretell lab")
        return answer

    def end(self) -> None:
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        os.close(self._answers)


def _do(work: Callable[[int], Any], rank: int, host: Host, hand: int) -> None:
    """And end: whatever happens, the parent's code does not go on here."""
    try:
        try:
            end_with_parent()
            host.enter()
            said = msgspec.json.encode((work(rank), ""))
        except BaseException as problem:
            said = msgspec.json.encode((None, f"{problem}\n{traceback.format_exc(limit=-3)}"))
        with os.fdopen(hand, "wb") as answers:
            answers.write(said)
        sys.stdout.flush()
    finally:
        os._exit(0)


def end_with_parent() -> None:
    """Ask Linux to end this process when the one that waits for it is gone."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
