# pyright: basic
"""Measure this machine: every case of every probe, saved as it goes, taken up again where it stopped."""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
import torch

from foretell.calibration.case import Case, Scope
from foretell.calibration.clock import FEWEST, DeviceClock
from foretell.calibration.probes import probes
from foretell.cost.calibrated import fits
from foretell.cost.samples import Calibration, MeasuredMachine, Sample, calibration, sample
from foretell.errors import BadInput, ForetellError
from foretell.files import PRIVATE, append_lines, read_bytes, write_whole
from foretell.hardware import catalog, this_machine
from foretell.hardware.cluster import Cluster
from foretell.hardware.kept_memory import keep_memory
from foretell.records import store
from foretell.records.doubts import in_future
from foretell.records.home import home
from foretell.records.record import record

T = TypeVar("T")

THOROUGH, QUICK = 0.1, 0.01
"""Seconds that a case is timed for."""

PASSES: Final = 3
"""Times that all cases of a processor are gone through, each for a third of its seconds: a core is a fifth faster or
slower from one minute to the next, by what else the machine does, and all figures should have seen the same."""

Watch = Callable[[str, int, int], None]
"""Is told the probe, the cases done and all cases."""


class Wanted(NamedTuple):
    """What is asked for."""

    device: str
    quick: bool = False
    only: tuple[str, ...] = ()  # probes; none: all
    minutes: float = 0.0  # after which it stops; 0: never
    resume: bool = False
    passes: int = 0  # after which it is complete; 0: as many as are usual


class CalibrationOutcome(NamedTuple):
    """What came of it."""

    path: Path
    found: Calibration
    failed: dict[str, str]  # probe and case to what went wrong


