"""A port on which ranks can meet."""

from __future__ import annotations

import contextlib
import os
import random
import socket

import pytest


def free_port() -> int:
    """One that nobody has, below those that Linux gives whoever asks for any: it stays free until it is needed."""
    for port in random.Random(os.getpid()).sample(range(20_000, 32_000), 100):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    pytest.skip("no port is free")
