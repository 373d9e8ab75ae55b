"""From a question to its row: the ranks are started, a step is measured, the same is predicted; or why it is not."""

from __future__ import annotations

import math
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from foretell.bench import environments
from foretell.bench.engine import missing_tools, trained_by
from foretell.bench.environments import Home
from foretell.bench.question import BenchQuestion
from foretell.bench.row import ABSENT, FAILED, UNFIT, BenchRow, LearningPoint, PredictedRow, advice
from foretell.errors import ForetellError, MissingExtra
from foretell.hardware import catalog, this_machine
from foretell.hardware.cluster import Cluster
from foretell.model.optimizer import optimizer
from foretell.oracle.calibrations import file_of
from foretell.runtime.assignment import Report, RunOutcome, Seat
from foretell.runtime.comparison import foreseen
from foretell.runtime.launch import Ranks
from foretell.runtime.measure import Measurement, measurement
from foretell.runtime.recording import HERE

LONGEST_SECONDS = 900.0
"""Of one row."""

LOOK_SECONDS = 0.1
"""For which the machine is looked at before a row: nothing of ours runs then."""

REFUSED = "does not fit"
"""What an error says of a plan that breaks a rule: nothing was begun."""


class BenchPlace(NamedTuple):
    """Where rows are measured."""

    ranks: int = 0  # at most, where somebody else started them; 0: as many as are asked for
    node: int = 0  # of these on each host
    cluster: str = ""  # for predictions; empty: this machine

    @property
    def hosts(self) -> int:
        return math.ceil(self.ranks / self.node) if self.node else 1


class Starter:
    """Keeps the process that starts ranks from one row to the next of the same engine: torch is imported once."""

    where = BenchPlace()

    def __enter__(self) -> Self:
        self._ranks: Ranks | None = None
        self._for: tuple[Any, ...] = ()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end(kind, error, at)

    def _end(self, kind: Any = None, error: Any = None, at: Any = None) -> None:
        if self._ranks is not None:
            self._ranks.__exit__(kind, error, at)
        self._ranks, self._for = None, ()

    def run(self, question: BenchQuestion, home: Home, seconds: float) -> tuple[Report, ...]:
        """What each rank has seen."""
        found = self.outcome(question, home, seconds)
        if found.failure is not None:
            raise found.failure.raised(found.reports)
        return found.reports

    def outcome(self, question: BenchQuestion, home: Home, seconds: float, seat: Seat | None = None) -> RunOutcome:
        """What comes of a question: of all its ranks, or of the one that has its seat here."""
        asked = (trained_by(question.engine), home.python, question.texts.environment)
        if self._ranks is None or self._for != asked:
            self._end()
            self._ranks, self._for = Ranks(*asked).__enter__(), asked
        try:
            answer = self._ranks.outcome(msgspec.structs.replace(question.assignment(), seat=seat), seconds)
        except BaseException as problem:
            self._end(type(problem), problem)
            raise
        if answer.failure is not None:
            self._end(RuntimeError, RuntimeError())  # one that failed may leave something behind
        return answer


def measured(question: BenchQuestion, starter: Starter, seconds: float = LONGEST_SECONDS) -> BenchRow:
    """The row of a question; whatever goes wrong is its reason."""
    begun, load = time.monotonic(), os.getloadavg()[0]
    about: dict[str, Any] = {"created": datetime.now(UTC).isoformat(timespec="seconds"), "load": load}
    about["busy"] = busy_cores()
    about["node"] = starter.where.node
    hindrance = _hindrance(question, starter.where)
    if hindrance is not None:
        return question.row(**hindrance, **about)
    home = environments.found(question.engine_asked)
    assert home is not None
    about["versions"] = _versions(question, home)
    try:
        reports = starter.run(question, home, seconds)
    except ForetellError as problem:
        status = UNFIT if REFUSED in problem.what or isinstance(problem, MissingExtra) else FAILED
        return question.row(status=status, **_said(problem), **about, wall_seconds=time.monotonic() - begun)
    about["versions"] |= reports[0].versions
    figures = _figures(question, reports, starter.where)
    return question.row(**(_diverged(figures) or figures), **about, wall_seconds=time.monotonic() - begun)


def busy_cores(file: Path = Path("/proc/stat"), seconds: float = LOOK_SECONDS) -> float | None:
    """Cores that anybody keeps busy while this process waits; None where the system does not tell."""
    before = _ticks(file)
    time.sleep(seconds if before else 0.0)
    after = _ticks(file)
    if before is None or after is None or after.total <= before.total:
        return None
    share = (after.busy - before.busy) / (after.total - before.total)
    return (os.cpu_count() or 1) * min(max(share, 0.0), 1.0)  # by proc(5) the time that disks are waited for may fall


class _Ticks(NamedTuple):
    """Of all cores since the machine started."""

    busy: int
    total: int


