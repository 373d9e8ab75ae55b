"""From the configuration of today to a better one: what it does, what it could do, and the file for that."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foretell.cli.table import WIDTH
from foretell.dialects import Recipe, Unsaid, WrittenConfig, put_together, taken_apart, write
from foretell.errors import ForetellError
from foretell.units import show_bytes, show_seconds

if TYPE_CHECKING:
    from foretell.cli.config_options import Today
    from foretell.oracle.planning import PlanningAnswer

ALIKE = 1.005
"""Speed-ups below this are told as none."""


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a file does today, and the best plan that a file of its kind can say."""

    file: str
    dialect: str
    plan: str
    step_seconds: float  # 0: it cannot be predicted
    memory_bytes: float
    fits: bool
    why: str  # that it cannot be predicted
    better: str  # empty: no plan that was told can be said
    why_not: str  # the best of them cannot be said
    better_seconds: float
    better_memory: float
    written: str  # the file, where one was written
    text: str
    unsaid: tuple[Unsaid, ...]

    @property
    def speedup(self) -> float:
        return self.step_seconds / self.better_seconds if self.step_seconds and self.better_seconds else 0.0

    def page(self) -> str:
        """In a few lines."""
        lines = [f"today       {self.plan}"]
        if self.why:
            lines.append(f"            {self.why}")
        else:
            room = "fits" if self.fits else "DOES NOT FIT"
            lines.append(
                f"            {show_seconds(self.step_seconds)} a step, {show_bytes(self.memory_bytes)}: {room}"
            )
        if not self.better:
            lines.append(f"better      none of the plans listed can be written as {self.dialect}: {self.why_not}")
        elif self.better == self.plan or (self.fits and 0 < self.speedup < ALIKE):
            lines.append("better      none: no plan is faster")
        else:
            rate = f", {self.speedup:.2f} times as fast" if self.fits and self.speedup else ""
            lines.append(f"better      {self.better}")
            lines.append(
                f"            {show_seconds(self.better_seconds)} a step, {show_bytes(self.better_memory)}{rate}"
            )
        if self.written:
            lines.append(f"written     {self.written}")
        lines += [f"not in it   {one.figure}: {one.where}" for one in self.unsaid]
        return "\n".join(
            textwrap.fill(line, WIDTH, subsequent_indent=" " * 12, drop_whitespace=False) for line in lines
        )


class _BetterPlan(NamedTuple):
    plan: str
    seconds: float
    memory: float
    written: WrittenConfig


def changed(found: Today, best: PlanningAnswer, out: str | None) -> ConfigChange:
    """What is run today against the best plan that the same kind of file can say."""
    from foretell.cli.verbs.export import save

    seconds, memory, fits, why = _now(found, best)
    better, why_not = _better(found, best)
    if out is not None and better is not None:
        save(out, better.written.text)
    return ConfigChange(
        file=found.configuration.file,
        dialect=found.configuration.dialect.name,
        plan=found.plan,
        step_seconds=seconds,
        memory_bytes=memory,
        fits=fits,
        why=why,
        better=better.plan if better else "",
        why_not="" if better else why_not,
        better_seconds=better.seconds if better else 0.0,
        better_memory=better.memory if better else 0.0,
        written=out if out is not None and better is not None else "",
        text=better.written.text if better else "",
        unsaid=better.written.unsaid if better else (),
    )


def _now(found: Today, best: PlanningAnswer) -> tuple[float, float, bool, str]:
    try:
        now = best.predicted(put_together(found.recipe))
    except ForetellError as problem:
        return 0.0, 0.0, False, f"cannot be predicted here: {problem.what.splitlines()[0]}"
    return now.step_seconds, now.memory_bytes, now.fits, ""


def _better(found: Today, best: PlanningAnswer) -> tuple[_BetterPlan | None, str]:
    """The first of the best plans that a file of this kind can say, written over the file; or why there is none."""
    why = "there is none"
    for one in best.found.top:
        try:
            recipe = taken_apart(one.value, batch=best.question.batch, **_kept(found.recipe))
            written = write(found.configuration.dialect, recipe, base=found.configuration.document)
        except ForetellError as problem:
            why = problem.what if why == "there is none" else why
            continue
        return _BetterPlan(one.plan, one.step_seconds, one.memory_bytes, written), ""
    return None, why


def _kept(recipe: Recipe) -> dict[str, object]:
    names = ("model", "shape", "sequence", "optimizer", "per_node")
    return {name: getattr(recipe, name) for name in names}
