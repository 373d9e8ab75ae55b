"""The loop over slots: how ranks stand after all slots of a step. Kernels, as in `timeline.segments`.

Plans whose slots are the same ones in the same order run side by side, in lanes: rank r of lane p is at r * lanes + p,
and so on. Plans whose weights travel in every micro-batch run alone, in one lane.
"""
# Tables are lists or arrays, and compilers infer types: annotations would have to lie.
# pyright: basic

from typing import Any, NamedTuple

from foretell.compiling import kernel, unsigned_index, whole_zeros, zeros
from foretell.timeline.lookups import has_streams
from foretell.timeline.segments import (
    DEVICE,
    GATHER,
    HOST,
    LAST,
    ONCE,
    PLACES,
    REDUCE,
    ROOM,
    SEGMENT,
    F,
    W,
    all_segments,
    segments_at_most,
)
from foretell.timeline.slot_order import FIRST, SECOND


class Standing(NamedTuple):
    """How ranks stand, in seconds from the beginning of the step, and what is on its way to them."""

    free: Any  # when the device is
    host: Any  # when its host is
    late: Any  # how long the device has waited for its host
    exposed: Any  # and for weights
    link: Any  # when each link is free: forward, back
    arrived: Any  # when what slots send is there
    queue: Any  # seconds of messages for weights that are under way, of plans that run alone
    issued: Any  # of all of them so far
    once: Any  # of those that come once a step


class SlotCosts(NamedTuple):
    """Seconds of slots: of segments, their devices and hosts by lane, and of what is sent and requested."""

    lanes: int
    device: Any
    launch: Any
    low: Any  # where the segments of a stage signature and a kind of slot begin
    high: Any  # and end
    sent: Any
    requested: Any
    busy: Any  # seconds of each slot's device, where pairs of passes run together
    rows: Any  # and of its rows of experts
    beside: float  # share of a device that these hold beside a pair; 0: they are waited for
    streamed: Any  # segments with what travels beside them, of plans that run alone; where they begin, and end
    prefetch: int
    overlap: float


@kernel
def run_step(t, plans, rows, lanes):
    """All slots of a step of some plans side by side: how ranks stand then, how they stand after a step that is a round
    of micro-batches shorter, and how the last slots began. What both steps begin with is run once.
    """
    at = rows[0]
    order, before = plans.i[plans.order + at], plans.i[plans.shorter_order + at]
    costs, standing = slot_costs(t, plans, rows, lanes), at_rest(t, order, before, lanes)
    started = zeros(3 * (t.i[t.tail_at + order + 1] - t.i[t.tail_at + order]) * lanes)
    first, stop = t.i[t.order_at + order], t.i[t.order_at + order + 1]
    apart = first + (t.i[t.order_shared + before] if before >= 0 else 0)
    run_slots(t, plans, at, first, apart, costs, standing, started)
    shorter = copy_of(standing)
    run_slots(t, plans, at, apart, stop, costs, standing, started)
    if before >= 0:
        run_slots(t, plans, at, t.i[t.order_at + before], t.i[t.order_at + before + 1], costs, shorter, zeros(0))
    if has_streams(t, plans, at):
        wait_for_streams(standing)
        wait_for_streams(shorter)
    return standing, shorter, started


@kernel
def at_rest(t, order, before, lanes):
    """How ranks stand before a step."""
    ranks, places = t.i[t.order_ranks + order], t.i[t.order_places + order]
    if before >= 0:
        places = max(places, t.i[t.order_places + before])
    return Standing(
        zeros(ranks * lanes),
        zeros(ranks * lanes),
        zeros(ranks * lanes),
        zeros(ranks * lanes),
        zeros(2 * ranks * lanes),
        zeros(places * lanes),
        zeros(ranks),
        zeros(ranks),
        zeros(ranks),
    )


@kernel
def copy_of(standing):
    """The same once more."""
    return Standing(
        copy_array(standing.free),
        copy_array(standing.host),
        copy_array(standing.late),
        copy_array(standing.exposed),
        copy_array(standing.link),
        copy_array(standing.arrived),
        copy_array(standing.queue),
        copy_array(standing.issued),
        copy_array(standing.once),
    )


