"""Another job on the links: datagrams from one host to another at a steady rate, whatever becomes of them."""

from __future__ import annotations

import os
import signal
import socket
import time
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from foretell.hardware.disturbance import Traffic
from foretell.lab.hosts import Host, Lab, end_with_parent
from foretell.lab.network import address

DATAGRAM = 8192
BEAT = 1e-3
"""Seconds between two bursts."""


@contextmanager
def sending(lab: Lab, wanted: Sequence[Traffic]) -> Generator[None]:
    """While this holds, the flows flow."""
    children = [_started(lab.hosts, flow) for flow in wanted]
    try:
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _started(hosts: Sequence[Host], flow: Traffic) -> int:
    child = os.fork()
    if not child:
        try:
            _flows(hosts, flow)
        except BaseException:
            traceback.print_exc(limit=-3)
        finally:
            os._exit(1)  # whatever happens, the parent's code does not go on here
    return child


def _flows(hosts: Sequence[Host], flow: Traffic) -> None:
    end_with_parent()
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
