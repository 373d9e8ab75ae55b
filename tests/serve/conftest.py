"""A server of its own for each process of the tests: any port that is free, ended with the tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from answers import documented
from serve_client import PATIENT, QUESTION, Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    command = [sys.executable, "-m", "foretell", "serve", "--port", "0", "--json", "--workers", "1", "--seconds", "120"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        said = documented("serve", process.stdout.readline())
        yield Server(said["url"], int(said["url"].rstrip("/").rpartition(":")[2]), said["token"])
    finally:
        process.terminate()
        try:
            process.wait(PATIENT)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def question() -> dict[str, Any]:
    return dict(QUESTION)
