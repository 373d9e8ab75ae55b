"""The most bytes that ranks hold at once, by the order of their slots. Kernels, as in `timeline.segments`."""
# Tables are lists or arrays, and compilers infer types: annotations would have to lie.
# pyright: basic

from foretell.compiling import kernel, whole_zeros, zeros
from foretell.timeline.lookups import rank_sum

WEIGHTS, GRADIENTS, STATES, COPIES, WORKSPACE, ACTIVATIONS, WORKING, NEW_GRADIENTS, CACHED, STREAMS, UPDATE = range(11)
"""What a rank's bytes are for, as places in a row of parts; `PARTS` are their names."""

PARTS = (
    "weights",
    "gradients",
    "states",
    "trainer's copies",
    "workspace",
    "activations",
    "working",
    "new gradients",
    "cached gradients",
    "held by streams",
    "update's copies",
)


@kernel
def moment_bytes(t, plans, at, rank, moment, parts):
    """Bytes in tensors of a rank at a moment of its order, or in the update of weights (-1); what they are for is
    written to `parts`."""
    persistent, there, parameters = persistent_bytes(t, plans, at, rank)
    base = t.i[t.traffic_at + plans.i[plans.traffic + at]]
    parts[WEIGHTS] = rank_sum(t, plans, at, rank, t.weights, base)
    parts[STATES] = rank_sum(t, plans, at, rank, t.states, base)
    parts[COPIES] = plans.f[plans.copies + at] * parameters
    parts[WORKSPACE] = plans.f[plans.workspace + at]
    if moment < 0:
        parts[GRADIENTS] = rank_sum(t, plans, at, rank, t.gradients, base)
        parts[UPDATE] = plans.f[plans.gathered + at] * parameters
        return persistent + parts[UPDATE]
    parts[GRADIENTS] = 0.0 if makes_gradients(t, plans, at) else rank_sum(t, plans, at, rank, t.gradients, base)
    sizes = zeros(3)
    activation_bytes(t, plans, at, rank, moment, moment + 1, sizes)
    fresh = plans.f[plans.fresh + at] * parameters
    parts[ACTIVATIONS], parts[WORKING] = sizes[0], sizes[1]
    busy = sizes[0] + sizes[1]
    if sizes[2] + fresh > busy and not t.i[t.moment_forward + moment]:  # all are there when its activations are gone
        parts[ACTIVATIONS], parts[WORKING], parts[NEW_GRADIENTS] = sizes[2], 0.0, fresh
        busy = sizes[2] + fresh
    parts[CACHED] = plans.f[plans.cached + at] * parameters
    working = there + busy + parts[CACHED]
    parts[STREAMS] = held_by_streams(plans.f[plans.streams + at], plans.f[plans.limit + at], working)
    return working + parts[STREAMS]


@kernel
def persistent_bytes(t, plans, at, rank):
    """Bytes of a rank that are there for the whole step, those of them that are there in its slots (gradients may be
    made in the backward pass), and the parameters that it trains."""
    base = t.i[t.traffic_at + plans.i[plans.traffic + at]]
    parameters = rank_sum(t, plans, at, rank, t.trained, base)
    persistent = rank_sum(t, plans, at, rank, t.persistent, base) + plans.f[plans.copies + at] * parameters
    persistent += plans.f[plans.workspace + at]
    there = persistent
    if makes_gradients(t, plans, at):
        there = persistent - rank_sum(t, plans, at, rank, t.gradients, base)
    return persistent, there, parameters


@kernel
def activation_bytes(t, plans, at, rank, first, stop, sizes):
    """Bytes of micro-batches at some moments of a rank, three numbers each: their activations, what the pass works with
    beside them, and activations of the other micro-batches alone, when those of a backward pass are gone."""
    place = t.i[t.rank_at + plans.i[plans.order + at]] + rank
    held_at, chunks = t.i[t.held_at + place], t.i[t.held_at + place + 1] - t.i[t.held_at + place]
    stage_at, peaks_at = t.i[t.stage_at + plans.i[plans.partition + at]], plans.i[plans.peaks + at]
    back = t.making_peak if makes_gradients(t, plans, at) else t.backward_peak
    for moment in range(first, stop):
        held = 0.0
        for chunk in range(chunks):
            kept = t.f[t.kept + peaks_at + t.i[t.stage_signature + stage_at + t.i[t.held + held_at + chunk]]]
            held += t.f[t.in_flight + t.i[t.in_flight_at + moment] + chunk] * kept
        signature = peaks_at + t.i[t.stage_signature + stage_at + t.i[t.moment_stage + moment]]
        kept, forward = t.f[t.kept + signature], t.i[t.moment_forward + moment]
        peak = t.f[(t.forward_peak if forward else back) + signature]
        n = 3 * (moment - first)
        sizes[n] = held + kept if forward else held
        sizes[n + 1] = max(0.0, peak - kept)
        sizes[n + 2] = held if forward else held - kept


@kernel
def held_by_streams(streams, limit, working):
    """Buffers that communication streams have not given back; nothing beyond what the device has room for."""
    return min(streams, max(0.0, limit - working))


@kernel
def rank_peaks(t, plans, at, rank):
    """The most bytes of micro-batches that a rank has at once, and in which moment of its order (-1: it has none).

    Then the same without the activations of the backward pass that is going on: its new gradients come to these.
    """
    moments = plans.i[plans.moments + at] + rank
    first, stop = t.i[t.moment_at + moments], t.i[t.moment_at + moments + 1]
    sizes = zeros(3 * (stop - first))
    activation_bytes(t, plans, at, rank, first, stop, sizes)
    most, when, others, then = 0.0, -1, 0.0, -1
    for n in range(stop - first):
        busy = sizes[3 * n] + sizes[3 * n + 1]
        if busy > most or when < 0:
            most, when = busy, first + n
        if not t.i[t.moment_forward + first + n] and (sizes[3 * n + 2] > others or then < 0):
            others, then = sizes[3 * n + 2], first + n
    return most, when, others, then


@kernel
def rank_bytes(t, plans, at, rank, peaks):
    """The most bytes in tensors that a rank has at once, and in which moment of its order; -1: in the update."""
    persistent, there, parameters = persistent_bytes(t, plans, at, rank)
    busy, when, others, then = peaks
    fresh = others + plans.f[plans.fresh + at] * parameters  # all are there when the pass's own activations are gone
    if then >= 0 and fresh > busy:
        busy, when = fresh, then
    working = there + busy + plans.f[plans.cached + at] * parameters
    working += held_by_streams(plans.f[plans.streams + at], plans.f[plans.limit + at], working)
    update = persistent + plans.f[plans.gathered + at] * parameters
    return (update, -1) if update > working else (working, when)


@kernel
def makes_gradients(t, plans, at):
    """Whether gradients of weights are made in the backward pass, and do not rest."""
    return plans.f[plans.made + at] > 0 and one_each(t, plans, at)


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