@kernel
def copy_array(values):
    """The same values once more."""
    found = zeros(len(values))
    for n in range(len(values)):
        found[n] = values[n]
    return found


@kernel
def wait_for_streams(standing):
    """Ranks wait until all messages for weights are gone."""
    for r in range(len(standing.free)):
        left = standing.queue[r] + standing.once[r]
        standing.exposed[r] += left
        standing.free[r] += left


# What slots cost. ------------------------------------------------------------------------------------


@kernel
def slot_costs(t, plans, rows, lanes):
    """The costs of the slots of some plans of one partition, side by side."""
    at = rows[0]
    partition, streams = plans.i[plans.partition + at], has_streams(t, plans, at)
    signatures = t.i[t.partition_at + partition + 1] - t.i[t.partition_at + partition]
    low, high = whole_zeros(signatures * PLACES), whole_zeros(signatures * PLACES)
    most = 0 if streams else segments_at_most(t, partition, 4)
    device, launch = zeros(most * lanes), zeros(most * lanes)
    for p in range(0 if streams else lanes):
        segments, begin, end = all_segments(t, plans, rows[p])
        n = 0
        for place in range(signatures * PLACES):
            low[place] = n
            if place % PLACES < LAST:
                for segment in range(begin[place], end[place], SEGMENT):
                    device[n * lanes + p] = segments[segment + DEVICE]
                    launch[n * lanes + p] = segments[segment + HOST]
                    n += 1
            high[place] = n
    beside = t.f[t.beside + plans.i[plans.launch_profile + at]]
    return SlotCosts(
        lanes,
        device,
        launch,
        low,
        high,
        lane_sends(t, plans, rows, lanes, t.send_forward, t.send_back),
        lane_sends(t, plans, rows, lanes, t.request_forward, t.request_back),
        lane_slots(t, plans, rows, lanes, t.device if beside else -1),
        lane_slots(t, plans, rows, lanes, t.rows if beside else -1),
        beside,
        all_segments(t, plans, at) if streams else (zeros(0), whole_zeros(0), whole_zeros(0)),
        t.i[t.prefetch + plans.i[plans.launch_profile + at]],
        plans.f[plans.overlap + at],
    )


@kernel
def lane_sends(t, plans, rows, lanes, forward, back):
    """Seconds of what each stage signature sends or requests, forward and back."""
    partition = plans.i[plans.partition + rows[0]]
    signatures = t.i[t.partition_at + partition + 1] - t.i[t.partition_at + partition]
    found = zeros(2 * signatures * lanes)
    for p in range(lanes):
        sends = plans.i[plans.sends + rows[p]]
        for signature in range(signatures):
            found[2 * signature * lanes + p] = t.f[forward + sends + signature]
            found[(2 * signature + 1) * lanes + p] = t.f[back + sends + signature]
    return found


@kernel
def lane_slots(t, plans, rows, lanes, figure):
    """A figure of layers, summed up over each kind of slot of each stage signature; nothing of -1."""
    partition = plans.i[plans.partition + rows[0]]
    first, stop = t.i[t.partition_at + partition], t.i[t.partition_at + partition + 1]
    found = zeros((stop - first) * PLACES * lanes if figure >= 0 else 0)
    for p in range(lanes if figure >= 0 else 0):
        kinds = t.i[t.program_at + plans.i[plans.program + rows[p]]]
        for whole in range(first, stop):
            for run in range(t.i[t.run_at + whole], t.i[t.run_at + whole + 1]):
                for kind in range(LAST):
                    own = t.f[figure + (kinds + t.i[t.run_kind + run]) * 4 + kind] * t.i[t.run_times + run]
                    found[((whole - first) * PLACES + kind) * lanes + p] += own
    return found


# Slot by slot. ---------------------------------------------------------------------------------------