def chosen() -> str:
    """A GPU where PyTorch sees one, else the processor."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def measure(
    wanted: Wanted, out: Path | None = None, watch: Watch = lambda probe, done, total: None
) -> CalibrationOutcome:
    """Time all that was not timed yet and write the record to `out`, or keep it with the others; samples are kept
    beside it while it goes on."""
    keep_memory()
    scope = scope_of(wanted.device, wanted.quick)
    machine = machine_of(scope)
    cases = list(_passes(scope, wanted))
    before = out or _earlier(machine)
    journal = SampleJournal(out or _under_way(wanted.device), machine, wanted.resume, before, wanted.quick)
    clock = DeviceClock(scope.device, QUICK if wanted.quick else THOROUGH / scope.passes, -(-FEWEST // scope.passes))
    end = time.monotonic() + 60 * wanted.minutes if wanted.minutes else float("inf")
    failed: dict[str, str] = {}
    complete = not wanted.quick and not wanted.only  # in a hurry, or in part, is not all of it
    for done, (turn, name, case) in enumerate(cases):
        watch(name, done, len(cases))
        if journal.passes(name, case) > turn or time.monotonic() > end:
            complete = complete and journal.passes(name, case) > turn
            continue
        try:
            journal.add(sample(name, case.about, case.measure(clock)))
        except (RuntimeError, ValueError, ForetellError) as problem:  # no memory for it, or no kernel: the others go on
            failed[f"{name} {_words(case)}"] = str(problem).splitlines()[0] if str(problem) else repr(problem)
            if scope.device == "cuda":
                torch.cuda.empty_cache()
    watch("", len(cases), len(cases))
    if not journal.samples:  # a record of nothing would pass for evidence
        raise BadInput("nothing was measured", where="--minutes, --only", fix="more minutes, other probes")
    after = msgspec.structs.replace(machine, clocks={**machine.clocks, **_clocks(machine.kind, "after")})
    found = _content(after, journal.samples, complete, wanted.quick)
    made = record("calibration", msgspec.to_builtins(found), cluster="this-machine", versions=machine.versions)
    if out is None:
        out = store.write(home(), made)
    else:
        store.save(out, made)
    journal.close()
    return CalibrationOutcome(out, found, failed)


def journal_of(wanted: Wanted, out: Path | None) -> Path:
    """Where the samples of a calibration that is under way are kept."""
    target = out or _under_way(wanted.device)
    return target.with_name(target.name + SUFFIX)


def _under_way(device: str) -> Path:
    """The file beside which samples of a calibration are that will be kept: a host's own, since hosts may share the
    folder."""
    return home() / f"calibration-{device}-{platform.node()}{store.SUFFIX}"


def _earlier(machine: MeasuredMachine) -> Path | None:
    """The newest calibration of this machine that is kept, to go on with."""
    dates: dict[Path, str] = {}
    for path in store.files(home()):
        with contextlib.suppress(BadInput):
            found = calibration(store.read(path)) if path.name.startswith("calibration-") else None
            if found and _same(found.machine, machine) and not in_future(found.date):
                dates[path] = found.date
    return max(dates, key=lambda path: (dates[path], path.name), default=None)


def _same(earlier: MeasuredMachine, machine: MeasuredMachine) -> bool:
    """Whether what was timed before was timed here; records of before do not name their host."""
    there = (earlier.device, earlier.title, earlier.host or machine.host)
    return there == (machine.device, machine.title, machine.host)


def _passes(scope: Scope, wanted: Wanted) -> Iterator[tuple[int, str, Case]]:
    """Every case of every pass."""
    for turn in range(wanted.passes or scope.passes):
        for name, case in _cases(scope._replace(turn=turn), wanted.only):
            yield turn, name, case


def _cases(scope: Scope, only: tuple[str, ...]) -> Iterator[tuple[str, Case]]:
    known = probes()
    for name in only:
        if name not in known:
            raise BadInput(f"no probe is called {name!r}", where="--only", fix=", ".join(known))
    for name, probe in known.items():
        if not only or name in only:
            for case in probe.cases(scope):
                yield name, case


def _words(case: Case) -> str:
    return msgspec.json.encode(case.about).decode()[:80]


def _content(machine: MeasuredMachine, samples: list[Sample], complete: bool, quick: bool) -> Calibration:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    plain = Calibration(machine=machine, samples=tuple(samples), complete=complete, quick=quick, date=now)
    place = _cluster(machine)
    return msgspec.structs.replace(plain, fits=fits(place.device, place, plain))


# where it runs


def scope_of(device: str, quick: bool) -> Scope:
    """What there is to measure."""
    if device == "cuda":
        if not torch.cuda.is_available():
            raise BadInput("PyTorch sees no CUDA device here", where="--device", fix="--device cpu")
        return Scope("cuda", quick, torch.cuda.device_count())
    torch.set_num_threads(1)  # a rank is one core
    return Scope("cpu", quick, this_machine.processor().ranks, 1 if quick else PASSES)


def _cluster(machine: MeasuredMachine) -> Cluster:
    """This machine as a cluster."""
    return this_machine.processor() if machine.kind == "cpu" else catalog.cluster(f"{machine.count}x{machine.device}")


def machine_of(scope: Scope) -> MeasuredMachine:
    """This machine as far as it can be told."""
    versions = {"torch": str(torch.__version__), "python": platform.python_version(), "system": platform.platform()}
    if scope.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        known = this_machine.known_device(properties.name)
        if known is None:
            fix = "a device of `foretell list devices`, or a TOML file of it"
            raise BadInput(f"no device is known that the driver calls {properties.name!r}", fix=fix)
        versions |= {"cuda": torch.version.cuda or "", "driver": this_machine.driver()}
        cudnn: int | None = torch.backends.cudnn.version()
        versions |= {"cudnn": str(cudnn)} if cudnn else {}
        name, title, memory = known.name, properties.name, properties.total_memory
    else:
        processor = this_machine.processor().device
        name, title, memory = processor.name, processor.title, processor.memory_bytes
    return MeasuredMachine(
        device=name,
        title=title,
        kind=scope.device,
        count=scope.count,
        memory_bytes=memory,
        clocks=_clocks(scope.device, "before"),
        versions=versions,
        host=platform.node(),
    )


def _clocks(kind: str, when: str) -> dict[str, float]:
    """Hz of the multiprocessors and the memory, or of the first core, as they are reported; empty where nobody does."""
    if kind == "cuda":
        found = this_machine.clocks()
    else:
        lines = _cpu_lines()
        found = {"core": 1e6 * float(lines[0].partition(":")[2])} if lines else {}
    return {f"{name} {when}": hertz for name, hertz in found.items()}


def _cpu_lines() -> list[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.startswith("cpu MHz")]


# saved as it goes


SUFFIX: Final = ".part"


class SampleJournal:
    """The samples of a calibration that is under way, beside the record that it will be: a line each, and another one
    in each pass."""

    def __init__(
        self,
        out: Path,
        machine: MeasuredMachine,
        resume: bool,
        earlier: Path | None = None,
        quick: bool = False,
    ) -> None:
        self.path = out.with_name(out.name + SUFFIX)
        self._known: dict[bytes, Sample] = {}
        for one in self._before(earlier, machine, quick) if resume else ():
            self._join(one)
        try:
            write_whole(
                self.path, b"".join(msgspec.json.encode(one) + b"\n" for one in (machine, *self.samples)), PRIVATE
            )
        except OSError as problem:
            raise BadInput(f"cannot be written: {problem.strerror}", where=str(self.path)) from None

    def _before(self, record: Path | None, machine: MeasuredMachine, quick: bool) -> Iterator[Sample]:
        """What was timed before: of the record, or of the journal that a stopped calibration left. What was timed in a
        hurry is timed again in a whole one."""
        if self.path.exists():
            first, *lines = read_bytes(self.path, "journal").splitlines() or [b"null"]
            earlier = _decoded(first, MeasuredMachine)
            samples = [one for line in lines if (one := _decoded(line, Sample)) is not None]
        elif record is not None and record.exists():
            found = calibration(store.read(record), str(record))
            earlier, samples = found.machine, [] if found.quick and not quick else list(found.samples)
        else:
            return
        if earlier is None or not _same(earlier, machine):
            raise BadInput("what is there was measured on another machine", where=str(self.path), fix="another --out")
        yield from samples

    @property
    def samples(self) -> list[Sample]:
        return list(self._known.values())

    def passes(self, name: str, case: Case) -> int:
        """In how many a case was timed."""
        known = self._known.get(sample(name, case.about, [0.0]).key)
        return len(list(known.by_pass)) if known else 0

    def _join(self, one: Sample) -> None:
        known = self._known.get(one.key)
        self._known[one.key] = known.and_again(one) if known else one

    def add(self, one: Sample) -> None:
        self._join(one)
        append_lines(self.path, msgspec.json.encode(one))

    def close(self) -> None:
        """The record has it all."""
        self.path.unlink(missing_ok=True)


def _decoded(line: bytes, kind: type[T]) -> T | None:
    """A line, or None where it was cut off in the middle."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
