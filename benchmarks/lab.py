"""The proof bench: collectives and steps between emulated hosts, beside what formulas and predictions say.

    python benchmarks/lab.py collectives [--out studies/lab/collectives.jsonl]     about eight minutes
    python benchmarks/lab.py steps [--out studies/lab/steps.jsonl]                 eleven minutes, with a calibration
    python benchmarks/lab.py gloo [--out studies/lab/gloo.jsonl]                   half a minute
    python benchmarks/lab.py crossovers [--out studies/lab/crossovers.jsonl]       three minutes
    python benchmarks/lab.py again                                                 ten runs, and what is left of them
    python benchmarks/lab.py elastic [--out studies/lab/elastic.jsonl]             about five minutes, without hosts
    python benchmarks/lab.py show studies/lab/collectives.jsonl                    the table of a file, without hosts
    python benchmarks/lab.py reprice studies/lab/collectives.jsonl                 formulas as they are now

Needs root on Linux, and a C compiler (`foretell lab selftest` says what is missing). Samples are written as it goes.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from foretell.cli import lab_pages
from foretell.hardware import catalog
from foretell.lab import crossover
from foretell.lab.bench import CollectiveCase
from foretell.lab.describe import described
from foretell.lab.formula import formula
from foretell.lab.hosts import Lab
from foretell.lab.measure import (
    KINDS,
    SMALL,
    CollectiveRow,
    cases,
    everything,
    measured,
    orders,
    software,
    summary,
)
from foretell.lab.network import LabNetwork, Wire
from foretell.lab.stolen import CALM, Stolen
from foretell.runtime.assignment import Assignment
from foretell.runtime.collectives import chosen
from foretell.runtime.comparison import foreseen
from foretell.runtime.hosts import DEVICE

Found = TypeVar("Found")

HOSTS = (2, 4)
RATES = (12.5e6, 37.5e6, 125e6)
DELAYS = (1e-4, 1e-3, 5e-3)
ISLANDS = LabNetwork(hosts=4, rate=125e6, delay=1e-3, island=2, uplink=Wire(12.5e6, 2e-3))
FEW, LARGE = (1 << 10, 1 << 14), (0.03, 0.15)
"""Bytes of small tensors; seconds that the large ones take over a port, once. Small ones are timed more often."""

LLAMA = "llama:layers=4,hidden=256,heads=8,kv_heads=4,ffn=512,vocab=1000,seq=64"
WIDE = "llama:layers=2,hidden=256,heads=8,kv_heads=4,ffn=4096,vocab=1000,seq=64"
"""Few operators, and large ones: tensor ranks have much to do in Python around each."""

STEPS = (
    ("lenet", "dp2", 256),
    ("lenet", "spatial2", 256),
    ("lenet", "filter2", 256),
    (LLAMA, "tp2", 8),
    (LLAMA, "pp2:1f1b +m4", 16),
    (LLAMA, "dp2", 16),
    (LLAMA, "dp2:zero3", 16),
)
WAITS = ("--waits-predicted",)
WAITING = (
    *((("--hosts", "2", *WAITS), *step) for step in STEPS),
    (("--hosts", "2", "--per-host", "2", *WAITS), "lenet", "dp2 filter2", 512),
    (("--hosts", "4", *WAITS), "lenet", "dp4", 1024),
    (("--hosts", "4", *WAITS), "lenet", "dp2 filter2", 512),
    (("--hosts", "4", *WAITS), "lenet", "spatial4", 512),
    (("--hosts", "4", *WAITS), "lenet", "filter4", 256),
    (("--hosts", "4", *WAITS), WIDE, "tp4", 16),
    (("--hosts", "4", *WAITS), LLAMA, "pp4:1f1b +m4", 32),
    (("--hosts", "4", *WAITS), LLAMA, "dp4:zero3", 64),
)
"""Waits stand for what ranks compute, as long as is predicted: what is compared is messages, and what waits for them.
For four ranks two cores are too few without."""

NETWORKS = (("200Mbit", "1ms"), ("1Gbit", "0.5ms"))


def collectives(out: Path, repeats: int) -> None:
    rows: list[CollectiveRow] = []
    for hosts in HOSTS:
        for rate in RATES:
            for delay in DELAYS:
                rows += _network(LabNetwork(hosts=hosts, rate=rate, delay=delay), out, repeats)
    rows += _network(ISLANDS, out, repeats)
    show(rows)


def _network(network: LabNetwork, out: Path, repeats: int) -> list[CollectiveRow]:
    known = [row for row in _rows(out) if _key(row) == _key(network)]
    if known:
        return known  # a run that was cut short goes on
    slowest = network.uplink.rate if network.uplink else network.rate
    large = [int(slowest * seconds) // 4096 * 4096 for seconds in LARGE]
    wanted = cases(network, (), FEW, 2 * repeats) + cases(network, (), large, max(3, repeats // 2))
    rows = _calmly(lambda: _on_hosts(network, wanted), lambda rows: rows[0].stolen)
    with out.open("ab") as file:
        file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
    errors = [abs(row.error) for row in rows]
    print(
        f"{network.hosts} hosts, {network.rate * 8e-6:g} Mb/s, {network.delay * 1e3:g} ms"
        f"{', islands' if network.island else ''}: {len(rows)} rows, mean error {statistics.mean(errors):.1%},"
        f" a message takes {rows[0].overhead * 1e6:.0f} us more, cores were elsewhere {rows[0].stolen:.1%}",
        flush=True,
    )
    return rows


def _on_hosts(network: LabNetwork, wanted: list[CollectiveCase]) -> list[CollectiveRow]:
    with Lab(network) as lab:
        return measured(lab, wanted, 600.0)


TRIES = int(os.environ.get("FORETELL_LAB_TRIES", "2"))
"""Times that something is measured until this machine had its cores meanwhile; the calmest counts."""


def _calmly(measure: Callable[[], Found], stolen: Callable[[Found], float]) -> Found:
    tries: list[Found] = []
    while len(tries) < TRIES and not any(stolen(one) <= CALM for one in tries):
        tries.append(measure())
    return min(tries, key=stolen)


GLOO_NETWORKS = tuple(LabNetwork(hosts=hosts, rate=12.5e6, delay=5e-3) for hosts in HOSTS)
GLOO_SIZE = 1 << 10


def gloo(out: Path, repeats: int) -> None:
    """Small collectives of PyTorch's gloo, in delays: how many messages wait for each other."""
    for network in GLOO_NETWORKS:
        with Lab(network) as lab, tempfile.TemporaryDirectory() as folder:
            told = lab.each(lambda rank: _gloo_rank(rank, lab.network.hosts, folder, repeats), 300.0)
        for kind in KINDS:
            samples = [max(each) for each in zip(*(one[kind] for one in told), strict=True)]  # the last rank counts
            row = {"kind": kind, "hosts": network.hosts, "rate": network.rate, "delay": network.delay}
            row |= {"size": GLOO_SIZE, "seconds": statistics.median(samples), "samples": samples}
            with out.open("ab") as file:
                file.write(msgspec.json.encode(row) + b"\n")
            print(f"{network.hosts} hosts, {kind}: {row['seconds'] / network.delay:.1f} delays", flush=True)


