"""Connections between ranks: what is sent is what was there, whoever is slow, and who is gone is named."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import numpy
import pytest

from foretell.runtime.collectives import ElementSpan, Message, Round
from foretell.runtime.collectives._lines import Lines

SIZE = 1 << 19
"""Elements of eight bytes: more than the buffers of a connection hold."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    yield here, there
    here.close()
    there.close()


class Slow(threading.Thread):
    """A peer that sends all it has before it reads anything."""

    def __init__(self, line: socket.socket, sent: numpy.ndarray) -> None:
        super().__init__(daemon=True)
        self._line, self._sent, self.got = line, sent.tobytes(), b""

    def run(self) -> None:
        self._line.sendall(self._sent)
        while len(self.got) < len(self._sent):
            self.got += self._line.recv(1 << 20)


def test_what_comes_in_does_not_change_what_has_not_left(pair: tuple[socket.socket, socket.socket]) -> None:
    tensor, theirs = numpy.arange(SIZE, dtype=numpy.float64), numpy.full(SIZE, 3.0)
    peer = Slow(pair[1], theirs)
    peer.start()
    before = tensor.copy()
    both = (Message(1, ElementSpan(0, SIZE)),)
    Lines(0, {1: pair[0]}, patience=30.0).perform([Round(both, both, adds=True)], tensor, tensor)
    peer.join(30)
    assert peer.got == before.tobytes()
    assert (tensor == before + 3).all()


def test_messages_and_bytes_are_counted_and_empty_ones_are_none(pair: tuple[socket.socket, socket.socket]) -> None:
    tensor = numpy.ones(4)
    lines = Lines(0, {1: pair[0]}, patience=5.0)
    lines.perform(
        [Round(sends=(Message(1, ElementSpan(1, 3)),)), Round(sends=(Message(1, ElementSpan(2, 2)),))], tensor, tensor
    )
    assert (lines.messages, lines.bytes) == (1, 16)
    assert pair[1].recv(100) == tensor[1:3].tobytes()


def test_a_peer_that_hung_up_is_named(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].close()
    tensor = numpy.ones(4)
    with pytest.raises(ConnectionError, match="rank 0 lost rank 1: it hung up"):
        Lines(0, {1: pair[0]}, patience=5.0).perform([Round(receives=(Message(1, ElementSpan(0, 4)),))], tensor, tensor)


def test_a_peer_that_says_nothing_is_given_up(pair: tuple[socket.socket, socket.socket]) -> None:
    tensor = numpy.ones(4)
    with pytest.raises(TimeoutError, match=r"rank 0 heard nothing from rank 1 for 0\.05 s"):
        Lines(0, {1: pair[0]}, patience=0.05).perform(
            [Round(receives=(Message(1, ElementSpan(0, 4)),))], tensor, tensor
        )
