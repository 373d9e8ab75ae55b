"""Another job on the links: datagrams from one host to another at a steady rate, whatever becomes of them."""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from foretell.hardware.disturbance import BackgroundTraffic
from foretell.lab.hosts import Lab, LabHost
from foretell.lab.network import address
from foretell.processes import ForkedProcess

DATAGRAM = 8192
BEAT = 1e-3
"""Seconds between two bursts."""


@contextmanager
def sending(lab: Lab, wanted: Sequence[BackgroundTraffic]) -> Generator[None]:
    """While this holds, the flows flow."""
    senders = [ForkedProcess(functools.partial(_flows, lab.hosts, flow)) for flow in wanted]
    try:
        yield
    finally:
        for sender in senders:
            sender.end()


def _flows(hosts: Sequence[LabHost], flow: BackgroundTraffic) -> None:
    hosts[flow.target].enter()
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # never read: what comes is dropped there
    sink.bind((address(flow.target), 0))  # any port: several flows may go to one host
    hosts[flow.source].enter()
    _send(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), flow.rate, sink.getsockname())


def _send(line: socket.socket, rate: float, target: tuple[str, int]) -> None:
    """For ever; the process ends with the one that started it."""
    data, start, sent = bytes(DATAGRAM), time.monotonic(), 0
    while True:
        while sent < (time.monotonic() - start) * rate:
            line.sendto(data, target)
            sent += DATAGRAM
        time.sleep(BEAT)