def _ticks(file: Path) -> _Ticks | None:
    """By proc(5): user, nice, system, idle, waiting for a disk, interrupts, and what other machines took."""
    try:
        parts = [int(word) for word in file.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    return _Ticks(sum(parts) - parts[3] - parts[4], sum(parts))


def _versions(question: BenchQuestion, home: Home) -> dict[str, str]:
    package = question.engine_asked.package.partition("[")[0]
    return {package: home.version} if package else {}


def _hindrance(question: BenchQuestion, where: BenchPlace) -> dict[str, str] | None:
    """What keeps an engine from being started at all, and what would cure it."""
    engine, asked = question.engine_asked, question.pair_asked
    if engine.one_host and where.ranks:
        return _unfit(f"{engine.title} starts its ranks itself, on one host", "without torchrun, srun or --nnodes")
    if question.ranks < engine.least:
        return _unfit(f"{engine.title} needs {engine.least} ranks", f"--ranks {engine.least}")
    if (engine.gpu or asked.device == "cuda") and not this_machine.gpus():
        who = engine.title if engine.gpu else asked.title
        fix = "a machine with GPUs" + ("" if engine.gpu else "; on this one: --pair image,language")
        return _unfit(f"{who} needs CUDA, and torch sees no GPU here", fix)
    if optimizer(asked.optimizer).needs_whole and not engine.whole_weights:
        return _unfit(f"{engine.title} does not run {asked.optimizer}", "--optimizer sgd")
    if environments.found(engine) is None:
        name = question.engine.replace("_", "-")
        return {
            "status": ABSENT,
            "reason": f"{engine.package} is not installed",
            "fix": f"foretell bench --install {name}",
        }
    missing = missing_tools(engine)
    return _unfit(f"{engine.title} calls {', '.join(missing)}", f"apt install {' '.join(missing)}") if missing else None


def _said(problem: ForetellError) -> dict[str, str]:
    """A refusal in one line: why, and what would work; other errors as they are."""
    lines = [line.strip() for line in problem.what.splitlines()]
    why, fix = ([line[4:].strip() for line in lines if line.startswith(word)] for word in ("why ", "try "))
    if REFUSED not in problem.what or not why:
        where = f" ({problem.where})" if _tells(problem) else ""
        first, *more = problem.what.splitlines() or [""]
        return {"reason": "\n".join([f"{first}{where}", *more]), "fix": problem.fix}
    return {"reason": "; ".join(why), "fix": advice("; ".join(dict.fromkeys(fix)) or problem.fix)}


def _tells(problem: ForetellError) -> bool:
    """Whether the place of an error says more than which option it came from."""
    return bool(problem.where) and not problem.where.startswith("--") and problem.where not in problem.what


def _unfit(reason: str, fix: str) -> dict[str, str]:
    return {"status": UNFIT, "reason": reason, "fix": fix}


def _diverged(figures: dict[str, Any]) -> dict[str, str] | None:
    """A loss that is no number is no result, and JSON has no word for it."""
    numbers = (*figures["losses"], *(point.loss for point in figures["curve"]))
    if all(map(math.isfinite, numbers)):
        return None
    return {"status": FAILED, "reason": "the loss is not a number: training diverged", "fix": "a lower --rate"}


# figures


def _figures(question: BenchQuestion, reports: tuple[Report, ...], where: BenchPlace) -> dict[str, Any]:
    assignment = question.assignment()
    found = measurement(assignment, assignment.plan, assignment.batch, reports)
    epoch = reports[0].epoch_samples or question.pair_asked.epoch_samples
    figures: dict[str, Any] = {
        "trainer": assignment.trainer,
        "epoch_samples": epoch,
        "step_seconds": found.step_seconds,
        "low_seconds": found.samples.p10,
        "high_seconds": found.samples.p90,
        "phases": found.breakdown,
        "phases_by_rank": {name: tuple(seconds) for name, seconds in found.by_rank.items()},
        "memory_by_rank": found.memory_by_rank,
        "losses": tuple(found.losses),
        "curve": _curve(found, epoch),
    }
    return figures | _predicted(question, found, where)


def _curve(found: Measurement, epoch: int) -> tuple[LearningPoint, ...]:
    return tuple(
        LearningPoint(
            step=one.step,
            epoch=one.samples / epoch if epoch else 0.0,
            seconds=one.seconds,
            loss=one.loss,
            metric=one.metric,
            perplexity=one.perplexity,
        )
        for one in found.validation
    )


def _predicted(question: BenchQuestion, found: Measurement, where: BenchPlace) -> dict[str, Any]:
    """The oracle's word on what the engine does, on this machine as it is calibrated; or why there is none."""
    if where.node and question.ranks > where.node and not where.cluster:
        return {"unpredicted": f"{question.ranks} ranks lie on several hosts, and nobody says what joins them: --on"}
    same = msgspec.structs.replace(question.assignment(), plan=question.texts.plan)
    try:
        here = _cluster(question, where)
        said = foreseen(same, here)
    except ForetellError as problem:
        return {"unpredicted": problem.what}
    step, memory = found.step_seconds, found.memory_bytes
    return {
        "predicted": PredictedRow(
            step_seconds=said.step_seconds,
            low_seconds=said.interval[0],
            high_seconds=said.interval[1],
            memory_bytes=said.memory.allocated,
            breakdown=said.breakdown,
            error=(said.step_seconds - step) / step,
            memory_error=(said.memory.allocated - memory) / memory if memory else None,
            calibrated=file_of(here) is not None,
        )
    }


def _cluster(question: BenchQuestion, where: BenchPlace) -> Cluster:
    """What ranks compute on: what somebody said, or this machine, whose processor is apart from its GPUs."""
    if where.cluster:
        return catalog.cluster(where.cluster)
    return this_machine.processor() if question.pair_asked.device == "cpu" else catalog.cluster(HERE)
