"""The most bytes that ranks hold at once, by the order of their slots. Kernels, as in `timeline.segments`."""
# Tables are lists or arrays, and compilers infer types: annotations would have to lie.
# pyright: basic

from foretell.compiling import kernel, whole_zeros
from foretell.timeline.lookups import rank_sum


@kernel
def rank_peaks(t, plans, at, rank):
    """The most bytes of micro-batches that a rank has at once, and in which moment of its order (-1: it has none).

    Then the same without the activations of the backward pass that is going on: its new gradients come to these.
    """
    order, peaks_at = plans.i[plans.order + at], plans.i[plans.peaks + at]
    stage_at = t.i[t.stage_at + plans.i[plans.partition + at]]
    place, moments = t.i[t.rank_at + order] + rank, plans.i[plans.moments + at] + rank
    made = plans.f[plans.made + at] > 0 and one_each(t, plans, at)
    first, stop = t.i[t.held_at + place], t.i[t.held_at + place + 1]
    most, when, others, then = 0.0, -1, 0.0, -1
    for moment in range(t.i[t.moment_at + moments], t.i[t.moment_at + moments + 1]):
        held = 0.0
        for chunk in range(stop - first):
            kept = t.f[t.kept + peaks_at + t.i[t.stage_signature + stage_at + t.i[t.held + first + chunk]]]
            held += t.f[t.in_flight + t.i[t.in_flight_at + moment] + chunk] * kept
        signature = peaks_at + t.i[t.stage_signature + stage_at + t.i[t.moment_stage + moment]]
        kept = t.f[t.kept + signature]
        if t.i[t.moment_forward + moment]:
            now = held + kept + max(0.0, t.f[t.forward_peak + signature] - kept)
        else:
            peak = t.f[t.making_peak + signature] if made else t.f[t.backward_peak + signature]
            now = held + max(0.0, peak - kept)
            if held - kept > others or then < 0:
                others, then = held - kept, moment
        if now > most or when < 0:
            most, when = now, moment
    return most, when, others, then


@kernel
def rank_bytes(t, plans, at, rank, peaks):
    """The most bytes in tensors that a rank has at once, and in which moment of its order; -1: after the update."""
    base = t.i[t.traffic_at + plans.i[plans.traffic + at]]
    parameters = rank_sum(t, plans, at, rank, t.trained, base)
    persistent = rank_sum(t, plans, at, rank, t.persistent, base) + plans.f[plans.copies + at] * parameters
    persistent += plans.f[plans.workspace + at]
    there = persistent
    if plans.f[plans.made + at] > 0 and one_each(t, plans, at):
        there = persistent - rank_sum(t, plans, at, rank, t.gradients, base)
    most, when, others, then = peaks
    fresh = others + plans.f[plans.fresh + at] * parameters  # all are there when the pass's own activations are gone
    if then >= 0 and fresh > most:
        most, when = fresh, then
    working = there + most + plans.f[plans.cached + at] * parameters
    working += min(plans.f[plans.streams + at], max(0.0, plans.f[plans.limit + at] - working))
    after = persistent + plans.f[plans.gathered + at] * parameters
    if after > working:
        return after, -1
    return working, when


@kernel
def one_each(t, plans, at):
    """Whether every rank has one stage and one micro-batch: a pass forward and one back."""
    order = plans.i[plans.order + at]
    slots = t.i[t.order_at + order + 1] - t.i[t.order_at + order]
    return plans.i[plans.rounds + at] == 0 and slots == 2 * t.i[t.order_ranks + order]


@kernel
def rank_memory(t, plans, at, rank):
    """The same of a rank alone."""
    return rank_bytes(t, plans, at, rank, rank_peaks(t, plans, at, rank))


@kernel
def evaluate_memory(t, plans, rows, memory):
    """Bytes that the device of the worst rank reports, of some plans: those that hold the same should come together."""
    peaks = [(0.0, -1, 0.0, -1)]
    ranks = whole_zeros(0)
    for n in range(len(rows)):
        at = rows[n]
        if n == 0 or not same_stages(plans, at, rows[n - 1]):
            ranks = fullest_ranks(t, plans, at)
        if n == 0 or not same_peaks(plans, at, rows[n - 1]):
            peaks = [rank_peaks(t, plans, at, r) for r in ranks]
        most = -1.0
        for rank in range(len(ranks)):
            most = max(most, rank_bytes(t, plans, at, ranks[rank], peaks[rank])[0])
        memory[at] = most * plans.f[plans.reserved + at] + plans.f[plans.context + at]


@kernel
def same_stages(plans, at, other):
    """Whether the ranks of two plans have the same stages, and as many micro-batches in flight."""
    return (
        plans.i[plans.moments + at] == plans.i[plans.moments + other]
        and plans.i[plans.partition + at] == plans.i[plans.partition + other]
    )


@kernel
def fullest_ranks(t, plans, at):
    """Ranks of which one has the most, whatever the sizes: each other one has no more than one of these."""
    order, cut, moments = plans.i[plans.order + at], plans.i[plans.partition + at], plans.i[plans.moments + at]
    found, count = whole_zeros(t.i[t.order_ranks + order]), 0
    for rank in range(len(found)):
        less = False
        for n in range(count):
            less = less or as_much(t, t.i[t.stage_at + cut], t.i[t.rank_at + order], moments, found[n], rank)
        if not less:
            found[count] = rank
            count += 1
    return found[:count]


@kernel
def as_much(t, stage_at, rank_at, moments, rank, other):
    """Whether a rank has stages of the same signatures as another, and never less in flight."""
    first, there = t.i[t.held_at + rank_at + rank], t.i[t.held_at + rank_at + other]
    stages = t.i[t.held_at + rank_at + other + 1] - there
    if t.i[t.held_at + rank_at + rank + 1] - first != stages:
        return False
    for n in range(stages):
        signature = t.i[t.stage_signature + stage_at + t.i[t.held + first + n]]
        if signature != t.i[t.stage_signature + stage_at + t.i[t.held + there + n]]:
            return False
    for moment in range(t.i[t.moment_at + moments + other], t.i[t.moment_at + moments + other + 1]):
        less = False
        for own in range(t.i[t.moment_at + moments + rank], t.i[t.moment_at + moments + rank + 1]):
            less = less or as_much_in_flight(t, stage_at, stages, own, moment)
        if not less:
            return False
    return True


@kernel
def as_much_in_flight(t, stage_at, stages, moment, other):
    """Whether two moments are passes of the same kind, the first with no less in flight of any stage."""
    signature = t.i[t.stage_signature + stage_at + t.i[t.moment_stage + moment]]
    same = signature == t.i[t.stage_signature + stage_at + t.i[t.moment_stage + other]]
    same = same and t.i[t.moment_forward + moment] == t.i[t.moment_forward + other]
    own, its = t.i[t.in_flight_at + moment], t.i[t.in_flight_at + other]
    for n in range(stages):
        same = same and t.f[t.in_flight + own + n] >= t.f[t.in_flight + its + n]
    return same


@kernel
def same_peaks(plans, at, other):
    """Whether micro-batches of two plans hold the same."""
    same = plans.i[plans.moments + at] == plans.i[plans.moments + other]
    same = same and plans.i[plans.partition + at] == plans.i[plans.partition + other]
    same = same and plans.f[plans.made + at] == plans.f[plans.made + other]
    same = same and plans.i[plans.rounds + at] == plans.i[plans.rounds + other]
    return same and plans.i[plans.peaks + at] == plans.i[plans.peaks + other]
