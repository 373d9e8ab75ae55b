"""Connections between ranks, and a schedule carried out over them.

Plain TCP, a line for each pair: what is sent arrives without being asked for, so a message takes a link's latency once.
(Gloo's send waits until the receiver has said that it is ready, which takes the latency twice where ranks begin
together; then no formula of the papers would come out.)
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from foretell.errors import BadInput
from foretell.runtime.collectives._schedule import Message, Round

PATIENCE = 300.0
"""Seconds without a byte after which a rank gives another one up."""

SEGMENT = 1 << 18
"""Bytes that are added while the next ones come: of a large message only the last segment is waited for."""

NOT_LEFT = 1 << 16
"""Bytes of a message that the kernel may hold back. With all that its buffers take, a rank would begin the next message
while megabytes of this one have not left, and both would share its port: a broadcast to two in turn takes three
messages' time then, not two."""

PIECE = 1 << 16
"""Bytes that are handed over at a time. Then another rank may have the core: with more ranks than cores the last would
begin a millisecond late, while the first fills the buffers of all its lines."""

TCP_NOTSENT_LOWAT = 25
"""Of tcp(7), on Linux."""

_IN, _OUT = select.POLLIN, select.POLLOUT
_HELLO = struct.Struct("!i")


class Lines:
    """A rank's connections to the others."""

    def __init__(self, rank: int, others: dict[int, socket.socket], patience: float = PATIENCE) -> None:
        self.rank, self._others, self._patience = rank, others, patience
        self.messages = self.bytes = 0  # sent so far
        self._names = {line.fileno(): peer for peer, line in others.items()}
        for line in others.values():
            line.setblocking(False)
            if line.family != socket.AF_UNIX:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if sys.platform == "linux":
                    line.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_LEFT)

    def close(self) -> None:
        for line in self._others.values():
            line.close()

    def perform(self, rounds: Iterable[Round], source: Any, target: Any) -> None:
        """Carry out a schedule over flat numpy arrays: what goes is read from one, what comes is put into the other."""
        given, width = memoryview(source).cast("B"), source.itemsize
        for one in rounds:
            incoming = [_Incoming(message, target, one.adds) for message in one.receives]
            outgoing = [(peer, given[span.start * width : span.stop * width]) for peer, span in one.sends]
            changing = {
                peer: span.stop * width
                for peer, span in one.sends
                if source is target and any(span.meets(message.span) for message in one.receives)
            }
            self._exchange(outgoing, incoming, changing)

    def _exchange(
        self, outgoing: list[tuple[int, memoryview]], incoming: list[_Incoming], changing: dict[int, int]
    ) -> None:
        """All messages of a round, as far as each goes, until all are through. `changing` are peers whose message what
        comes in would change, and where it ends."""
        sending = {peer: view for peer, view in outgoing if len(view)}
        self.messages += len(sending)
        self.bytes += sum(map(len, sending.values()))
        receiving = {one.peer: one for one in incoming if one.left}
        self._send(sending, list(sending))
        while sending or receiving:
            events = self._ready(sending, receiving)
            self._send(sending, [peer for peer in sending if peer in events])
            come = [peer for peer in events if peer in receiving]
            changing = _kept(sending, changing, max((receiving[peer].reach for peer in come), default=0))
            self._receive(receiving, come)

    def _ready(self, sending: dict[int, memoryview], receiving: dict[int, _Incoming]) -> list[int]:
        """The peers whose lines can go on."""
        poll = select.poll()
        for peer in sending | receiving:
            poll.register(self._others[peer], _OUT * (peer in sending) | _IN * (peer in receiving))
        events = poll.poll(1000 * self._patience)
        if not events:
            raise self._silent({*sending, *receiving})
        return [self._names[number] for number, _ in events]

    def _send(self, sending: dict[int, memoryview], peers: list[int]) -> None:
        """A piece to the first of these that takes one: messages leave in the order of the schedule."""
        for peer in peers:
            try:
                sent = self._others[peer].send(sending[peer][:PIECE])
            except BlockingIOError:
                continue
            except OSError as problem:
                raise self._lost(peer, problem) from None
            sending[peer] = sending[peer][sent:]
            if not sending[peer]:
                del sending[peer]
            else:
                os.sched_yield()
            return

    def _receive(self, receiving: dict[int, _Incoming], peers: list[int]) -> None:
        for peer in peers:
            try:
                receiving[peer].take(self._others[peer])
            except BlockingIOError:
                continue
            except OSError as problem:
                raise self._lost(peer, problem) from None
            if not receiving[peer].left:
                del receiving[peer]

    def _lost(self, peer: int, problem: OSError) -> ConnectionError:
        return ConnectionError(f"rank {self.rank} lost rank {peer}: {problem.strerror or problem}")

    def _silent(self, peers: set[int]) -> TimeoutError:
        names = ", ".join(str(peer) for peer in sorted(peers))
        return TimeoutError(f"rank {self.rank} heard nothing from rank {names} for {self._patience:g} s")


