"""Emulated hosts that are up, processes on them, and an end that leaves nothing behind.

No namespace has a name and no device outlives the switch, which ends with this process however it ends: nothing has to
be cleaned up, so nothing can be forgotten. A process on a host ends with the one that started it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.lab import compiler, network, rights
from foretell.lab.network import MTU, LabNetwork
from foretell.processes import ChildProcess, ProcessEnded, RankFailed, each
from foretell.runtime import hosts

START_SECONDS = 60.0


class LabHost(NamedTuple):
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

    def __init__(self, plan: LabNetwork) -> None:
        self.network = plan
        self.hosts: tuple[LabHost, ...] = ()

    def __enter__(self) -> Lab:
        rights.check()
        command = [str(compiler.program()), str(self.network.hosts), str(MTU), str(network.window(self.network))]
        self._switch = ChildProcess(command, keep_errors=True)
        try:
            spaces = self._asked(network.wiring(self.network)).split()
            if spaces[:1] != ["ready"]:
                raise BadInput(f"the switch says {' '.join(spaces)!r}", where="foretell lab")
        except BaseException:  # nobody is to close what did not open
            self.__exit__(None, None, None)
            raise
        self.hosts = tuple(
            LabHost(number, network.address(number), f"/proc/{self._switch.pid}/fd/{space}")
            for number, space in enumerate(spaces[1:])
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._switch.kill()
        self._switch.end()

    def _asked(self, words: str) -> str:
        """One line of the switch's answer, within bounded time."""
        return self._said(lambda: self._switch.ask(words.encode(), START_SECONDS))

    def _said(self, line: Callable[[], bytes]) -> str:
        try:
            return line().decode()
        except TimeoutError:
            raise BadInput(f"the switch does not answer within {START_SECONDS:g} s", where="foretell lab") from None
        except ProcessEnded as problem:
            raise BadInput(f"the switch ended: {problem.said.strip()}", where="foretell lab") from None

    def passed(self) -> tuple[Passed, ...]:
        """What every path carried so far, headers included."""
        found: list[Passed] = []
        line = self._asked("stats\n")
        while line != "end":
            found.append(Passed(*(int(word) for word in line.split())))
            line = self._said(lambda: self._switch.hear(START_SECONDS))
        return tuple(found)

    def throttle(self, pipe: str, rate: float) -> None:
        """Give a pipe (`out 0`, `in 1`, `up 0`, `link 0 1`) another rate while the lab runs."""
        self._switch.tell(f"rate {network.pipe_number(self.network, pipe)} {rate!r}\n".encode())

    def each(self, work: Callable[[int], Any], seconds: float, ranks: int = 0) -> list[Any]:
        """Do `work(rank)` in a process of its own for each rank, on hosts in turn of blocks; what each returned."""
        count = ranks or len(self.hosts)

        def on_host(rank: int) -> Any:
            self.hosts[rank * len(self.hosts) // count].enter()
            return work(rank)

        try:
            return each(on_host, count, seconds)
        except RankFailed as problem:
            raise BadInput(f"{problem}\n{problem.trace}".strip(), where="foretell lab") from None
