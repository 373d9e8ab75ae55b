"""A mixed cluster as emulated hosts: fast and slow ones, real gloo ranks, with equal and with uneven shares.

    python benchmarks/mixed_lab.py [--out studies/lab/mixed.jsonl]      about three minutes
    python benchmarks/mixed_lab.py show studies/lab/mixed.jsonl         the table of a file, without hosts

Half of the hosts compute half as fast, and all slowly enough for two cores to keep up with them. A host waits as long
as its device takes by its prices (`--waits-predicted`), so what is measured is what ranks say to each other, when, and
what they wait for: gradients of samples that differ in number, and stages that differ in layers. Predicted is the step
on the same cluster as `foretell predict` has it, of throttled devices. Needs root on Linux, and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster, DeviceGroup
from foretell.oracle.predicted import predicted
from foretell.oracle.request import read

PACES = 4.0, 8.0
"""Times as long as a core of this machine that a fast and a slow host take: long beside what Python takes around it."""

LLAMA = "llama:layers=12,hidden=128,heads=4,kv_heads=4,ffn=512,vocab=1000,seq=64"
HERE = Path(__file__).parents[1]
KEPT = HERE / "studies" / "lab" / "mixed.jsonl"
AIM = 0.12


class Pair(NamedTuple):
    """A model on hosts with equal shares, and with those that the search finds."""

    what: str
    hosts: int
    even: str
    batch: int
    rate: str
    delay: str


PAIRS = (
    Pair("batches", 2, "dp2", 48, "1Gbit", "0.5ms"),
    Pair("stages", 2, "pp2:1f1b,split=6/6 +m4", 64, "1Gbit", "0.5ms"),
    Pair("stages", 2, "pp2:gpipe,split=6/6 +m4", 64, "500Mbit", "1ms"),
    Pair("batches", 2, "dp2:zero1", 48, "500Mbit", "1ms"),
    Pair("stages", 4, "pp4:1f1b,split=3/3/3/3 +m4", 64, "500Mbit", "1ms"),
    Pair("batches", 4, "dp4", 96, "1Gbit", "0.5ms"),
)


def mixed(file: Path, slow: int) -> Cluster:
    """The lab's own description, with slow devices in its last hosts."""
    whole = catalog.cluster(str(file))
    counts = (whole.ranks - slow, slow)
    devices = [msgspec.structs.replace(whole.device, pace=pace) for pace in PACES]
    groups = tuple(map(DeviceGroup, devices, counts))
    return msgspec.structs.replace(whole, groups=groups, text=f"{whole.text} with {slow} slow hosts")


def foretold(cluster: Cluster, plan: str, batch: int) -> tuple[str, float]:
    """The plan with its shares, and seconds of its step. Equal shares of samples wait for the slow kind."""
    asked = read(model=LLAMA, on=cluster, plan=plan, batch=batch)
    if "dp" in plan and "shares" not in plan:
        return plan, _equal(cluster, plan, batch)
    found = predicted(asked)[1]
    return found.plan, found.step_seconds


def _equal(cluster: Cluster, plan: str, batch: int) -> float:
    """All ranks as slow as the slowest, which all wait for."""
    slow = DeviceGroup(cluster.groups[-1].device, cluster.ranks)
    alike = msgspec.structs.replace(cluster, groups=(slow,), text=f"{cluster.text} alike")
    return predicted(read(model=LLAMA, on=alike, plan=plan, batch=batch))[1].step_seconds


def uneven(cluster: Cluster, pair: Pair) -> str:
    """The plan with the best shares of this way."""
    free = pair.even.partition(",split=")[0] + (" " + pair.even.split()[1] if "split=" in pair.even else "")
    return predicted(read(model=LLAMA, on=cluster, plan=free, batch=pair.batch))[1].plan


def ran(pair: Pair, plan: str, describe: Path) -> float | None:
    """Seconds of a step between emulated hosts, the median."""
    paces = [PACES[2 * rank // pair.hosts] for rank in range(pair.hosts)]
    slow = [word for rank, pace in enumerate(paces) for word in ("--slow-rank", f"{rank}:{pace:g}x")]
    words = ["lab", "run", "--hosts", str(pair.hosts), "--rate", pair.rate, "--delay", pair.delay, *slow]
    words += ["--describe", str(describe), LLAMA, "--plan", plan, "--batch", str(pair.batch), "--steps", "4"]
    words += ["--waits-predicted", "--records", str(describe.parent), "--json"]
    done = subprocess.run([sys.executable, "-m", "foretell", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr.strip(), file=sys.stderr)
        return None
    return float(statistics.median(_steps(json.loads(done.stdout))))


def _steps(answer: dict[str, Any]) -> list[float]:
    found = answer.get("measurement", answer)
    return found.get("steps") or [found["step_seconds"]]


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    for pair in PAIRS:
        describe = folder / "lab.toml"
        first = ran(pair, pair.even, describe)
        if first is None:
            continue
        cluster = mixed(describe, pair.hosts // 2)
        best = uneven(cluster, pair)
        second = ran(pair, best, describe)
        for plan, seconds in ((pair.even, first), (best, second)):
            if seconds is not None:
                _, said = foretold(cluster, plan, pair.batch)
                yield pair._asdict() | {"plan": plan, "seconds": seconds, "predicted": said, "uneven": plan == best}


def show(found: list[dict[str, Any]]) -> None:
    errors: list[float] = []
    for row in found:
        error = row["predicted"] / row["seconds"] - 1
        errors.append(abs(error))
        where = f"{row['hosts']} hosts, {row['rate']}, {row['delay']}"
        print(f"{where:28}{row['plan']:40}{row['seconds']:8.3f} s{row['predicted']:8.3f} s predicted{error:+7.1%}")
    for even, uneven in zip(found[::2], found[1::2], strict=False):
        real, said = (even[key] / uneven[key] for key in ("seconds", "predicted"))
        print(f"{uneven['plan']}: {real:.2f} times as fast as {even['plan']}, predicted {said:.2f}")
    print(f"{sum(error <= AIM for error in errors)} of {len(errors)} steps within {AIM:.0%}, worst {max(errors):.1%}")


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("show", nargs="?", choices=["show"])
    words.add_argument("file", nargs="?", type=Path, default=KEPT)
    words.add_argument("--out", type=Path, default=KEPT)
    chosen = words.parse_args()
    if chosen.show:
        show([json.loads(line) for line in chosen.file.read_text().splitlines()])
        return
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder)):
            found.append(row)
            print(json.dumps(row), flush=True)
            chosen.out.write_text("".join(f"{json.dumps(one)}\n" for one in found))
    show(found)


if __name__ == "__main__":
    main()
