"""What `foretell diff`, `why` and `whatif` print: plans beside each other, and ways from one to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretell.cli.accuracy_lines import accuracy_line, accuracy_of_two
from foretell.cli.plan_pages import listed, seconds
from foretell.cli.rates import (
    flops_text,
    gpus,
    memory_text,
    micro_batch_text,
    rate_text,
    shown_breakdown,
    shown_memory,
    step_unit,
)
from foretell.cli.table import WIDTH, fit, folded, table
from foretell.oracle.diff import Diff, DiffPart, DiffStep, PlanDifference, diff_parts
from foretell.oracle.predict import Prediction
from foretell.oracle.upgrades import TIMES
from foretell.oracle.whatif import Effect, WhatIf
from foretell.oracle.why import Why
from foretell.units import show_bytes, show_of, show_percent, show_rate

SMALLEST = 1e-3
"""Share of a step or of memory below which a difference is not shown on the page."""

ALIKE = 1e-9
"""Share below which two figures are one."""

NOTED = 1.1
"""From here on a difference is shown as a factor, below in per cent."""


def lines(pairs: Sequence[tuple[str, str]], indent: int = 14) -> str:
    """Names with what is said of them."""
    return "\n".join(folded(f"{name:<{indent}}{text}", indent) for name, text in pairs)


def gained(value: float) -> str:
    """A time that is saved, or with a + that is added."""
    return f"-{seconds(value)}" if value > 0 else f"+{seconds(-value)}" if value < 0 else "0"


# two plans


def diff_page(found: Diff) -> str:
    """Both plans, what they spend, each difference alone, and the way."""
    first, second = found.first, found.second
    head = lines(
        [
            ("model", fit(found.model, WIDTH - 18)),
            ("on", f"{found.cluster}, trainer {found.trainer}, batch {found.batch:,}"),
            ("first", _figures(first, found.ranks)),
            ("second", _figures(second, found.ranks)),
            ("", f"the second is {_compared(first.step_seconds, second.step_seconds)}"),
            *accuracy_of_two(first, second),
        ]
    )
    if not found.differences:
        return f"{head}\n\nThe two plans are the same."
    parts = [
        head,
        _side_by_side("step time", _rows(shown_breakdown, found), first.step_seconds, second.step_seconds, seconds),
        _side_by_side("memory", _rows(shown_memory, found), first.memory_bytes, second.memory_bytes, show_bytes),
        differences_table(found.differences),
        path_table(found.path, first),
    ]
    return "\n\n".join(parts)


def _idle(step: Prediction, ranks: int) -> str:
    """Ranks of the cluster that a plan leaves idle."""
    return f", {ranks - step.ranks:,} of {gpus(ranks, step.device)} idle" if step.ranks < ranks else ""


def _figures(step: Prediction, ranks: int) -> str:
    room = f"{memory_text(step)}{_idle(step, ranks)}"
    return f"{step.plan}: {seconds(step.step_seconds)}, MFU {show_percent(step.utilisation)}, {room}"


def _compared(first: float, second: float) -> str:
    if first == second:
        return "as fast"
    times, word = (first / second, "fast") if second < first else (second / first, "slow")
    return f"{times:.3g} times as {word}" if times >= NOTED else f"{show_percent(times - 1, 2)} {word}er"


def _rows(shown: Callable[[Prediction], dict[str, float]], found: Diff) -> tuple[DiffPart, ...]:
    return diff_parts(shown(found.first), shown(found.second))


def _side_by_side(
    title: str, rows: Sequence[DiffPart], first: float, second: float, shown: Callable[[float], str]
) -> str:
    def difference(value: float) -> str:
        if abs(value) < ALIKE * max(first, second):
            return ""
        return f"{'+' if value > 0 else '-'}{shown(abs(value))}"

    large = [row for row in rows if max(row.first / first, row.second / second) >= SMALLEST]
    cells = [[row.name, shown(row.first), shown(row.second), difference(row.second - row.first)] for row in large]
    cells.append(["total", shown(first), shown(second), difference(second - first)])
    return table([title, "first", "second", ""], cells)


def differences_table(found: Sequence[PlanDifference]) -> str:
    """Each difference in the first plan alone."""
    rows: list[list[str]] = []
    for one in found:
        text = one.what
        if one.needs:
            text += f"\nneeds also: {'; '.join(one.needs)} (alone: {one.why})"
        rows.append([gained(one.gain_seconds), show_bytes(one.memory_bytes) + ("" if one.fits else " !"), text])
    return listed(["step", "memory", "each change to the first plan alone (with those it needs)"], rows)


def path_table(path: Sequence[DiffStep], start: Prediction) -> str:
    """A way from one plan to another."""
    rows = [
        [seconds(start.step_seconds), "", show_bytes(start.memory_bytes) + ("" if start.fits else " !"), start.plan]
    ]
    for step in path:
        text = f"{step.plan}\n{', with '.join(step.changes)}"
        memory = show_bytes(step.memory_bytes) + ("" if step.fits else " !")
        rows.append([seconds(step.step_seconds), gained(step.gain_seconds), memory, text])
    note = ""
    if not start.fits or any(not step.fits for step in path):
        note = "\n!: does not fit in usable memory"
    together = [step.changes for step in path if len(step.changes) > 1]
    if together:
        words = "; ".join(" needs ".join(changes) for changes in together)
        note += "\n" + folded(f"these changes are only legal together: {words}", 2)
    return listed(["step", "", "memory", "one change at a time, the largest gain first"], rows) + note


# one plan and the best


def why_page(found: Why) -> str:
    """The verdict with its numbers, the way to the best, and the hardware that would change it."""
    return "\n\n".join([_verdict(found), *_fixes(found), *_way(found), *_better_hardware(found), _amount(found)])


def _verdict(found: Why) -> str:
    step = found.prediction
    rows = [("plan", found.asked), ("on", f"{found.cluster}, trainer {found.trainer}, batch {found.batch:,}")]
    if found.refusals:
        count = len(found.refusals)
        rows.append(("refused", "a rule is broken" if count == 1 else f"{count} rules are broken"))
        rows += [
            (f"  {refusal.rule}" if len(refusal.rule) < 12 else "  rule", str(refusal)) for refusal in found.refusals
        ]
        rows.append(("nearest", found.plan or "no legal plan is near it"))
    if step is not None:
        rows += [
            ("step", f"{seconds(step.step_seconds)}, {micro_batch_text(step)}{_idle(step, found.ranks)}"),
            ("rate", rate_text(step)),
            ("", flops_text(step)),
            ("memory", f"{show_of(step.memory_bytes, found.capacity)} usable"),
        ]
        if found.too_much:
            share = show_percent(found.too_much / found.capacity)
            rows.append(("over", f"{show_bytes(found.too_much)}, {share} of usable memory"))
    return lines([*rows, *_rival(found), *accuracy_line(step)])


def _rival(found: Why) -> list[tuple[str, str]]:
    if found.best is None:
        if found.nearest is None:
            return [("best", "none: every plan is refused")]
        over = show_bytes(found.nearest.memory_bytes - found.capacity)
        return [("best", f"none: no plan fits; the closest, {found.nearest.plan}, is {over} over")]
    best = f"{found.best.plan}: {seconds(found.best.step_seconds)}, {show_bytes(found.best.memory_bytes)}"
    if found.prediction is None:
        return [("best", best)]
    if found.gap_seconds > 0:
        compared = _compared(found.prediction.step_seconds, found.best.step_seconds)
        return [("best", best), ("gap", f"{seconds(found.gap_seconds)}: the best is {compared}")]
    if found.verdict == "best":
        verdict = (
            "this plan is the best of all that were searched"
            if found.gap_seconds == 0
            else "this plan, which is outside the search space, is faster"
        )
        return [("best", verdict)]
    end = "does not fit" if found.too_much else "is outside the search space"
    if not found.gap_seconds:
        return [("best", best), ("gap", f"none: your plan is as fast, but {end}")]
    return [("best", best), ("gap", f"none: your plan is {seconds(-found.gap_seconds)} faster, but {end}")]


def _fixes(found: Why) -> list[str]:
    if not found.too_much:
        return []
    if not found.fixes:
        return ["No single change and no pair of changes makes it fit."]
    rows = [
        [one.what, show_bytes(one.memory_bytes), show_rate(one.samples_per_second), f"{one.plan} on {one.cluster}"]
        for one in found.fixes[:SHOWN]
    ]
    return [listed(["what would fit", "memory", "samples/s", "the plan then"], rows, left=1)]


SHOWN = 5
"""Changes that would fit, on the page."""


def _way(found: Why) -> list[str]:
    return [path_table(found.path, found.prediction)] if found.path and found.prediction else []


def _better_hardware(found: Why) -> list[str]:
    goal = "it fits" if found.verdict == "too large" else "it is the fastest"
    rows = [
        [f"x{win.times:g}", seconds(win.step_seconds), _won(win.what, win.rival, win.rival_seconds)]
        for win in found.hardware
    ]
    parts = [listed(["least", "step", f"hardware upgrade after which {goal}"], rows)] if rows else []
    if found.tried:
        most = f"x{TIMES[-1]:g}"
        parts.append(
            folded(
                f"still not the fastest with {most} of: {', '.join(found.tried)}"
                if goal != "it fits"
                else f"{most} the memory is not enough",
                2,
            )
        )
    return ["\n".join(parts)] if parts else []


def _won(what: str, rival: str, rival_seconds: float) -> str:
    return f"{what}\nrunner-up then: {rival}, {seconds(rival_seconds)}" if rival else what


def _amount(found: Why) -> str:
    end = "" if found.complete else "; interrupted before all were evaluated"
    return f"{found.evaluated:,} plans were evaluated to find the best{end}"


# what if


def whatif_page(found: WhatIf) -> str:
    """The step as it is, and with each thing changed."""
    step = found.prediction
    head = lines(
        [
            ("plan", found.plan + (", the best of the search" if found.searched else "")),
            ("model", fit(found.model, WIDTH - 18)),
            ("on", f"{found.cluster}, trainer {found.trainer}, batch {found.batch:,}"),
            ("step", f"{seconds(step.step_seconds)}, {micro_batch_text(step)}{_idle(step, found.ranks)}"),
            ("rate", rate_text(step)),
            ("", flops_text(step)),
            ("memory", memory_text(step)),
            *accuracy_line(step),
        ]
    )
    parts = [head, _upgrades(found), _jobs(found)]
    again = [one for one in (*found.hardware, *found.jobs) if one.best is not None]
    if again:
        parts.append(_searched_again(found, again))
    return "\n\n".join(parts)


def _upgrades(found: WhatIf) -> str:
    names = list(dict.fromkeys(one.what for one in found.hardware))
    cells = {(one.what, one.times): one for one in found.hardware}
    rows = [[name, *(_faster(cells[name, times], found.prediction.fits) for times in TIMES)] for name in names]
    title = table([f"{step_unit(found.prediction)}, with better", *(f"x{times:g}" for times in TIMES)], rows)
    first = cells[names[0], 2.0]
    gain = first.faster - 1
    best = f"the best upgrade: twice the {names[0]}, {show_percent(gain, sign=True)}"
    pays = best if gain >= SMALLEST else "none of these upgrades makes it faster"
    return f"{title}\n{folded(pays, 2)}"


def _faster(effect: Effect, fitted: bool) -> str:
    return "fits" if effect.fits and not fitted else show_percent(effect.faster - 1, sign=True)


def _jobs(found: WhatIf) -> str:
    rows: list[list[str]] = []
    for one in found.jobs:
        value = round((found.batch if one.what == "batch" else found.seq) * one.times)
        if one.refused:
            rows.append([f"{one.what} {value:,}", "", "", "", f"refused: {one.refused}"])
        else:
            room = "fits" if one.fits else "does not fit"
            rows.append(
                [
                    f"{one.what} {value:,}{_accumulation(one, found)}",
                    seconds(one.step_seconds),
                    show_percent(one.faster - 1, sign=True),
                    show_bytes(one.memory_bytes),
                    room,
                ]
            )
    return listed(["change of", "step", step_unit(found.prediction), "memory", "fits?"], rows, left=1)


def _accumulation(one: Effect, found: WhatIf) -> str:
    """The accumulation steps of a larger batch, where they are others than before."""
    return f", {one.microbatches:,} micro-batches" if one.microbatches != found.prediction.microbatches else ""


def _searched_again(found: WhatIf, effects: Sequence[Effect]) -> str:
    rows: list[list[str]] = []
    if found.best is not None:
        rows.append(["as it is", show_percent(found.best_faster - 1, sign=True), found.best.plan])
    for one in effects:
        assert one.best is not None
        rows.append([f"x{one.times:g} {one.what}", show_percent(one.best_faster - 1, sign=True), one.best.plan])
    return listed(["searched again", "rate", "the best plan then"], rows, left=1)