@kernel
def run_slots(t, plans, at, first, stop, costs, standing, started):
    """Some slots of an order, from how ranks stand before them to how they stand after.

    How the last slots of ranks begin is written down in `started`, if there is room.
    """
    lanes, noted = costs.lanes, len(started) > 0
    partition = plans.i[plans.partition + at]
    stage_at, whole = t.i[t.stage_at + partition], t.i[t.partition_at + partition]
    streams = len(costs.streamed[0]) > 0
    marks = zeros(len(costs.streamed[0]) // SEGMENT)
    every, idle, recorded = unsigned_index(lanes), zeros(lanes), 0
    for n in range(first, stop):
        kind, r = t.i[t.slot_kind + n], t.i[t.slot_rank + n]
        signature = t.i[t.stage_signature + stage_at + t.i[t.slot_stage + n]]
        place, rank = signature * PLACES + kind, unsigned_index(r * lanes)
        pair = t.i[t.slot_pair + n] if costs.beside else 0
        ends, waited = noted and not streams and t.i[t.slot_tail + n], False
        for own in range(n, n if pair == SECOND else n + 1 + pair):  # a pair waits for what either receives
            crossing = crossing_of(t, stage_at, own) * lanes
            if receives(t, whole, stage_at, own):
                taken = unsigned_index(t.i[t.slot_takes + own] * lanes)
                wait_for_input(standing, costs, rank, taken, unsigned_index(crossing), idle, waited, every)
                waited = True
        if not waited and (ends or streams):
            for p in range(lanes):
                idle[p] = 0.0
        if ends:
            note_start(started, unsigned_index(recorded), idle, standing, rank, every)
            recorded += 3 * lanes
        if streams:
            run_streamed(costs, place + LAST if t.i[t.slot_last + n] else place, idle[0], r, standing, marks)
        else:
            run_segments(standing, costs, rank, costs.low[place], costs.high[place], every)
        if pair == SECOND:
            before = t.i[t.stage_signature + stage_at + t.i[t.slot_stage + n - 1]] * PLACES + t.i[t.slot_kind + n - 1]
            run_together(standing, costs, rank, unsigned_index(before * lanes), unsigned_index(place * lanes), every)
        for own in range(n - 1 if pair == SECOND else n, n if pair == FIRST else n + 1):
            if t.i[t.slot_kind + own] != W:
                back = 0 if t.i[t.slot_kind + own] == F else 1
                to, link = unsigned_index(t.i[t.slot_puts + own] * lanes), unsigned_index((2 * r + back) * lanes)
                send_output(
                    standing, costs, rank, unsigned_index(crossing_of(t, stage_at, own) * lanes), link, to, every
                )


@kernel
def crossing_of(t, stage_at, slot):
    """Where the figures are of what a slot sends or receives."""
    signature = t.i[t.stage_signature + stage_at + t.i[t.slot_stage + slot]]
    return 2 * signature + (0 if t.i[t.slot_kind + slot] == F else 1)


@kernel
def receives(t, whole, stage_at, slot):
    """Whether a slot receives anything; `whole` is where the signatures of its partition begin."""
    signature = whole + t.i[t.stage_signature + stage_at + t.i[t.slot_stage + slot]]
    if t.i[t.slot_kind + slot] == F:
        return t.i[t.receives_forward + signature] > 0
    return t.i[t.slot_kind + slot] != W and t.i[t.receives_back + signature] > 0


@kernel
def run_together(standing, costs, rank, one, other, lanes):
    """A forward and a backward that ran one after the other, as if together: rows of experts go beside kernels, from
    which they take a share of the device. Both end when all kernels have run, but not before all messages."""
    free, host, busy, rows = standing.free, standing.host, costs.busy, costs.rows
    for p in range(lanes):
        messages = rows[one + p] + rows[other + p]
        computing = busy[one + p] + busy[other + p] - messages
        hidden = (1.0 - costs.beside) * messages
        hidden = hidden if hidden < computing else computing
        over = free[rank + p] - hidden
        free[rank + p] = over if over > host[rank + p] else host[rank + p]


@kernel
def wait_for_input(standing, costs, rank, source, request, idle, again, lanes):
    """A rank waits for what a slot receives, and no less than it takes to request it; `again`: for a second thing."""
    free, host, arrived, requested = standing.free, standing.host, standing.arrived, costs.requested
    for p in range(lanes):
        wait = arrived[source + p] - free[rank + p]
        wait = wait if wait > requested[request + p] else requested[request + p]
        idle[p] = idle[p] + wait if again else wait
        now = free[rank + p] + wait
        free[rank + p] = now
        host[rank + p] = host[rank + p] if host[rank + p] > now else now


@kernel
def note_start(started, to, idle, standing, rank, lanes):
    """How a slot begins is written down."""
    for p in range(lanes):
        started[to + p] = idle[p]
        started[to + lanes + p] = standing.free[rank + p]
        started[to + lanes + lanes + p] = standing.host[rank + p]


@kernel
def run_segments(standing, costs, rank, low, high, lanes):
    """The segments of a slot: the device starts nothing that its host has not launched."""
    free, host, late, device, launch = standing.free, standing.host, standing.late, costs.device, costs.launch
    for segment in range(low, high):
        at = unsigned_index(segment) * lanes
        for p in range(lanes):
            ready = host[rank + p] + launch[at + p]
            done = free[rank + p] + device[at + p]
            gap = ready - done
            gap = gap if gap > 0.0 else 0.0
            host[rank + p] = ready
            free[rank + p] = done + gap
            late[rank + p] += gap


@kernel
def send_output(standing, costs, rank, send, way, to, lanes):
    """What a slot made leaves when its link is free; between stages of one rank it is there at once."""
    free, link, arrived, sent = standing.free, standing.link, standing.arrived, costs.sent
    if sent[send]:  # one partition: all lanes send, or none
        for p in range(lanes):
            begun = link[way + p] if link[way + p] > free[rank + p] else free[rank + p]
            over = begun + sent[send + p]
            link[way + p] = over
            arrived[to + p] = over
    else:
        for p in range(lanes):
            arrived[to + p] = free[rank + p]


@kernel
def run_streamed(costs, place, idle, r, standing, marks):
    """The segments of a slot of a rank that waited so long for its input, with messages for weights beside them.

    Weights are gathered some segments ahead; `marks` is room for all that was issued with each gather of the slot.
    """
    figures, begin, end = costs.streamed
    low, high, prefetch, overlap = begin[place], end[place], costs.prefetch, costs.overlap
    free, host, late, exposed = standing.free[r], standing.host[r], standing.late[r], standing.exposed[r]
    queue, issued, once = standing.queue[r], standing.issued[r], standing.once[r]
    ahead, marked, met = low, 0, 0  # the next segment whose gather is not issued, gathers that are, and those met
    while ahead < high and marked < prefetch:
        if figures[ahead + GATHER]:
            queue += figures[ahead + GATHER]
            issued += figures[ahead + GATHER]
            marks[marked] = issued
            marked += 1
        ahead += SEGMENT
    left = queue - idle
    queue = max(left, 0.0)
    once = max(once + (left - queue), 0.0)
    for n in range(low, high, SEGMENT):
        if figures[n + GATHER]:
            while ahead < high and marked < met + prefetch + 1:
                if figures[ahead + GATHER]:
                    queue += figures[ahead + GATHER]
                    issued += figures[ahead + GATHER]
                    marks[marked] = issued
                    marked += 1
                ahead += SEGMENT
            behind = issued - marks[met]
            wait = max(queue - behind, 0.0)
            queue -= wait
            free += wait
            exposed += wait
            met += 1
        host += figures[n + HOST]
        done = free + figures[n + DEVICE]
        gap = max(host - done, 0.0)
        free = done + gap
        late += gap
        left = queue - overlap * (figures[n + ROOM] + gap)
        queue = max(left, 0.0)
        once = max(once + (left - queue), 0.0)
        queue += figures[n + REDUCE]
        issued += figures[n + REDUCE]
        once += figures[n + ONCE]
    standing.free[r], standing.host[r], standing.late[r], standing.exposed[r] = free, host, late, exposed
    standing.queue[r], standing.issued[r], standing.once[r] = queue, issued, once
