"""Seconds of a step: one loop over slots, for one plan and for a million. Kernels, as in `timeline.segments`.

Everything that a plan's time depends on lies in tables (`timeline.tables`): figures of layers by kind, of stages by
signature, of weight traffic, and orders of slots by schedule. A plan is a row of places in them. Plans whose slots are
the same ones in the same order run side by side, in lanes: what they have in common is looked up once, and a processor
adds several numbers at a time. One plan alone is one lane.

A slot starts when its rank is free and what it receives has arrived. In it, host and device meet segment by segment.
Messages for weights are a queue of seconds that the rank's work and waiting drain. What waits for what is said in
docs/timeline.md; the simulation finds the same out by playing.
"""
# Tables are lists or arrays, and compilers infer types: annotations would have to lie.
# pyright: basic

from foretell.compiling import kernel, unsigned_index, whole_zeros, zeros
from foretell.timeline.exposed_reduce import exposed_reduce_seconds
from foretell.timeline.lookups import has_streams, rank_sum
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

LANES = 32
"""Plans that run side by side at most."""


# One plan, and many. ---------------------------------------------------------------------------------


@kernel
def step_seconds(t, plans, at):
    """Seconds of a step, the rank that ends last, and how long its device waited for the host, and for weights."""
    rows, lane_of = whole_zeros(1), whole_zeros(1)
    rows[0] = at
    end, shorter, started = run_step(t, plans, rows, 1)
    rounds = plans.i[plans.rounds + at]
    free, late, exposed = (
        after_rounds(end[0], shorter[0], 0, 1, rounds),
        after_rounds(end[1], shorter[1], 0, 1, rounds),
        after_rounds(end[2], shorter[2], 0, 1, rounds),
    )
    left = exposed_reduce_seconds(t, plans, at, rows, lane_of, started, 1)
    found, worst = finished(t, plans, at, free, left)
    return found, worst, late[worst], exposed[worst] + left[worst]


@kernel
def evaluate(t, plans, first, stop, seconds):
    """Step time of some plans; those that can run side by side should lie next to each other."""
    rows, lane_of = whole_zeros(LANES), whole_zeros(stop - first)
    at = first
    while at < stop:
        after, lanes = side_by_side(t, plans, at, stop, rows, lane_of)
        evaluate_together(t, plans, at, after, rows[:lanes], lane_of, seconds)
        at = after


@kernel
def evaluate_together(t, plans, at, after, rows, lane_of, seconds):
    """Step time of plans that run side by side, from one to before another; `rows` are those of the lanes."""
    lanes = len(rows)
    end, shorter, started = run_step(t, plans, rows, lanes)
    epilogues, count = whole_zeros(after - at), 0  # plans whose steps do not end as that of the plan before
    for row in range(at, after):
        if row == at or lane_of[row - at] != lane_of[row - 1 - at] or not same_epilogue(plans, row, row - 1):
            epilogues[count] = row
            count += 1
    left = exposed_reduce_seconds(t, plans, at, epilogues[:count], lane_of, started, lanes)
    ranks = t.i[t.order_ranks + plans.i[plans.order + at]]
    for n in range(count):
        row = epilogues[n]
        free = after_rounds(end[0], shorter[0], lane_of[row - at], lanes, plans.i[plans.rounds + row])
        found = finished(t, plans, row, free, left[n * ranks : (n + 1) * ranks])[0]
        for alike in range(row, epilogues[n + 1] if n + 1 < count else after):
            seconds[alike] = found


