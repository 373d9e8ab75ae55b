"""How many people one server answers: 20 clients at once, 50 predictions a second, on the cores the server runs on.

    python benchmarks/serve.py [--seconds 20] [--rate 50] [--clients 20]
    python benchmarks/serve.py --crowd [--clients 50] [--silent 250]
    python benchmarks/serve.py --memory 20000
    python benchmarks/serve.py --here

Clients ask at fixed times whether or not earlier answers are there (an open loop), and an answer's time counts from
when it should have been asked: a server that falls behind cannot hide it. No two questions are alike, so none is
answered from those that are kept. Then sliders: how long the page waits for what it shows (`view`), change by change.

`--here` moves sliders in this process, without a server: what one core is busy for each change of the page.

`--crowd` has 250 sockets open that say nothing, and again as many as fast as they are hung up on, while 50 clients ask:
a question that was answered within the last minute, and new ones. `--memory` asks different questions one after the
other, and tells how much memory the workers take on the way, and whether every question got its answer.

Beside each time is what a core was busy for an answer, client and server together: on a machine that others use as
well, times are theirs too, and this figure is not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

AIM_MEDIAN, AIM_SLOWEST = 0.030, 0.080
AIM_RATE, AIM_P99, AIM_CHANGE = 50.0, 0.250, 0.100
AIM_REPEATED, AIM_NEW, AIM_BYTES = 0.150, 0.400, 500e6

MODELS = ("llama3-8b", "gpt2", "resnet50", "llama3.2-1b", "bert-large")
OTHERS = ("mixtral-8x7b", "qwen2.5-7b", "t5-base", "vgg16", "resnet101")
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


def repeated() -> Iterator[dict[str, Any]]:
    """What everybody asks who follows one of a few links."""
    return itertools.cycle(itertools.islice(people(), 20))


def visitors() -> Iterator[dict[str, Any]]:
    """Questions of all kinds: models, clusters, meshes, batches and hardware, drawn anew each time; no two alike."""
    draw, seen = random.Random(22), set[str]()
    while True:
        ranks, tensor, stages = draw.choice((8, 16, 32, 64)), draw.choice((1, 2, 4)), draw.choice((1, 1, 2))
        data, micro = ranks // tensor // stages, draw.choice((1, 2, 4, 8))
        axes = [f"pp{stages}:1f1b"] * (stages > 1), [f"dp{data}{draw.choice(STORAGES)}"], [f"tp{tensor}"] * (tensor > 1)
        plan = " ".join((*itertools.chain(*axes), f"+m{micro} +bf16{draw.choice(RECOMPUTES)}"))
        one: dict[str, Any] = {
            "model": draw.choice((*MODELS, *OTHERS)),
            "cluster": f"{ranks}x{draw.choice(('h100', 'a100-80', 'b200'))}",
            "batch": data * micro * draw.randint(1, 40),
            "plan": plan,
            "hardware": {"node bandwidth": draw.randint(50, 200) / 100},
        }
        if (text := json.dumps(one)) not in seen:
            seen.add(text)
            yield one


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
    """Where it listens, what it wants to be told, and its process."""

    port: int
    token: str
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
def server(workers: int) -> Generator[Server]:
    """A server for as long as it is needed."""
    command = [sys.executable, "-m", "foretell", "serve", "--port", "0", "--json", "--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        yield Server(int(said["url"].rstrip("/").rpartition(":")[2]), said["token"], process.pid)
    finally:
        process.terminate()
        process.wait()


class Client:
    """One connection that stays open."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def ask(self, call: str, body: dict[str, Any]) -> int:
        headers = {"Content-Type": "application/json", "Host": f"localhost:{self.server.port}"}
        headers["Authorization"] = f"Bearer {self.server.token}"
        self.connection.request("POST", f"/api/{call}", json.dumps(body), headers)
        answer = self.connection.getresponse()
        answer.read()
        return answer.status


def load(
    server: Server, coming: Iterator[dict[str, Any]], clients: int, rate: float, seconds: float
) -> tuple[list[float], list[int], float]:
    """Times and statuses of all answers, and how long all of it took."""
    lock = threading.Lock()
    times: list[float] = []
    statuses: list[int] = []
    begin = time.perf_counter() + 0.2

    def work(which: int) -> None:
        client = Client(server)
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
    client, found = Client(server), dict[str, list[tuple[float, float]]]()
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


@contextlib.contextmanager
def silence(port: int, count: int) -> Generator[list[int]]:
    """So many sockets that say nothing, opened again when they are hung up on; how often that was."""
    over, again = threading.Event(), [0]

    async def hold() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                while not over.is_set() and not reader.at_eof():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(1000), 1.0)
                writer.close()
            again[0] += 1
            await asyncio.sleep(0.5)

    async def all_of_them() -> None:
        await asyncio.gather(*(hold() for _ in range(count)))

    thread = threading.Thread(target=lambda: asyncio.run(all_of_them()))
    thread.start()
    try:
        yield again
    finally:
        over.set()
        thread.join()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def told(times: list[float]) -> str:
    shares = (("median", 0.5), ("p90", 0.9), ("p99", 0.99))
    return ", ".join(f"{name} {1e3 * percentile(times, share):.0f} ms" for name, share in shares)