def _kept(sending: dict[int, memoryview], changing: dict[int, int], reach: int) -> dict[int, int]:
    """Copy what is left of messages that have not left as far as something else comes in now; those that may still
    change. Mostly nothing has to be copied: what goes is ahead of what comes by all that lies on the way."""
    late = [peer for peer in changing if peer in sending and changing[peer] - len(sending[peer]) < reach]
    for peer in late:
        sending[peer] = memoryview(bytes(sending[peer]))
    return {peer: end for peer, end in changing.items() if peer not in late}


class _Incoming:
    """A message on its way in. It lies in a scratch buffer only as long as it has to be added."""

    def __init__(self, message: Message, target: Any, adds: bool) -> None:
        self.peer, self._adds = message.peer, adds
        self._target, self._at = target, message.span.start
        width = target.itemsize
        self._place = memoryview(target).cast("B")[message.span.start * width : message.span.stop * width]
        self.left, self._end = len(self._place), message.span.stop * width
        # One for each message: the segments of several interleave.
        self._scratch = memoryview(bytearray(min(self.left, SEGMENT) if adds else 0))
        self._held = 0

    @property
    def reach(self) -> int:
        """The byte of the target before which the next ones that are read change something."""
        if self._adds:
            return self._at * self._target.itemsize + len(self._scratch)
        return self._end

    def take(self, line: socket.socket) -> None:
        """Read what has come."""
        if not self._adds:
            here = len(self._place) - self.left
            self._count(line.recv_into(self._place[here:]))
            return
        room = min(len(self._scratch), self.left + self._held)
        got = self._count(line.recv_into(self._scratch[self._held : room]))
        self._held += got
        if self._held == room:
            self._add(room)

    def _count(self, got: int) -> int:
        if not got:
            raise ConnectionError("it hung up")
        self.left -= got
        return got

    def _add(self, size: int) -> None:
        count = size // self._target.itemsize
        import numpy

        self._target[self._at : self._at + count] += numpy.frombuffer(self._scratch[:size], self._target.dtype)
        self._at += count
        self._held = 0


# how the lines come about


def listener(address: str, port: int = 0) -> socket.socket:
    """Where this rank can be reached."""
    return socket.create_server((address, port), backlog=64)


def connected(
    rank: int,
    ranks: Iterable[int],
    own: socket.socket,
    where: Callable[[int], tuple[str, int]],
    patience: float = PATIENCE,
) -> Lines:
    """A line to every other rank of some: each calls those before it and is called by those behind it."""
    members = sorted(ranks)
    until = time.monotonic() + patience
    others = {peer: _called(where(peer), rank, until) for peer in members if peer < rank}
    own.settimeout(patience)
    for _ in range(sum(peer > rank for peer in members)):
        try:
            line, _ = own.accept()
        except TimeoutError:
            raise TimeoutError(f"rank {rank} waited {patience:g} s for the others to call") from None
        (peer,) = _HELLO.unpack(line.recv(_HELLO.size, socket.MSG_WAITALL))
        others[peer] = line
    own.close()
    return Lines(rank, others, patience)


def _called(where: tuple[str, int], rank: int, until: float) -> socket.socket:
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            line = socket.create_connection(where, timeout=max(0.1, until - time.monotonic()))
            line.sendall(_HELLO.pack(rank))
            return line
        if time.monotonic() > until:
            raise BadInput(f"rank {rank} cannot reach {where[0]}:{where[1]}")
        time.sleep(0.01)