@kernel
def after_rounds(end, shorter, lane, lanes, rounds):
    """Of each rank a figure after all rounds of micro-batches: each adds what the last one that was played did."""
    found = zeros(len(end) // lanes)
    for r in range(len(found)):
        last = end[r * lanes + lane]
        found[r] = last + (last - shorter[r * lanes + lane]) * rounds
    return found


@kernel
def finished(t, plans, at, free, left):
    """When the last rank is done with its reductions, tied ones included, and with the end of its step; which it is."""
    base = t.i[t.traffic_at + plans.i[plans.traffic + at]]
    meet = 0.0
    for r in range(len(free)):
        if rank_sum(t, plans, at, r, t.tied, base):
            meet = max(meet, free[r] + left[r])
    found, worst = -1.0, 0
    for r in range(len(free)):
        start = meet if rank_sum(t, plans, at, r, t.tied, base) else free[r] + left[r]
        over = start + rank_sum(t, plans, at, r, t.finish, base)
        if over > found:
            found, worst = over, r
    return found, worst


# Which plans run side by side. -----------------------------------------------------------------------


@kernel
def side_by_side(t, plans, at, stop, rows, lane_of):
    """Where the plans after one end that run side by side with it, and how many lanes these are.

    `rows` become the plans that stand for all whose slots take as long, `lane_of` which of these each plan has. Where
    weights travel in every micro-batch, slots take as long only where these do too.
    """
    after, lanes = at + 1, 1
    rows[0], lane_of[0] = at, 0
    alone = t.i[t.traffic_inline + plans.i[plans.traffic + at]] > 0
    while after < stop and same_slots(plans, after, at):
        same = same_slot_times(plans, after, after - 1)
        if alone:
            if not same or not same_epilogue(plans, after, after - 1):
                break
        elif t.i[t.traffic_inline + plans.i[plans.traffic + after]]:
            break
        elif not same:
            if lanes == len(rows):
                break
            rows[lanes] = after
            lanes += 1
        lane_of[after - at] = lanes - 1
        after += 1
    return after, lanes


@kernel
def same_slots(plans, at, other):
    """Whether the slots of two plans are the same ones in the same order."""
    same = plans.i[plans.partition + at] == plans.i[plans.partition + other]
    same = same and plans.i[plans.order + at] == plans.i[plans.order + other]
    return same and plans.i[plans.shorter_order + at] == plans.i[plans.shorter_order + other]


@kernel
def same_slot_times(plans, at, other):
    """Whether the slots of two plans that can run side by side take equally long."""
    same = plans.i[plans.program + at] == plans.i[plans.program + other]
    same = same and plans.i[plans.sends + at] == plans.i[plans.sends + other]
    return same and plans.i[plans.launch_profile + at] == plans.i[plans.launch_profile + other]


@kernel
def same_epilogue(plans, at, other):
    """Whether two plans whose slots take equally long have as many of them, and the same to do for weights."""
    same = plans.i[plans.rounds + at] == plans.i[plans.rounds + other]
    same = same and plans.i[plans.traffic + at] == plans.i[plans.traffic + other]
    return same and plans.f[plans.overlap + at] == plans.f[plans.overlap + other]


# A step: slot by slot. -------------------------------------------------------------------------------


@kernel
def run_step(t, plans, rows, lanes):
    """All slots of a step of some plans side by side: rank r of lane p is at r * lanes + p, and so on.

    When each rank is free, how long its device waited for its host, and for weights; the same of a step that is a round
    of micro-batches shorter; and how the last slots began. What both steps begin with is run once.
    """
    at = rows[0]
    order, before = plans.i[plans.order + at], plans.i[plans.shorter_order + at]
    costs, segments = lane_costs(t, plans, rows, lanes), streamed_segments(t, plans, at)
    state = at_rest(t, order, before, lanes)
    started = zeros(3 * (t.i[t.tail_at + order + 1] - t.i[t.tail_at + order]) * lanes)
    first, stop = t.i[t.order_at + order], t.i[t.order_at + order + 1]
    apart = first + (t.i[t.order_shared + before] if before >= 0 else 0)
    run_slots(t, plans, at, lanes, first, apart, costs, segments, state, started, True)
    shorter = copy_state(state)
    run_slots(t, plans, at, lanes, apart, stop, costs, segments, state, started, True)
    if before >= 0:
        first, stop = t.i[t.order_at + before], t.i[t.order_at + before + 1]
        run_slots(t, plans, at, lanes, first, stop, costs, segments, shorter, started, False)
    if has_streams(t, plans, at):
        wait_for_streams(state)
        wait_for_streams(shorter)
    return (state[0], state[2], state[3]), (shorter[0], shorter[2], shorter[3]), started


@kernel
def at_rest(t, order, before, lanes):
    """How ranks stand before a step, and what is on its way to them."""
    ranks, places = t.i[t.order_ranks + order], t.i[t.order_places + order]
    if before >= 0:
        places = max(places, t.i[t.order_places + before])
    free, host, late, exposed = zeros(ranks * lanes), zeros(ranks * lanes), zeros(ranks * lanes), zeros(ranks * lanes)
    queue, issued, once = zeros(ranks), zeros(ranks), zeros(ranks)  # who has these runs alone
    link = zeros(2 * ranks * lanes)  # when each link is free: forward, back
    return free, host, late, exposed, link, zeros(places * lanes), queue, issued, once


@kernel
def copy_state(state):
    """The same once more."""
    free, host, late, exposed, link, arrived, queue, issued, once = state
    free, host, late, exposed = copy_array(free), copy_array(host), copy_array(late), copy_array(exposed)
    link, arrived = copy_array(link), copy_array(arrived)
    return free, host, late, exposed, link, arrived, copy_array(queue), copy_array(issued), copy_array(once)


@kernel
def copy_array(values):
    """The same values once more."""
    found = zeros(len(values))
    for n in range(len(values)):
        found[n] = values[n]
    return found


@kernel
def wait_for_streams(state):
    """Ranks wait until all messages for weights are gone."""
    free, exposed, queue, once = state[0], state[3], state[6], state[8]
    for r in range(len(free)):
        exposed[r] += queue[r] + once[r]
        free[r] += queue[r] + once[r]


@kernel
def lane_costs(t, plans, rows, lanes):
    """Of some plans of one partition side by side: the device's and the host's seconds of each segment, and those of
    sending and of requests. And where the segments of a stage signature and a kind of slot begin and end."""
    partition = plans.i[plans.partition + rows[0]]
    signatures = t.i[t.partition_at + partition + 1] - t.i[t.partition_at + partition]
    low, high = whole_zeros(signatures * PLACES), whole_zeros(signatures * PLACES)
    if has_streams(t, plans, rows[0]):  # then segments are run one by one, with what travels beside them
        device, launch = zeros(0), zeros(0)
    else:
        most = segments_at_most(t, partition, 4)
        device, launch = zeros(most * lanes), zeros(most * lanes)
        for p in range(lanes):
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
    sent = lane_sends(t, plans, rows, lanes, t.send_forward, t.send_back)
    requested = lane_sends(t, plans, rows, lanes, t.request_forward, t.request_back)
    return device, launch, low, high, sent, requested


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
def run_slots(t, plans, at, lanes, first, stop, costs, segments, state, started, noted):
    """Some slots of an order, from how ranks stand before them to how they stand after.

    `noted`: how the last slots of ranks begin is written down.
    """
    device, launch, low, high, sent, requested = costs
    free, host, late, _, link, arrived, _, _, _ = state
    partition = plans.i[plans.partition + at]
    stage_at, whole = t.i[t.stage_at + partition], t.i[t.partition_at + partition]
    streams, overlap = has_streams(t, plans, at), plans.f[plans.overlap + at]
    prefetch = t.i[t.prefetch + plans.i[plans.launch_profile + at]]
    marks = zeros(len(segments[0]) // SEGMENT if streams else 0)
    every, idle, recorded = unsigned_index(lanes), zeros(lanes), 0
    for n in range(first, stop):
        kind, r = t.i[t.slot_kind + n], t.i[t.slot_rank + n]
        signature = t.i[t.stage_signature + stage_at + t.i[t.slot_stage + n]]
        place, rank = signature * PLACES + kind, unsigned_index(r * lanes)
        back = 0 if kind == F else 1
        receives = t.i[t.receives_back + whole + signature] if back else t.i[t.receives_forward + whole + signature]
        ends = noted and not streams and t.i[t.slot_tail + n]
        if receives and kind != W:
            source = unsigned_index(t.i[t.slot_takes + n] * lanes)
            request = unsigned_index((2 * signature + back) * lanes)
            wait_for_input(arrived, source, requested, request, free, host, rank, idle, every)
        elif ends or streams:
            for p in range(lanes):
                idle[p] = 0.0
        if ends:
            note_start(started, unsigned_index(recorded), idle, free, host, rank, every)
            recorded += 3 * lanes
        if streams:
            if t.i[t.slot_last + n]:
                place += LAST
            run_streamed(segments, place, prefetch, overlap, idle[0], r, state, marks)
        else:
            run_segments(free, host, late, rank, device, launch, low[place], high[place], every)
        if kind != W:
            send, to = unsigned_index((2 * signature + back) * lanes), unsigned_index(t.i[t.slot_puts + n] * lanes)
            if sent[send]:  # one partition: all lanes send, or none
                send_output(free, rank, link, unsigned_index((2 * r + back) * lanes), sent, send, arrived, to, every)
            else:
                for p in range(every):
                    arrived[to + p] = free[rank + p]


@kernel
def wait_for_input(arrived, source, requested, request, free, host, rank, idle, lanes):
    """A rank waits for what a slot receives, and no less than it takes to request it."""
    for p in range(lanes):
        wait = arrived[source + p] - free[rank + p]
        wait = wait if wait > requested[request + p] else requested[request + p]
        idle[p] = wait
        now = free[rank + p] + wait
        free[rank + p] = now
        host[rank + p] = host[rank + p] if host[rank + p] > now else now


@kernel
def note_start(started, to, idle, free, host, rank, lanes):
    """How a slot begins is written down."""
    for p in range(lanes):
        started[to + p] = idle[p]
        started[to + lanes + p] = free[rank + p]
        started[to + lanes + lanes + p] = host[rank + p]


@kernel
def run_segments(free, host, late, rank, device, launch, low, high, lanes):
    """The segments of a slot: the device starts nothing that its host has not launched."""
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
def send_output(free, rank, link, way, sent, send, arrived, to, lanes):
    """What a slot made leaves when its link is free."""
    for p in range(lanes):
        begun = link[way + p] if link[way + p] > free[rank + p] else free[rank + p]
        over = begun + sent[send + p]
        link[way + p] = over
        arrived[to + p] = over


# Weights that travel in every micro-batch. -----------------------------------------------------------


@kernel
def streamed_segments(t, plans, at):
    """The segments of a plan with what travels beside them; none where nothing does in every micro-batch."""
    if has_streams(t, plans, at):
        return all_segments(t, plans, at)
    return zeros(0), whole_zeros(0), whole_zeros(0)


@kernel
def run_streamed(segments, place, prefetch, overlap, idle, r, state, marks):
    """The segments of a slot of a rank that waited so long for its input, with messages for weights beside them.

    Weights are gathered some segments ahead; `marks` is room for all that was issued with each gather of the slot.
    """
    figures, begin, end = segments
    low, high = begin[place], end[place]
    frees, hosts, lates, exposures, _, _, queues, all_issued, onces = state
    free, host, late, exposed = frees[r], hosts[r], lates[r], exposures[r]
    queue, issued, once = queues[r], all_issued[r], onces[r]
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
    frees[r], hosts[r], lates[r], exposures[r] = free, host, late, exposed
    queues[r], all_issued[r], onces[r] = queue, issued, once