def _gloo_rank(rank: int, hosts: int, folder: str, repeats: int) -> dict[str, list[float]]:
    """Seconds of every repeat; all ranks read one clock, and begin at a moment that a barrier is long over by."""
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = DEVICE
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", hosts), rank=rank, world_size=hosts)
    whole, share = torch.zeros(GLOO_SIZE // 4), torch.zeros(GLOO_SIZE // 4 // hosts)
    works = {
        "all-reduce": lambda: dist.all_reduce(whole),
        "all-gather": lambda: dist.all_gather_into_tensor(whole, share),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(share, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "all-to-all": lambda: dist.all_to_all_single(whole.clone(), whole),
    }
    return {kind: [_gloo_seconds(dist, works[kind]) for _ in range(repeats + 1)][1:] for kind in KINDS}


def _gloo_seconds(dist: Any, work: Callable[[], object]) -> float:
    moment = [time.monotonic() + 0.2]
    dist.broadcast_object_list(moment, 0)
    time.sleep(max(0.0, moment[0] - time.monotonic()))
    work()
    return time.monotonic() - moment[0]


def _rows(file: Path) -> list[CollectiveRow]:
    return (
        [msgspec.json.decode(line, type=CollectiveRow) for line in file.read_bytes().splitlines()]
        if file.exists()
        else []
    )


def reprice(file: Path) -> None:
    """Write the formulas as they are now beside the samples that were measured."""
    rows = [msgspec.structs.replace(row, formula=_formula(row)) for row in _rows(file)]
    file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    show(rows)


def _formula(row: CollectiveRow) -> float:
    flat = LabNetwork(hosts=row.hosts, rate=row.rate, delay=row.delay)
    cluster = described(ISLANDS if row.island else flat, row.overhead)
    return formula(chosen(row.algorithm), row.kind, row.size, cluster, row.software)


def _key(of: CollectiveRow | LabNetwork) -> tuple[object, ...]:
    return of.hosts, of.rate, of.delay, of.island


def show(rows: list[CollectiveRow]) -> None:
    """Mean errors by algorithm, and how often the formula names the fastest one."""
    print(f"\n{'collective':16}{'by':22}{'rows':>5}{'small':>8}{'large':>8}{'worst':>8}")
    for one in summary(rows):
        means = "".join(f"{'' if mean is None else f'{mean:.1%}':>8}" for mean in (one.small, one.large))
        print(f"{one.kind:16}{one.algorithm:22}{one.rows:5}{means}{one.worst:+8.1%}")
    small = [abs(row.error) for row in rows if row.size <= SMALL]
    large = [abs(row.error) for row in rows if row.size > SMALL]
    print(f"\nall: {len(rows)} rows")
    for name, errors, bound in ((f"small (to {SMALL // 1024} KiB)", small, 0.15), ("large", large, 0.05)):
        if errors:
            within = sum(error <= bound for error in errors) / len(errors)
            means = f"mean {statistics.mean(errors):.1%} median {statistics.median(errors):.1%}"
            print(f"{name}: {means}, {within:.0%} of {len(errors)} within {bound:.0%}")
    found = [order for network in _by_network(rows) for order in orders(network)]
    hit = sum(order.predicted == order.fastest for order in found)
    lost = statistics.mean(max(0.0, order.regret) for order in found)
    print(f"fastest algorithm: the formula names it in {hit} of {len(found)} cases; trusting it costs {lost:.1%}")


def _by_network(rows: list[CollectiveRow]) -> list[list[CollectiveRow]]:
    groups: dict[tuple[object, ...], list[CollectiveRow]] = {}
    for row in rows:
        groups.setdefault(_key(row), []).append(row)
    return list(groups.values())


def steps(out: Path, calibration: Path | None) -> None:
    """Steps of plans across hosts, by the command, beside predictions: for a processor calibrated first; the same
    if messages beside computing took nothing of it (naive); and with the model's layers timed on it, as the oracle
    paper does (Kahira et al. 2021)."""
    rows: list[dict[str, Any]] = _lines(out) if out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        file = calibration or _calibrated(Path(folder))
        for rate, delay in NETWORKS:
            for options, model, plan, batch in (*WAITING, *(((), *step) for step in STEPS)):
                about: dict[str, Any] = {"rate": rate, "delay": delay, "model": model, "plan": plan, "batch": batch}
                about |= {"options": " ".join(options)} if options else {}
                if any(about.items() <= row.items() for row in rows if ("options" in row) == bool(options)):
                    continue  # a run that was cut short goes on
                words = ["--rate", rate, "--delay", delay, *options]
                asked = (model, "--plan", plan, "--batch", str(batch))
                row = _calmly(functools.partial(_step, words, asked, Path(folder), file), lambda row: row["stolen"])
                if "seconds" not in row:
                    continue
                rows.append(about | row)
                with out.open("a") as target:
                    target.write(json.dumps(rows[-1]) + "\n")
                _tell(rows[-1])
    judged(rows)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def judged(rows: list[dict[str, Any]]) -> None:
    """Mean errors of steps that computed, and of steps that waited instead, on two ranks and on four."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        options = row.get("options", "")
        ranks = "four ranks" if "--hosts 4" in options or "--per-host" in options else "two ranks"
        groups.setdefault(f"{ranks}, {'waits for computing' if options else 'computing'}", []).append(row)
    for name, own in groups.items():
        for key in (key for key in SIDES if key in own[0]):
            errors = [row[key] / row["seconds"] - 1 for row in own]
            mean, bias = statistics.mean(map(abs, errors)), statistics.mean(errors)
            print(f"{name}, {key}: mean error {mean:.1%}, bias {bias:+.1%} over {len(own)} steps")


def apart(rows: list[dict[str, Any]], again: list[dict[str, Any]]) -> None:
    """How far two runs of the same steps lie apart: no prediction can be told to be nearer than about half of that."""
    names = ("rate", "delay", "model", "plan", "batch", "options")
    seconds = {tuple(row.get(name, "") for name in names): row["seconds"] for row in again}
    both = [(row, seconds.get(tuple(row.get(name, "") for name in names), 0.0)) for row in rows]
    for what, waits in (("computing", False), ("waits for computing", True)):
        found = [abs(one / row["seconds"] - 1) for row, one in both if one and ("options" in row) == waits]
        if found:
            mean, worst = statistics.mean(found), max(found)
            print(f"{what}: two runs lie {mean:.1%} apart, mean of {len(found)} steps, worst {worst:.1%}")


SIDES = ("predicted", "naive", "profiled")


def _calibrated(folder: Path) -> Path:
    """This machine's processor, timed now: what else runs here does so meanwhile too."""
    file = folder / "processor.json"
    _command(["calibrate", "--device", "cpu", "--out", str(file), "--json"])
    return file


def _profiled(model: str, plan: str, batch: int, folder: Path) -> Path:
    """What the layers of a model take for as many samples as a rank of this plan has at a time; timed once."""
    setting = Assignment(model=model, plan=plan, batch=batch).setting
    data = math.prod(axis.world for axis in setting.plan.axes if axis.word == "dp")
    samples = batch // data // setting.plan.microbatches
    file = folder / f"{model.partition(':')[0]}-{samples}.json"
    if not file.exists():
        words = [model, "--batch", str(samples), "--device", "cpu", "--quick", "--out", str(file), "--json"]
        _command(["profile", *words])
    return file


def _step(words: list[str], asked: tuple[str, ...], folder: Path, calibration: Path) -> dict[str, Any]:
    """A plan that ran across hosts, and its predictions; nothing of one that did not come to its end."""
    stolen = Stolen()
    known, cluster = ["--calibration", str(calibration)], folder / "cluster.toml"
    command = [sys.executable, "-m", "foretell", "lab", "run", *words, "--describe", str(cluster), *asked]
    command += ["--steps", "10", "--records", str(folder), *known, "--compare", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    if ran.returncode:
        print(f"{' '.join((*words, *asked))}: {ran.stderr.strip()[:300]}", flush=True)
        return {"stolen": math.inf}  # tried again, and any that came to its end counts
    taken, answer = stolen.share(), json.loads(ran.stdout)
    predicted = answer["comparison"]["predicted"]
    model, _, plan, _, batch = asked
    where = catalog.cluster(str(cluster))
    naive = foreseen(Assignment(model=model, plan=f"{plan} +overlap", batch=int(batch)), where, str(calibration))
    row = {
        "stolen": taken,
        "overhead": where.levels[-1].link.latency_seconds,
        "seconds": answer["step_seconds"],
        "samples": answer["samples"],
        "predicted": predicted["step_seconds"],
        "naive": naive.step_seconds,
        "breakdown": answer["breakdown"],
        "predicted_breakdown": predicted["breakdown"],
    }
    if WAITS[0] in words:  # what was timed is no computing
        return row
    profile = str(_profiled(model, plan, int(batch), folder))
    profiled = _command(["predict", *asked, "--on", str(cluster), *known, "--profile", profile, "--json"])
    return row | {"profiled": profiled["step_seconds"], "profiled_breakdown": profiled["breakdown"]}


def _tell(row: dict[str, Any]) -> None:
    sides = ", ".join(
        f"{key} {row[key] * 1e3:7.1f} {row[key] / row['seconds'] - 1:+6.1%}" for key in SIDES if key in row
    )
    waits = [_waiting(row[key]) * 1e3 for key in ("breakdown", "predicted_breakdown")]
    print(
        f"{row['rate']:8}{row['delay']:6} {row['model'][:6]:7}{row['plan']:13} step {row['seconds'] * 1e3:7.1f} ms,"
        f" {sides}; waiting {waits[0]:7.1f} ms, predicted {waits[1]:7.1f}{' (waits)' if 'options' in row else ''}",
        flush=True,
    )


CROSSING = [LabNetwork(hosts=4, rate=rate, delay=delay) for rate in RATES for delay in (1e-3, 5e-3)]


def crossovers(out: Path, repeats: int) -> None:
    """Where pairs of algorithms change places, by formulas and as timed."""
    for network in CROSSING:
        with Lab(network) as lab:
            takes = software(lab)
            said = crossover.expected(described(network, takes.message), everything(network), software=takes)
            rows = measured(lab, crossover.cases(said, network.hosts, repeats), 600.0)
        with out.open("ab") as file:
            file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
    crossed(_rows(out))


def crossed(rows: list[CollectiveRow]) -> None:
    """The same of a file: the formulas have the overhead that its rows were timed with."""
    errors: dict[crossover.Crossover, float] = {}
    count = 0
    for own in _by_network(rows):
        network = LabNetwork(hosts=own[0].hosts, rate=own[0].rate, delay=own[0].delay)
        said = crossover.expected(described(network, own[0].overhead), everything(network), software=own[0].software)
        found = crossover.measured(said, own)
        errors |= {one: one.error for one in found if one.error is not None}
        count += len(found)
        print(f"{network.rate * 8e-6:g} Mb/s, {network.delay * 1e3:g} ms\n{lab_pages.crossovers(found)}\n", flush=True)
    print(f"{count} crossovers, {len(errors)} seen between the sizes that were timed")
    print(f"the formulas put them {statistics.mean(map(abs, errors.values())):.1%} off in the mean; furthest:")
    for one, error in sorted(errors.items(), key=lambda pair: -abs(pair[1]))[:6]:
        print(f"{error:+7.1%} {one.kind} {one.below} {one.above}")


TOKEN = "FORETELL_LAB_AGAIN"
TIMES = 10
LITTLE = ("lenet", "--plan", "dp2", "--batch", "8", "--steps", "3", "--device", "cpu")


def _named() -> dict[str, set[str]]:
    """What would outlive its process: devices of this machine, and namespaces that have a name."""
    folders = {"devices": Path("/sys/class/net"), "namespaces": Path("/run/netns")}
    return {what: {one.name for one in folder.glob("*")} for what, folder in folders.items()}


def _has(process: Path, token: bytes) -> bool:
    """Whether a process was started by this one, whoever its parent is now."""
    try:
        return process.name != str(os.getpid()) and token in (process / "environ").read_bytes()
    except OSError:
        return False


def again() -> None:
    """Runs across hosts one after the other, and what is left of them: processes, and what only they could hold."""
    before, token = _named(), f"{TOKEN}={os.getpid()}".encode()
    os.environ[TOKEN] = str(os.getpid())
    for at in range(TIMES):
        _command(["lab", "run", *LITTLE, "--json"])
        left = [process for process in Path("/proc").glob("[0-9]*") if _has(process, token)]
        new = {what: sorted(names - before[what]) for what, names in _named().items()}
        print(f"run {at + 1}: {len(left)} processes left; new: {new}", flush=True)
        if left or any(new.values()):
            raise SystemExit(1)
    print(f"{TIMES} runs left no process (so no namespace without a name, and no port), no device, no named namespace")


FAILING = (("6s", 20), ("12s", 40))
"""Mean time between failures, and steps between two checkpoints."""


def elastic(out: Path) -> None:
    """Runs whose ranks die at random, and the goodput that is expected of them with the times that they took."""
    with tempfile.TemporaryDirectory() as folder:
        for at, (mtbf, every) in enumerate(FAILING):
            words = ["run", "lenet", "--plan", "dp2", "--batch", "64", "--steps", "800", "--device", "cpu", "--json"]
            words += ["--checkpoint", f"{folder}/{at}", "--checkpoint-every", str(every), "--fail-every", mtbf]
            ran = _command([*words, "--restarts", "500", "--records", folder, "--seed", str(at)])
            said = _command(["goodput", ran["record"], "--json"])
            row = {"mtbf": mtbf, "every": every, "expected": said["goodput"], "lives": ran["lives"]}
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"a failure every {mtbf}, a checkpoint every {every} steps: {ran['lives']['failures']} failures,"
                f" goodput {ran['lives']['goodput']:.1%}, expected {said['goodput']:.1%}",
                flush=True,
            )


def _command(words: list[str]) -> Any:
    ran = subprocess.run([sys.executable, "-m", "foretell", *words], capture_output=True, text=True, env=os.environ)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    return json.loads(ran.stdout)


def _waiting(breakdown: dict[str, float]) -> float:
    """Seconds of a step that are messages, or waiting for them."""
    return sum(seconds for key, seconds in breakdown.items() if key.startswith("exposed.") or key == "bubble")


MEASURE = {"collectives": collectives, "gloo": gloo, "crossovers": crossovers}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=[*MEASURE, "steps", "elastic", "again", "show", "reprice"])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("again", nargs="?", type=Path, help="of `steps`: the same once more")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calibration", type=Path, help="of this processor, for steps; else one is made")
    given = parser.parse_args()
    out = given.out or Path(f"studies/lab/{given.what}.jsonl")
    known = given.file or Path("studies/lab/collectives.jsonl")
    if given.what == "crossovers" and given.file:
        crossed(_rows(given.file))
    elif given.what in MEASURE:
        out.parent.mkdir(parents=True, exist_ok=True)
        MEASURE[given.what](out, given.repeats)
    elif given.what == "steps" and given.file:
        rows = _lines(given.file)
        for row in rows:
            _tell(row)
        judged(rows)
        if given.again:
            apart(rows, _lines(given.again))
    elif given.what == "steps":
        steps(out, given.calibration)
    else:
        others = {
            "elastic": lambda: elastic(out),
            "again": again,
            "show": lambda: show(_rows(known)),
            "reprice": lambda: reprice(known),
        }
        others[given.what]()


if __name__ == "__main__":
    main()
