"""How many people one server answers: 20 clients at once, 50 predictions a second, on the cores the server runs on.

    python benchmarks/serve.py [--seconds 20] [--rate 50] [--clients 20]

Clients ask at fixed times whether or not earlier answers are there (an open loop), and an answer's time counts from
when it should have been asked: a server that falls behind cannot hide it. No two questions are alike, so none is
answered from those that are kept. Then sliders: how long the page waits for what it shows (`view`), change by change.

Beside each time is what a core was busy for an answer, client and server together: on a machine that others use as
well, times are theirs too, and this figure is not.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

AIM_RATE, AIM_P99, AIM_CHANGE = 50.0, 0.250, 0.100

MODELS = ("llama3-8b", "gpt2", "resnet50", "llama3.2-1b", "bert-large")
STORAGES = ("", ":zero1", ":zero3")
RECOMPUTES = ("", " +recompute:block", " +recompute:full")


def people() -> Iterator[dict[str, Any]]:
    """Twenty people, each with a model, who move one slider after the other; no two questions are alike."""
    for turn in itertools.count():
        for model, storage in itertools.product(MODELS, STORAGES):
            plan = f"dp8{storage} +m{2 ** (turn % 3)} +bf16{RECOMPUTES[turn // 3 % 3]}"
            times = 0.5 + turn / 512  # of the bandwidth: a slider that is dragged
            yield {
                "model": model,
                "cluster": "8xh100",
                "batch": 64,
                "plan": plan,
                "hardware": {"node bandwidth": times},
            }


def strangers() -> Iterator[dict[str, Any]]:
    """Questions that have a batch to themselves: each is about tensors that nobody asked about before."""
    for turn in itertools.count(1):
        for model, storage in itertools.product(MODELS, STORAGES):
            yield {
                "model": model,
                "cluster": "8xh100",
                "batch": 8 * (3 * turn + STORAGES.index(storage)),
                "plan": f"dp8{storage} +bf16",
            }


CHANGES = (
    ("micro-batches", "dp8:zero1 tp8:sp +m{} +bf16", (1, 2, 4, 8)),
    ("tensor", "dp{}:zero1 tp{}:sp +m2 +bf16", ((64, 1), (32, 2), (16, 4), (8, 8))),
    (
        "recompute",
        "dp8:zero1 tp8:sp +m4 +bf16{}",
        ("", " +recompute:attention", " +recompute:block", " +recompute:full"),
    ),
    ("pipeline", "pp{}:1f1b dp{}:zero1 tp4:sp +m8 +bf16", ((2, 8), (4, 4), (8, 2))),
)


class Server(NamedTuple):
    """Where it listens, and its process."""

    port: int
    process: int

    def busy(self) -> float:
        """Seconds that cores were busy so far: of the server, its workers, and this program, who asks."""
        own = [self.process, *_children(self.process)]
        return time.process_time() + sum(map(_seconds, own))


def _children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for file in listed for child in file.read_text().split()]


def _seconds(process: int) -> float:
    """Of a process, all threads that it has."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{process}/task").glob("*/schedstat")) / 1e9


@contextlib.contextmanager
def server(workers: int) -> Iterator[Server]:
    """A server for as long as it is needed."""
    command = [sys.executable, "-m", "foretell", "serve", "--port", "0", "--json", "--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rstrip("/").rpartition(":")[2])
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait()


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, call: str, body: dict[str, Any]) -> int:
        headers = {"Content-Type": "application/json", "Host": f"localhost:{self.port}"}
        self.connection.request("POST", f"/api/{call}", json.dumps(body), headers)
        answer = self.connection.getresponse()
        answer.read()
        return answer.status


def load(
    port: int, coming: Iterator[dict[str, Any]], clients: int, rate: float, seconds: float
) -> tuple[list[float], list[int], float]:
    """Times and statuses of all answers, and how long all of it took."""
    lock = threading.Lock()
    times: list[float] = []
    statuses: list[int] = []
    begin = time.perf_counter() + 0.2

    def work(which: int) -> None:
        client = Client(port)
        for turn in itertools.count():
            due = begin + (which + turn * clients) / rate
            if due > begin + seconds:
                return
            time.sleep(max(0.0, due - time.perf_counter()))
            with lock:
                body = next(coming)
            statuses.append(client.ask("predict", body))
            times.append(time.perf_counter() - due)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, statuses, time.perf_counter() - begin


def changes(server: Server) -> dict[str, list[tuple[float, float]]]:
    """How long each change of the page takes, and cores are busy with it, by the slider.

    The batch is new each time, so nothing is remembered.
    """
    client, found = Client(server.port), dict[str, list[tuple[float, float]]]()
    client.ask("view", {"model": "llama3-8b", "cluster": "64xh100", "batch": 64, "plan": "dp64 +bf16"})
    for batch in (64, 128, 192, 256):
        for name, plan, values in CHANGES:
            for value in values:
                text = plan.format(*(value if isinstance(value, tuple) else (value,)))
                start, before = time.perf_counter(), server.busy()
                status = client.ask("view", {"model": "llama3-8b", "cluster": "64xh100", "batch": batch, "plan": text})
                if status == 200:
                    found.setdefault(name, []).append((time.perf_counter() - start, server.busy() - before))
    return found


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--rate", type=float, default=AIM_RATE)
    options.add_argument("--clients", type=int, default=20)
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before")
    with server(given.workers) as found:
        for who in (people, strangers):
            coming = who()
            load(found.port, coming, given.clients, given.rate, 5.0)  # everybody's models are loaded
            before = found.busy()
            times, statuses, taken = load(found.port, coming, given.clients, given.rate, given.seconds)
            busy = (found.busy() - before) / max(1, len(statuses))
            answered = statuses.count(200)
            shares = (("median", 0.5), ("p90", 0.9), ("p99", 0.99))
            told = ", ".join(f"{name} {1e3 * percentile(times, share):.0f} ms" for name, share in shares)
            told = f"{answered / taken:.1f} a second, {told}; {1e3 * busy:.1f} ms of a core"
            print(f"{who.__name__}: {answered} of {len(statuses)} predicted, {told}")
        print(f"  aim: {AIM_RATE:g} a second with p99 under {1e3 * AIM_P99:.0f} ms")
        for name, seen in changes(found).items():
            waited, busy = zip(*seen, strict=True)
            middle, most, core = (1e3 * one for one in (statistics.median(waited), max(waited), max(busy)))
            print(f"a change of {name}: median {middle:.0f} ms, most {most:.0f} ms; at most {core:.0f} ms of a core")
        print(f"  aim: under {1e3 * AIM_CHANGE:.0f} ms")


if __name__ == "__main__":
    main()
