"""What `foretell plan` prints: the winner, those behind it, and why others are out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from foretell.cli.accuracy_lines import accuracy_line
from foretell.cli.mixed_pages import ways_page
from foretell.cli.rates import gpus, sample_energy, step_lines
from foretell.cli.searched import SMALL, amount, looked_at, stopped
from foretell.cli.table import WIDTH, fit, folded
from foretell.cli.training_options import HOUR, run_lines
from foretell.oracle.headroom import ABOVE, CLOSE, FAILED, close
from foretell.oracle.layouts import NEAR, layouts
from foretell.oracle.part_names import part_name
from foretell.oracle.planning import PlanningAnswer, Tried
from foretell.oracle.predict import Prediction
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.ratios import order_right
from foretell.oracle.recommend import SLOWER
from foretell.oracle.search import SearchResult
from foretell.plan.plan import Plan, axis_text, policy_text
from foretell.plan.policies.recompute import Recompute
from foretell.plan.strategies.pipeline import Pipeline
from foretell.units import show_bytes, show_of, show_percent, show_rate, show_span
from foretell.units import show_seconds as seconds

SHOWN = 10
"""Plans of the front that are shown."""


def answer_page(answer: PlanningAnswer, step: Prediction, price: float, by: str, everything: bool = False) -> str:
    """The page of one search that found something; the lists of plans only where everything is asked for."""
    found = answer.found
    parts = [_winner(answer, step, price, by)]
    parts += [ways_page(found)] if found.ways else []
    if everything and not found.ways:
        parts += [_top(answer, step, by), _front(found), *_refused(answer)]
    return "\n\n".join([*parts, amount(found, everything)])


def _winner(answer: PlanningAnswer, step: Prediction, price: float, by: str) -> str:
    found = answer.found
    lines = [
        *_headline(answer, by),
        ("model", fit(found.model, WIDTH - 18)),
        ("on", f"{gpus(found.ranks, step.device)} of {found.cluster}, trainer {found.trainer}"),
        *step_lines(step),
        *sample_energy(answer.joules, found.batch),
        *_beside(answer),
        *_finer(found),
        *_closeness(answer, step),
    ]
    thousand = found.ranks * 1000 * step.step_seconds / HOUR * price
    if step.training:
        lines += run_lines(step.training, price, step.forward)
    elif price:
        lines.append(("cost", f"{thousand:,.2f} for a thousand steps, at {price:g} per GPU-hour"))
    lines += [(one.kind, f"{one.name}: {one.why}") for one in step.bottlenecks[:2]]
    lines += accuracy_line(step)
    return "\n".join(folded(f"{name:<14}{text}", 14) for name, text in lines)


HEADLINES = {
    "memory": "the one that leaves most memory free",
    "money": "recommended where a sample costs least",
    "gpus": "recommended on the fewest GPUs",
    "energy": "the one that draws least of the fastest",
}


def _headline(answer: PlanningAnswer, by: str) -> Iterator[tuple[str, str]]:
    """The plan, and why this one."""
    found = answer.found
    assert found.best is not None
    yield "recommended" if found.fastest else "plan", found.best.plan
    plans = f"of {found.fitting:,} plans that fit" if found.fitting != 1 else "the only plan that fits"
    if not found.fitting:
        plans = f"none of the {found.evaluated:,} plans of the search fits, and this one does"
    if by in HEADLINES:
        yield "", f"{plans}, {HEADLINES[by]}"
    elif found.fastest is None or found.fastest.plan == found.best.plan:
        tight = any(not one.roomy and one.step_seconds < found.best.step_seconds for one in found.ways)
        yield "", f"{plans}, the fastest{' that is not tight' if tight else ''}{looked_at(found)}"
    else:
        yield "", _reason(answer, found.best, found.fastest)


def _reason(answer: PlanningAnswer, best: Candidate, fastest: Candidate) -> str:
    """Why another plan than the fastest is recommended."""
    slower, effort = best.step_seconds / fastest.step_seconds - 1, answer.question.effort
    room = f"that fits with {show_percent(effort.chance, 0)}"
    room = room if effort.headroom is None else f"with {show_percent(effort.headroom, 0)} head-room"
    looked = looked_at(answer.found)
    if slower > SLOWER:
        return f"the fastest plan {room}, {show_percent(slower)} slower than the fastest{looked or ' of all'}"
    return f"the simplest plan {room}, at most {show_percent(SLOWER, 0)} slower than the fastest{looked}"


def _beside(answer: PlanningAnswer) -> Iterator[tuple[str, str]]:
    """The fastest plan, and one that saves memory: what each costs and gains."""
    found, best = answer.found, answer.found.best
    assert best is not None
    if found.fastest is not None and found.fastest.plan != best.plan:
        yield "fastest", found.fastest.plan
        yield "", f"{_against(found.fastest, best, found.capacity)}{_how_sure(best, found.fastest)}"
    if found.smaller is not None:
        yield "smaller", found.smaller.plan
        yield "", _against(found.smaller, best, found.capacity)


def _how_sure(best: Candidate, fastest: Candidate) -> str:
    """How often measured pairs of plans that are predicted as close as these ran in the predicted order."""
    known = order_right(best, fastest)
    if known is None or best.step_seconds <= fastest.step_seconds:
        return ""
    return (
        f"; of {known.pairs} measured pairs as near as these {show_percent(known.right / known.pairs, 0)} ranked right"
    )


def _against(one: Candidate, best: Candidate, capacity: float) -> str:
    """Time and memory of a plan against those of the recommended one."""
    slower = show_percent(one.step_seconds / best.step_seconds - 1, sign=True)
    more = show_percent(one.memory_bytes / best.memory_bytes - 1, 0, sign=True)
    filled = show_percent(one.memory_bytes / capacity, 0)
    return f"{seconds(one.step_seconds)} ({slower}), {show_bytes(one.memory_bytes)} ({more}), {filled} of usable"


def _finer(found: SearchResult) -> Iterator[tuple[str, str]]:
    """What was chosen for the leading plans beside what the search varies."""
    for one in found.finer:
        usual, own, other = FINER[one.what]
        tried = f"tried for {one.tried} leading plans" if one.tried > 1 else "tried for one plan"
        if not one.plan and not _AMONG.get(one.what, _any)(found):
            continue
        if not one.plan:
            yield one.what, f"{usual}: nothing else gains 0.1 % ({tried})"
            continue
        faster = f"{show_percent(one.gain)} faster than the best without" if one.before else "no plan without fits"
        more = f"another {other} gains at most {show_percent(one.gap)}" if one.gap >= SMALL else f"no {other} is faster"
        yield one.what, f"{own}: {faster}; {more} ({tried})"


def _pipelined(found: SearchResult) -> bool:
    return any(one is not None and one.value.axis(Pipeline) is not None for one in (found.best, found.fastest))


def _recomputing(found: SearchResult) -> bool:
    shown = (one for one in (found.best, found.fastest) if one is not None)
    return any(one.value.policy(Recompute) != Recompute() for one in shown)


def _any(found: SearchResult) -> bool:
    return True


_AMONG = {"stages": _pipelined, "recompute": _recomputing}
"""Whether a choice that gained nothing is of interest for the plans that are shown."""


FINER = {
    "recompute": ("all layers of a stage run again, or none", "as few layers run again as fit", "number of them"),
    "stages": ("as the trainer cuts them", "layers per stage chosen for the fastest plan", "split of it"),
    "parts": ("every axis is for the whole model", "an axis for a part of the model", "border of one axis"),
}
"""How a choice is called where it is not made, where it is, and any other."""


def _closeness(answer: PlanningAnswer, step: Prediction) -> Iterator[tuple[str, str]]:
    """A warning where hardly any memory is left."""
    if not close(step.memory_bytes, step.usable):
        return
    share, (failed, known) = show_percent(step.memory_bytes / step.usable), FAILED
    text = f"{share} of usable memory. Of {known} published runs predicted above {show_percent(CLOSE, 0)}, {failed} "
    text += f"ran out of memory; one peak in ten is {show_percent(ABOVE, 0)} or more above its prediction"
    yield "close", text


# lists of plans


def listed(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> str:
    """Figures to the right, after `left` names; texts at the end of the line go on below it where they are long."""
    figures = len(header) - 1
    widths = [max(len(line[at]) for line in (header, *rows)) for at in range(figures)]
    indent = sum(widths) + 2 * figures
    lines: list[str] = []
    for line in (header, *rows):
        sized = enumerate(zip(line[:figures], widths, strict=True))
        cells = [cell.ljust(width) if at < left else cell.rjust(width) for at, (cell, width) in sized]
        before = "".join(f"{cell}  " for cell in cells)
        for at, text in enumerate(line[figures].split("\n")):
            inside = indent + (2 if at else 0)
            lines.append(folded(text, indent + 2, before if at == 0 else " " * inside))
    rule = "-" * min(WIDTH, max(len(line) for text in lines for line in text.split("\n")))
    return "\n".join([lines[0], rule, *lines[1:]])


def _top(answer: PlanningAnswer, best: Prediction, by: str) -> str:
    """The best of each layout, so that ten lines are ten ways and not one way in ten words."""
    rows: list[list[str]] = []
    for one, others in layouts(answer.found, by):
        first = one.plan == best.plan
        spent = [] if first else _spent(answer.predicted(one.value), best)
        text = "\n".join([one.plan, *spent, *_others(one, others)])
        slower = "" if first else show_percent(one.step_seconds / best.step_seconds - 1, sign=True)
        rows.append([seconds(one.step_seconds), slower, show_bytes(one.memory_bytes), text])
    return listed(["step", "", "memory", "the best plan of each mesh, and its step against the recommended one"], rows)


DISTINGUISH = 3
"""Parts of a step that are told of a plan that is not the best."""


def _spent(step: Prediction, best: Prediction) -> list[str]:
    """What a plan spends more or less time on than the best, what differs most first."""
    here, there = by_first_axis(step.breakdown), by_first_axis(best.breakdown)
    found = {name: here.get(name, 0.0) - there.get(name, 0.0) for name in dict.fromkeys((*here, *there))}
    first = sorted(found, key=lambda name: -abs(found[name]))[:DISTINGUISH]
    worth = [name for name in first if abs(found[name]) >= 0.1 * abs(found[first[0]]) > 0]
    told = (f"{part_name(name)} {'+' if found[name] > 0 else '-'}{seconds(abs(found[name]))}" for name in worth)
    return [", ".join(told)] if worth else []


def by_first_axis(breakdown: Mapping[str, float]) -> dict[str, float]:
    """Groups of several axes count with the first: gradients are summed over dp in one plan, over dp+cp in another."""
    found: dict[str, float] = {}
    for name, taken in breakdown.items():
        first = name.partition("+")[0]
        found[first] = found.get(first, 0.0) + taken
    return found


def _others(one: Candidate, others: Sequence[Candidate]) -> list[str]:
    """How many plans of its mesh are as good, and the smallest of them if it takes less memory."""
    if not others:
        return []
    count = f"+ {len(others):,} more within {show_percent(NEAR, 0)}"
    least = min(others, key=lambda other: other.memory_bytes)
    if least.memory_bytes >= 0.99 * one.memory_bytes:
        return [count]
    return [f"{count}: {differences(least.value, one.value)}, {show_bytes(least.memory_bytes)}"]


def differences(plan: Plan, other: Plan) -> str:
    """What one plan has and the other has not, in words."""
    here, there = _parts(plan), _parts(other)
    changed = [f"{here[word]} for {there[word]}" for word in here if word in there and here[word] != there[word]]
    more = [text for word, text in here.items() if word not in there]
    less = [text for word, text in there.items() if word not in here]
    groups = [", ".join(changed)]
    groups += [f"with {', '.join(more)}"] if more else []
    groups += [f"without {', '.join(less)}"] if less else []
    return "; ".join(group for group in groups if group)


def _parts(plan: Plan) -> dict[str, str]:
    axes = {axis.word: axis_text(axis) for axis in plan.axes}
    return axes | {policy.word: policy_text(policy) for policy in plan.policies}


def _front(found: SearchResult) -> str:
    shown = list(_some(found.pareto))
    rows = [[seconds(one.step_seconds), show_bytes(one.memory_bytes), one.plan] for one in shown]
    title = "Pareto front: no plan is both faster and smaller"
    if len(shown) < len(found.pareto):
        title += f" ({len(found.pareto)} in all)"
    return listed(["step", "memory", title], rows)


def _some(front: Sequence[Candidate]) -> Iterator[Candidate]:
    """Those that need noticeably less memory than the one before: the first, the last and some evenly between them."""
    worth = [front[0]]
    for one in front[1:]:
        if one.memory_bytes <= (1 - NEAR) * worth[-1].memory_bytes:
            worth.append(one)
    last, count = len(worth) - 1, min(SHOWN, len(worth))
    for at in range(count):
        yield worth[round(at * last / max(1, count - 1))]


def _refused(answer: PlanningAnswer) -> list[str]:
    if not answer.found.refused:
        return []
    rows = [[f"{count:,}", f"{rule}: {answer.space.why[rule]}"] for rule, count in answer.found.refused.items()]
    return [listed(["refused", "rule, and the first plan it refused"], rows)]


# several searches


def counts_table(
    answers: Sequence[PlanningAnswer], price: float, by: str, spans: Sequence[float] = (), limit: float = math.inf
) -> str:
    """The best plan of each search, with its efficiency against the smallest that fits; `spans` are its trainings."""
    fitting = [one.found for one in answers if one.found.best is not None]
    asked = any(spans)
    rows: list[list[str]] = []
    for at, one in enumerate(answers):
        found, best = one.found, one.found.best
        if best is None:
            why = _too_large(found.nearest, found.capacity) if found.nearest else "every plan is refused"
            rows.append([f"{found.ranks:,}", f"{found.batch:,}", "", "", "", *([""] if asked else []), why])
            continue
        rate = found.batch / best.step_seconds
        first = fitting[0]
        assert first.best is not None
        share = rate / found.ranks / (first.batch / first.best.step_seconds / first.ranks)
        money = found.ranks * 1e6 / rate / HOUR * (price or 1.0)
        cells = [f"{found.ranks:,}", f"{found.batch:,}", show_rate(rate), f"{share:.0%}", show_rate(money)]
        cells += [_trained(spans[at], limit)] if asked else []
        rows.append([*cells, best.plan])
    unit = "cost/1M" if price else "hours/1M"
    header = ["ranks", "batch", "samples/s", "each", unit, *(["trains in"] if asked else []), f"best plan by {by}"]
    text = listed(header, rows)
    note = f"each: samples/s of a rank, against the first that fits; {unit}: "
    note += f"a million samples, at {price:g} a device an hour" if price else "device-hours of a million samples"
    note += f"; {LATE}: not within {show_span(limit)}" if any(taken > limit for taken in spans) else ""
    return f"{text}\n{folded(note, 2)}"


LATE = "!"
"""Stands before a training that misses the deadline."""


def _trained(taken: float, limit: float) -> str:
    return f"{LATE} {show_span(taken)}" if taken > limit else show_span(taken)


# nothing fits


def _too_large(nearest: Candidate, capacity: float) -> str:
    return f"nothing fits: {show_bytes(nearest.memory_bytes - capacity)} too much with {nearest.plan}"


def nothing_page(answer: PlanningAnswer, tried: Sequence[Tried]) -> str:
    """No plan fits: how far the nearest is from fitting, and what would fit of all that was searched besides."""
    found = answer.found
    nearest = found.nearest
    assert nearest is not None
    over = nearest.memory_bytes - found.capacity
    first = f"No plan of {fit(found.model, 40)} fits {found.cluster}: {found.evaluated:,} were priced."
    if not found.complete and found.seen < 1:
        first = f"No plan found so far fits {found.cluster}; {stopped(found)}"
    lines = [
        ("", first),
        ("nearest", nearest.plan),
        ("memory", f"{show_of(nearest.memory_bytes, found.capacity)} usable"),
        ("over by", f"{show_bytes(over)}, {show_percent(over / found.capacity)} of usable"),
        ("step", f"{seconds(nearest.step_seconds)}, if it did fit, batch {found.batch:,}"),
    ]
    head = "\n".join(folded(f"{name:<14}{text}" if name else text, 14 if name else 2) for name, text in lines)
    fitting = [(one.what, one.answer.found, one.best) for one in tried if one.best is not None]
    rows = [[what, seconds(best.step_seconds), show_bytes(best.memory_bytes), best.plan] for what, _, best in fitting]
    parts = [head]
    if rows:
        parts.append(listed(["what would fit", "step", "memory", "the fastest plan then"], rows, left=1))
    others = [one.what for one in tried if one.best is None]
    if others:
        parts.append(folded(f"also searched, and nothing fits: {', '.join(others)}", 2))
    return "\n\n".join([*parts, *_refused(answer), amount(found)])