def usual(found: Server, given: argparse.Namespace) -> None:
    """People and strangers, then sliders."""
    for who in (people, strangers):
        coming = who()
        load(found, coming, given.clients or 20, given.rate, 5.0)  # everybody's models are loaded
        before = found.busy()
        times, statuses, taken = load(found, coming, given.clients or 20, given.rate, given.seconds)
        busy, answered = (found.busy() - before) / max(1, len(statuses)), statuses.count(200)
        rate = f"{answered / taken:.1f} a second, {told(times)}; {1e3 * busy:.1f} ms of a core"
        print(f"{who.__name__}: {answered} of {len(statuses)} predicted, {rate}")
    print(f"  aim: {AIM_RATE:g} a second with p99 under {1e3 * AIM_P99:.0f} ms")
    for name, seen in changes(found).items():
        waited, busy = zip(*seen, strict=True)
        middle, most, core = (1e3 * one for one in (statistics.median(waited), max(waited), max(busy)))
        print(f"a change of {name}: median {middle:.0f} ms, most {most:.0f} ms; at most {core:.0f} ms of a core")
    print(f"  aim: under {1e3 * AIM_CHANGE:.0f} ms")


def crowd(found: Server, given: argparse.Namespace) -> None:
    """Fifty clients alone, and among sockets that say nothing: what the silent ones cost is the ratio."""
    clients = given.clients or 50
    for who, aim in ((repeated, AIM_REPEATED), (strangers, AIM_NEW)):
        coming, seen = who(), list[list[float]]()
        for silent in (0, given.silent):
            with silence(found.port, silent) as again:
                load(found, coming, clients, given.rate, 5.0)
                before = found.busy()
                times, statuses, _ = load(found, coming, clients, given.rate, given.seconds)
                core = (found.busy() - before) / max(1, len(statuses))
            seen.append(times)
            said = f"{statuses.count(200)} of {len(statuses)} answered, {told(times)}; {1e3 * core:.1f} ms of a core"
            about = f"{clients} clients and {silent} silent sockets (hung up on {again[0]} times), load {_load():.1f}"
            print(f"{who.__name__}, {about}: {said}", flush=True)
        ratio = percentile(seen[1], 0.99) / percentile(seen[0], 0.99)
        print(f"  p99 {ratio:.2f} times as long as without them; aim: under {1e3 * aim:.0f} ms on two quiet cores")


def memory(found: Server, given: argparse.Namespace) -> None:
    """What workers hold after so many questions."""
    coming, lock, statuses, most = visitors(), threading.Lock(), list[int](), 0
    known, looks = set[int](), max(1, given.memory // 10)

    def work() -> None:
        client = Client(found)
        while True:
            with lock:
                if len(statuses) >= given.memory:
                    return
                body = next(coming)
                statuses.append(0)
                mine = len(statuses) - 1
            statuses[mine] = client.ask("predict", body)

    threads = [threading.Thread(target=work) for _ in range(2 * given.workers)]
    for thread in threads:
        thread.start()
    last = 0
    while any(thread.is_alive() for thread in threads):
        known |= (now := set(_children(found.process)))
        held = [_held(child) for child in now]
        most = max([most, *held])
        if len(statuses) // looks > last:
            last = len(statuses) // looks
            print(
                f"{len(statuses)} questions: workers of {', '.join(f'{one / 1e6:.0f} MB' for one in held)}", flush=True
            )
        time.sleep(0.2)
    kinds = ", ".join(f"{statuses.count(kind)} of {kind}" for kind in sorted(set(statuses)))
    replaced = len(known) - given.workers
    print(f"{len(statuses)} different questions: {kinds}; {replaced} workers replaced; at most {most / 1e6:.0f} MB")
    print(f"  aim: under {AIM_BYTES / 1e6:.0f} MB")


def here() -> None:
    """Sliders without a server: each change once, with batches that are new, and hardware that is turned after it."""
    import gc

    from foretell.serve.worker import COLLECTED, WARMING, WorkerTask, answered

    answered(WorkerTask("view", WARMING), None)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)
    found = dict[str, list[float]]()

    def change(name: str, body: dict[str, Any]) -> None:
        start = time.process_time()
        if answered(WorkerTask("view", json.dumps(body).encode()), None).status == 200:
            found.setdefault(name, []).append(time.process_time() - start)

    for model, batch in itertools.product(("llama3-8b", "gpt2", "mixtral-8x7b", "llama3-70b"), (64, 128, 192, 256)):
        body: dict[str, Any] = {"model": model, "cluster": "64xh100", "batch": batch}
        for name, plan, values in CHANGES:
            for value in values:
                body["plan"] = plan.format(*(value if isinstance(value, tuple) else (value,)))
                change(name, body)
        for share in (0.5, 0.7, 0.9, 1.1, 1.3, 1.5):
            change("bandwidth", body | {"hardware": {"node bandwidth": share}})
    for name, times in (*found.items(), ("all", list(itertools.chain(*found.values())))):
        print(f"{name}: {len(times)} changes, {told(times)}, most {1e3 * max(times):.0f} ms of a core")
    print(f"  aim: median {1e3 * AIM_MEDIAN:.0f} ms, p99 {1e3 * AIM_SLOWEST:.0f} ms")
    print(f"  memory: at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def _load() -> float:
    return os.getloadavg()[0]


def _held(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--rate", type=float, default=AIM_RATE)
    options.add_argument("--clients", type=int, default=0)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--crowd", action="store_true")
    options.add_argument("--silent", type=int, default=250)
    options.add_argument("--memory", type=int, default=0)
    options.add_argument("--here", action="store_true")
    given = options.parse_args()
    if given.here:
        here()
        return
    print(f"{os.cpu_count()} cores, load {_load():.1f} before", flush=True)
    with server(given.workers) as found:
        (memory if given.memory else crowd if given.crowd else usual)(found, given)
    print(f"load {_load():.1f} after")


if __name__ == "__main__":
    main()
