"""What ranks have still to wait for after their last slots, of gradients that are reduced once a step.

Kernels, as in `timeline.segments`. Nothing waits for these messages before the end of a step, so slots take as long
whatever they are: how the last slots of ranks began is enough to tell what of the messages ran beside them.
"""
# Tables are lists or arrays, and compilers infer types: annotations would have to lie.
# pyright: basic

from foretell.compiling import kernel, unsigned_index, whole_zeros, zeros
from foretell.timeline.lookups import has_streams, rank_sum
from foretell.timeline.segments import (
    DEVICE,
    HOST,
    LAST,
    ONCE,
    PLACES,
    ROOM,
    SEGMENT,
    segments_at_most,
    slot_segments,
)

LANES = 32
"""Plans that are drained side by side at most."""


@kernel
def exposed_reduce_seconds(t, plans, at, epilogues, lane_of, started, lanes):
    """For each of some plans, one after the other, and each rank: seconds that are left after its slots.

    The plans ran side by side with the one `at`, in so many lanes, and have the lanes `lane_of`; `started` is how their
    last slots began. Those whose segments are alike are drained side by side.
    """
    ranks = t.i[t.order_ranks + plans.i[plans.order + at]]
    found, rows, places = zeros(len(epilogues) * ranks), whole_zeros(LANES), whole_zeros(LANES)
    done = whole_zeros(len(epilogues))
    for first in range(len(epilogues)):
        row = epilogues[first]
        if done[first] or has_streams(t, plans, row):  # a queue that runs along has them in it
            continue
        if not plans.f[plans.overlap + row]:
            base = t.i[t.traffic_at + plans.i[plans.traffic + row]]
            for r in range(ranks):
                found[first * ranks + r] = rank_sum(t, plans, row, r, t.once_all, base)
            continue
        count = 0
        for n in range(first, len(epilogues)):
            if count < LANES and not done[n] and same_segments(t, plans, row, epilogues[n]):
                rows[count], places[count], done[n] = epilogues[n], n, 1
                count += 1
        left = drained(t, plans, at, rows[:count], lane_of, started, lanes)
        for q in range(count):
            for r in range(ranks):
                found[places[q] * ranks + r] = left[r * count + q]
    return found


@kernel
def same_segments(t, plans, at, other):
    """Whether the slots of two plans of one partition have the same segments, each of its own length."""
    partition, traffic, its = (
        plans.i[plans.partition + at],
        plans.i[plans.traffic + at],
        plans.i[plans.traffic + other],
    )
    same = plans.f[plans.overlap + other] > 0.0
    if traffic == its:
        return same
    own, there = t.i[t.traffic_at + traffic], t.i[t.traffic_at + its]
    for signature in range(t.i[t.partition_at + partition + 1] - t.i[t.partition_at + partition]):
        same = same and (t.i[t.has_traffic + own + signature] > 0) == (t.i[t.has_traffic + there + signature] > 0)
        same = same and (t.f[t.once_all + own + signature] > 0.0) == (t.f[t.once_all + there + signature] > 0.0)
    return same


@kernel
def drained(t, plans, at, rows, lane_of, started, lanes):
    """Seconds that are left of each rank, of some plans side by side: rank r of the q-th is at r * plans + q."""
    count, order, partition = len(rows), plans.i[plans.order + at], plans.i[plans.partition + at]
    stage_at = t.i[t.stage_at + partition]
    left = zeros(t.i[t.order_ranks + order] * count)
    signatures = t.i[t.partition_at + partition + 1] - t.i[t.partition_at + partition]
    segments = zeros(SEGMENT * segments_at_most(t, partition, 4))
    begin, end = whole_zeros(signatures * PLACES), whole_zeros(signatures * PLACES)
    size = tail_segments(t, plans, rows[0], order, segments, begin, end) // SEGMENT * count
    device, launch, room, added = zeros(size), zeros(size), zeros(size), zeros(size)
    overlap = zeros(count)
    for q in range(count):
        made = tail_segments(t, plans, rows[q], order, segments, begin, end)
        overlap[q] = plans.f[plans.overlap + rows[q]]
        for n in range(made // SEGMENT):
            device[n * count + q] = segments[n * SEGMENT + DEVICE]
            launch[n * count + q] = segments[n * SEGMENT + HOST]
            room[n * count + q] = segments[n * SEGMENT + ROOM]
            added[n * count + q] = segments[n * SEGMENT + ONCE]
    idle, free, host = zeros(count), zeros(count), zeros(count)
    every, first = unsigned_index(count), t.i[t.tail_at + order]
    for n in range(first, t.i[t.tail_at + order + 1]):
        slot = t.i[t.tail_slot + n]
        place = t.i[t.stage_signature + stage_at + t.i[t.slot_stage + slot]] * PLACES + t.i[t.slot_kind + slot]
        if t.i[t.slot_last + slot]:
            place += LAST
        for q in range(count):
            noted = 3 * (n - first) * lanes + lane_of[rows[q] - at]
            idle[q], free[q], host[q] = started[noted], started[noted + lanes], started[noted + 2 * lanes]
        rank = unsigned_index(t.i[t.slot_rank + slot] * count)
        drain_idle(left, rank, idle, every)
        for segment in range(begin[place] // SEGMENT, end[place] // SEGMENT):
            host_gap(free, host, device, launch, unsigned_index(segment * count), idle, every)
            drain_busy(left, rank, overlap, room, added, unsigned_index(segment * count), idle, every)
    return left


@kernel
def tail_segments(t, plans, at, order, segments, begin, end):
    """The segments of the last slots of ranks alone, as in `all_segments`; how many figures these are."""
    stage_at = t.i[t.stage_at + plans.i[plans.partition + at]]
    traffic = t.i[t.traffic_at + plans.i[plans.traffic + at]]
    for place in range(len(begin)):
        begin[place], end[place] = 0, 0
    n = 0
    for tail in range(t.i[t.tail_at + order], t.i[t.tail_at + order + 1]):
        slot = t.i[t.tail_slot + tail]
        signature, kind = t.i[t.stage_signature + stage_at + t.i[t.slot_stage + slot]], t.i[t.slot_kind + slot]
        place = signature * PLACES + kind + (LAST if t.i[t.slot_last + slot] else 0)
        if end[place] == begin[place]:
            begin[place] = n
            last = t.i[t.slot_last + slot] > 0 and t.f[t.once_all + traffic + signature] > 0.0
            n = slot_segments(t, plans, at, signature, kind, segments, n, last)
            end[place] = n
    return n


@kernel
def drain_idle(left, rank, idle, lanes):
    """Messages travel while a rank waits."""
    for q in range(lanes):
        once = left[rank + q] - idle[q]
        left[rank + q] = once if once > 0.0 else 0.0


@kernel
def host_gap(free, host, device, launch, segment, gap, lanes):
    """Host and device run a segment; how long the device waits for the host."""
    for q in range(lanes):
        ready = host[q] + launch[segment + q]
        done = free[q] + device[segment + q]
        wait = ready - done
        wait = wait if wait > 0.0 else 0.0
        host[q] = ready
        gap[q] = wait
        free[q] = done + wait


@kernel
def drain_busy(left, rank, overlap, room, added, segment, gap, lanes):
    """Messages travel beside a segment, and more leave after it."""
    for q in range(lanes):
        once = left[rank + q] - overlap[q] * (room[segment + q] + gap[q])
        left[rank + q] = (once if once > 0.0 else 0.0) + added[segment + q]
