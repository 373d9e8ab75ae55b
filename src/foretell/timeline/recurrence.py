"""Step time and memory of plans, as loops over numbers: the same lines for one plan and for a million.

Everything that a plan's time and memory depend on lies in tables (`timeline.tables`): figures of layers by kind, of
stages by shape, of weights by how they are cared for, and orders of slots by schedule. A plan is a row of places in
them. The functions here use nothing but floats, ints and indexing, so Python runs them on lists as they are, and a
compiler on arrays (`timeline.compiling`): both take the same steps in the same order and give the same digits.

A slot starts when its rank is free and what it receives has arrived. In it, host and device meet turn by turn, and
messages for weights are a queue of seconds that the rank's work and waiting drain. What waits for what is said in
docs/timeline.md; the simulation finds the same out by playing.
"""
# Tables are lists or arrays, and compilers infer types: annotations would have to lie.
# pyright: basic

from foretell.timeline.compiling import kernel, natural, whole_zeros, zeros

F, B, I, W = 0, 1, 2, 3  # noqa: E741
"""Kinds of slots, as numbers."""

TURN = 6
"""Figures of a turn: seconds of the device and the host, room for messages, and gathers, sums and sums once a step."""


# Turns: what a slot does, one body after the other. --------------------------------------------------


@kernel
def host_seconds(t, manner, launches, layers, again):
    """Seconds of the host for a stage and micro-batch, forward and backward, by the trainer's constants."""
    by_layer = t.f[t.host_layer + manner] * layers
    if again:
        by_layer = by_layer * t.f[t.host_again + manner]
    grown = (t.f[t.host_launch + manner] * launches + by_layer) * t.f[t.host_growth + manner]
    return max(grown + t.f[t.host_microbatch + manner], layers * t.f[t.host_floor + manner])


@kernel
def add_turn(turns, n, device, host, room, gather, sums, once):
    """Write down a turn; where the next one begins."""
    turns[n] = device
    turns[n + 1] = host
    turns[n + 2] = room
    turns[n + 3] = gather
    turns[n + 4] = sums
    turns[n + 5] = once
    return n + TURN


@kernel
def slot_turns(t, plans, at, shape, kind, turns, n, last):
    """The turns of a kind of slot of a shape, equal ones in a row as one where nothing travels for weights.

    `last`: the slot is the step's last of its stage, after whose turns sums that come once a step may leave.
    """
    cut, care, manner, share = (
        plans.i[plans.cut + at],
        plans.i[plans.care + at],
        plans.i[plans.manner + at],
        plans.f[plans.share + at],
    )
    whole = t.i[t.cut_at + cut] + shape
    row = t.i[t.care_at + care] + shape
    first, end = t.i[t.span_at + whole], t.i[t.span_at + whole + 1]
    kinds = t.i[t.local_at + plans.i[plans.local + at]]
    launches, again = 0.0, False
    for span in range(first, end):
        cell = (kinds + t.i[t.span_kind + span]) * 4
        launches += t.i[t.span_times + span] * (t.f[t.launches + cell + F] + t.f[t.launches + cell + B])
        again = again or t.i[t.again + kinds + t.i[t.span_kind + span]] > 0
    layers = t.i[t.layers + whole]
    host = host_seconds(t, manner, launches, layers, again)
    fixed = t.f[t.device_layer + manner] * layers
    forward, late = kind == F, kind in (B, W)
    one_by_one = last or t.i[t.cared + row]
    begun = n
    turn = t.i[t.care_turn_at + row]  # of the sums that leave after each turn
    # before the first layer: weights of no layer come
    gather = t.f[t.enter_forward + row] if forward else t.f[t.enter_back + row] if kind != W else 0.0
    copied = t.f[t.enter_copy + row] if forward else 0.0
    if one_by_one:
        if share:
            once = t.f[t.once + turn] if last else 0.0
            n = add_turn(turns, n, copied, 0.0, copied, gather, t.f[t.buckets + turn] if late else 0.0, once)
        else:
            n = add_turn(turns, n, copied + gather, 0.0, copied + gather, 0.0, 0.0, 0.0)
    turn += 1
    for number in range(end - first):
        span = first + number if forward else end - 1 - number
        cell = (kinds + t.i[t.span_kind + span]) * 4 + kind
        part = t.f[t.launches + cell] / launches if launches else 0.0
        device = t.f[t.device + cell] + fixed * part
        taken = 0.0  # while a message on the same level is waited for, those for weights stand still
        for level in range(t.levels):
            if t.i[t.taken + care * t.levels + level]:
                taken = max(taken, t.f[t.waits + cell * t.levels + level])
        times = t.i[t.span_times + span]
        if not one_by_one:
            n = add_turn(turns, n, device * times, host * part * times, (device - taken) * times, 0.0, 0.0, 0.0)
            turn += times
            continue
        own = t.i[t.care_span_at + row] + span - first
        gather = t.f[t.gather_forward + own] if forward else t.f[t.gather_back + own] if kind != W else 0.0
        sums = t.f[t.sums + own] if late else 0.0
        device += t.f[t.copy_forward + own] if forward else t.f[t.copy_back + own] if kind != W else 0.0
        for _ in range(times):
            if share:
                once = t.f[t.once + turn] if last else 0.0
                sent = sums + (t.f[t.buckets + turn] if late else 0.0)
                n = add_turn(turns, n, device, host * part, device - taken, gather, sent, once)
            else:
                busy = device + gather + sums
                n = add_turn(turns, n, busy, host * part, busy - taken, 0.0, 0.0, 0.0)
            turn += 1
    if one_by_one:
        sums = t.f[t.leave_back + row] if late else 0.0
        updated = t.f[t.slot_update + row] if late else 0.0
        if kind in (B, I):  # gradients go to the host
            updated += t.f[t.leave_copy + row]
        if share:
            once = t.f[t.once + turn] if last else 0.0
            n = add_turn(turns, n, updated, 0.0, updated, 0.0, sums + (t.f[t.buckets + turn] if late else 0.0), once)
        else:
            busy = updated + sums + (t.f[t.buckets_all + row] if late else 0.0)
            n = add_turn(turns, n, busy, 0.0, busy, 0.0, 0.0, 0.0)
    if t.f[t.sharpness + manner] > 0.0:
        stretch(turns, begun, n, t.f[t.sharpness + manner])
    return n


@kernel
def stretch(turns, begun, end, q):
    """Host and device meet over a slot in a soft maximum: the device takes longer, no launch is waited for."""
    device, host = 0.0, 0.0
    for n in range(begun, end, TURN):
        device += turns[n]
        host += turns[n + 1]
    more = (device**q + host**q) ** (1 / q) / device - 1 if device else 0.0
    for n in range(begun, end, TURN):
        longer = turns[n] * more
        turns[n] += longer
        turns[n + 2] += longer
        turns[n + 1] = 0.0


@kernel
def most_turns(t, cut, kinds):
    """Room for all turns of a plan."""
    found = 0
    for shape in range(t.i[t.cut_at + cut], t.i[t.cut_at + cut + 1]):
        layers = 2
        for span in range(t.i[t.span_at + shape], t.i[t.span_at + shape + 1]):
            layers += t.i[t.span_times + span]
        found += layers * (kinds + kinds // 2)
    return found


@kernel
def all_turns(t, plans, at):
    """The turns of all shapes: six figures each, and where those of a shape and a kind of slot begin and end.

    Those of the last slots stand behind the usual ones.
    """
    cut = plans.i[plans.cut + at]
    kinds = 4 if plans.i[plans.splits + at] else 2
    turns = zeros(TURN * most_turns(t, cut, kinds))
    shapes = t.i[t.cut_at + cut + 1] - t.i[t.cut_at + cut]
    begin, end = whole_zeros(shapes * 8), whole_zeros(shapes * 8)
    share = plans.f[plans.share + at]
    n = 0
    for shape in range(shapes):
        row = t.i[t.care_at + plans.i[plans.care + at]] + shape
        for kind in range(kinds):
            place = shape * 8 + kind
            begin[place] = n
            n = slot_turns(t, plans, at, shape, kind, turns, n, False)
            end[place] = n
            begin[place + 4], end[place + 4] = begin[place], end[place]
            if share and t.f[t.once_all + row] and kind in (B, W):
                begin[place + 4] = n
                n = slot_turns(t, plans, at, shape, kind, turns, n, True)
                end[place + 4] = n
    return turns, begin, end


# A step: slot by slot. -------------------------------------------------------------------------------


@kernel
def play(t, plans, at, turns, begin, end, inline):
    """All slots of a step; how each rank stands then: free, late, exposed, and how each of its last slots began.

    `inline`: messages for weights travel in every micro-batch, so the queue is played along. Else nothing waits for
    them before the end, and `drained` finds what is left of those that leave once a step from how the last slots began.
    A step may be longer than what is played: then each round of micro-batches adds the same.
    """
    order, before = plans.i[plans.order + at], plans.i[plans.before + at]
    first, stop = t.i[t.order_at + order], t.i[t.order_at + order + 1]
    started = zeros(3 * (t.i[t.tail_at + order + 1] - t.i[t.tail_at + order]))
    state = at_rest(t, order, before)
    if before < 0:
        play_slots(t, plans, at, first, stop, turns, begin, end, inline, state, started)
        free, late, exposed = stands(state, inline)
        return free, late, exposed, started
    shared = t.i[t.order_shared + before]
    play_slots(t, plans, at, first, first + shared, turns, begin, end, inline, state, started)
    shorter = twice(state)
    play_slots(t, plans, at, first + shared, stop, turns, begin, end, inline, state, started)
    free, late, exposed = stands(state, inline)
    first, stop = t.i[t.order_at + before], t.i[t.order_at + before + 1]
    unused = zeros(3 * (t.i[t.tail_at + before + 1] - t.i[t.tail_at + before]))
    play_slots(t, plans, at, first, stop, turns, begin, end, inline, shorter, unused)
    free0, late0, exposed0 = stands(shorter, inline)
    rounds = plans.i[plans.rounds + at]
    for r in range(len(free)):
        free[r] += (free[r] - free0[r]) * rounds
        late[r] += (late[r] - late0[r]) * rounds
        exposed[r] += (exposed[r] - exposed0[r]) * rounds
    return free, late, exposed, started


@kernel
def at_rest(t, order, before):
    """How ranks stand before a step, and what is on its way to them."""
    ranks, places = t.i[t.order_ranks + order], t.i[t.order_places + order]
    if before >= 0:
        places = max(places, t.i[t.order_places + before])
    free, host, late, exposed = zeros(ranks), zeros(ranks), zeros(ranks), zeros(ranks)
    queue, issued, once = zeros(ranks), zeros(ranks), zeros(ranks)
    way = zeros(2 * ranks)  # when each link is free: forward, back
    return free, host, late, exposed, queue, issued, once, way, zeros(places)


@kernel
def twice(state):
    """The same once more."""
    free, host, late, exposed, queue, issued, once, way, arrived = state
    free, host, late, exposed = doubled(free), doubled(host), doubled(late), doubled(exposed)
    queue, issued, once = doubled(queue), doubled(issued), doubled(once)
    return free, host, late, exposed, queue, issued, once, doubled(way), doubled(arrived)


@kernel
def doubled(values):
    """The same values once more."""
    found = zeros(len(values))
    for n in range(len(values)):
        found[n] = values[n]
    return found


@kernel
def stands(state, inline):
    """How ranks stand once all messages for weights that are played along are gone."""
    free, _, late, exposed, queue, _, once, _, _ = state
    if inline:
        for r in range(len(free)):
            exposed[r] += queue[r] + once[r]
            free[r] += queue[r] + once[r]
    return free, late, exposed


@kernel
def play_slots(t, plans, at, first, stop, turns, begin, end, inline, state, started):
    """Some slots of an order, from how ranks stand before them to how they stand after."""
    frees, hosts, lates, exposures, queues, all_issued, onces, way, arrived = state
    recorded = 0
    cut, sends, share = plans.i[plans.cut + at], plans.i[plans.sends + at], plans.f[plans.share + at]
    whole = t.i[t.cut_at + cut]
    stage_at, prefetch = t.i[t.stage_at + cut], t.i[t.prefetch + plans.i[plans.manner + at]]
    marks = zeros(len(turns) // TURN if inline else 0)  # all that was issued with each gather of a slot
    for n in range(first, stop):
        r, kind = t.i[t.slot_rank + n], t.i[t.slot_kind + n]
        free, host, late, exposed = frees[r], hosts[r], lates[r], exposures[r]
        queue, issued, once = queues[r], all_issued[r], onces[r]
        shape = t.i[t.stage_shape + stage_at + t.i[t.slot_stage + n]]
        place = shape * 8 + kind + (4 if inline and t.i[t.slot_last + n] else 0)
        low, high = begin[place], end[place]
        ahead, marked, met = low, 0, 0  # the next turn whose gather is not issued, gathers that are, and those met
        if inline:
            while ahead < high and marked < prefetch:
                if turns[ahead + 3]:
                    queue += turns[ahead + 3]
                    issued += turns[ahead + 3]
                    marks[marked] = issued
                    marked += 1
                ahead += TURN
        idle = 0.0
        back = kind != F
        receives = t.i[t.gets_back + whole + shape] if back else t.i[t.gets_forward + whole + shape]
        if receives and kind != W:
            asked = t.f[t.asked_back + sends + shape] if back else t.f[t.asked_forward + sends + shape]
            idle = max(arrived[t.i[t.slot_takes + n]] - free, asked)
            if inline:
                left = queue - idle
                queue = max(left, 0.0)
                once = max(once + (left - queue), 0.0)
            free += idle
            host = max(host, free)
        if not inline and t.i[t.slot_tail + n]:
            started[recorded], started[recorded + 1], started[recorded + 2] = idle, free, host
            recorded += 3
        for turn in range(low, high, TURN):
            if inline and turns[turn + 3]:
                while ahead < high and marked < met + prefetch + 1:
                    if turns[ahead + 3]:
                        queue += turns[ahead + 3]
                        issued += turns[ahead + 3]
                        marks[marked] = issued
                        marked += 1
                    ahead += TURN
                behind = issued - marks[met]
                wait = max(queue - behind, 0.0)
                queue -= wait
                free += wait
                exposed += wait
                met += 1
            host += turns[turn + 1]
            done = free + turns[turn]
            gap = max(host - done, 0.0)
            free = done + gap
            late += gap
            if inline:
                left = queue - share * (turns[turn + 2] + gap)
                queue = max(left, 0.0)
                once = max(once + (left - queue), 0.0)
                queue += turns[turn + 4]
                issued += turns[turn + 4]
                once += turns[turn + 5]
        frees[r], hosts[r], lates[r], exposures[r] = free, host, late, exposed
        queues[r], all_issued[r], onces[r] = queue, issued, once
        if kind != W:
            send = t.f[t.sent_back + sends + shape] if back else t.f[t.sent_forward + sends + shape]
            there = free
            if send:
                link = 2 * r + (1 if back else 0)
                there = max(way[link], free) + send
                way[link] = there
            arrived[t.i[t.slot_puts + n]] = there


@kernel
def drained(t, plans, at, order, turns, begin, end, started, lanes, lane, left):
    """Seconds of sums that come once a step which each rank has still to wait for after its last slot.

    `started` is how its last slots began, in a lane of several plans that were played side by side.
    """
    share = plans.f[plans.share + at]
    stage_at = t.i[t.stage_at + plans.i[plans.cut + at]]
    first = t.i[t.tail_at + order]
    for n in range(first, t.i[t.tail_at + order + 1]):
        slot = t.i[t.tail_slot + n]
        r = t.i[t.slot_rank + slot]
        place = t.i[t.stage_shape + stage_at + t.i[t.slot_stage + slot]] * 8 + t.i[t.slot_kind + slot]
        if t.i[t.slot_last + slot]:
            place += 4
        noted = 3 * (n - first) * lanes + lane
        idle, free, host = started[noted], started[noted + lanes], started[noted + 2 * lanes]
        once = max(left[r] - idle, 0.0)
        for turn in range(begin[place], end[place], TURN):
            host += turns[turn + 1]
            done = free + turns[turn]
            gap = max(host - done, 0.0)
            free = done + gap
            once = max(once - share * (turns[turn + 2] + gap), 0.0) + turns[turn + 5]
        left[r] = once


@kernel
def rank_sum(t, plans, at, rank, values, base):
    """The sum of a column of shapes over the stages of a rank."""
    order = plans.i[plans.order + at]
    stage_at = t.i[t.stage_at + plans.i[plans.cut + at]]
    place = t.i[t.rank_at + order] + rank
    found = 0.0
    for n in range(t.i[t.held_at + place], t.i[t.held_at + place + 1]):
        found += t.f[values + base + t.i[t.stage_shape + stage_at + t.i[t.held + n]]]
    return found


@kernel
def inline(t, plans, at):
    """Whether messages for weights travel beside the computation in every micro-batch."""
    return t.i[t.care_inline + plans.i[plans.care + at]] and plans.f[plans.share + at] > 0.0


@kernel
def sums_left(t, plans, at, turns, begin, end, started, lanes, lane):
    """For each rank seconds of sums once a step that are left after its slots, if none travel in every micro-batch."""
    order = plans.i[plans.order + at]
    left = zeros(t.i[t.order_ranks + order])
    if inline(t, plans, at):
        return left
    if plans.f[plans.share + at]:
        drained(t, plans, at, order, turns, begin, end, started, lanes, lane, left)
    else:
        for r in range(len(left)):
            left[r] = rank_sum(t, plans, at, r, t.once_all, t.i[t.care_at + plans.i[plans.care + at]])
    return left


@kernel
def step_seconds(t, plans, at):
    """Seconds of a step, the rank that ends last, and how long its device waited for the host, and for sums."""
    turns, begin, end = all_turns(t, plans, at)
    free, late, exposed, started = play(t, plans, at, turns, begin, end, inline(t, plans, at))
    left = sums_left(t, plans, at, turns, begin, end, started, 1, 0)
    found, worst = finished(t, plans, at, free, left)
    return found, worst, late[worst], exposed[worst] + left[worst]


@kernel
def finished(t, plans, at, free, left):
    """When the last rank is done with its sums, tied ones included, and with the end of its step; which one it is."""
    base = t.i[t.care_at + plans.i[plans.care + at]]
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


# Memory. ---------------------------------------------------------------------------------------------


@kernel
def rank_peaks(t, plans, at, rank):
    """The most bytes of micro-batches that a rank has at once, and in which moment of its order (-1: it has none).

    Then the same without the activations of the backward pass that is going on: its new gradients come to these.
    """
    order, holds = plans.i[plans.order + at], plans.i[plans.holds + at]
    stage_at = t.i[t.stage_at + plans.i[plans.cut + at]]
    place, moments = t.i[t.rank_at + order] + rank, plans.i[plans.moments + at] + rank
    made = plans.f[plans.made + at] > 0 and one_each(t, plans, at)
    first, stop = t.i[t.held_at + place], t.i[t.held_at + place + 1]
    most, when, others, then = 0.0, -1, 0.0, -1
    for moment in range(t.i[t.moment_at + moments], t.i[t.moment_at + moments + 1]):
        held = 0.0
        for chunk in range(stop - first):
            kept = t.f[t.kept + holds + t.i[t.stage_shape + stage_at + t.i[t.held + first + chunk]]]
            held += t.f[t.flying + t.i[t.flying_at + moment] + chunk] * kept
        shape = holds + t.i[t.stage_shape + stage_at + t.i[t.moment_stage + moment]]
        kept = t.f[t.kept + shape]
        if t.i[t.moment_forward + moment]:
            now = held + kept + max(0.0, t.f[t.forward_peak + shape] - kept)
        else:
            peak = t.f[t.making_peak + shape] if made else t.f[t.backward_peak + shape]
            now = held + max(0.0, peak - kept)
            if held - kept > others or then < 0:
                others, then = held - kept, moment
        if now > most or when < 0:
            most, when = now, moment
    return most, when, others, then


@kernel
def rank_bytes(t, plans, at, rank, peaks):
    """The most bytes in tensors that a rank has at once, and in which moment of its order; -1: after the update."""
    base = t.i[t.care_at + plans.i[plans.care + at]]
    parameters = rank_sum(t, plans, at, rank, t.parameters, base)
    resting = rank_sum(t, plans, at, rank, t.resting, base) + plans.f[plans.copies + at] * parameters
    resting += plans.f[plans.workspace + at]
    there = resting
    if plans.f[plans.made + at] > 0 and one_each(t, plans, at):
        there = resting - rank_sum(t, plans, at, rank, t.gradients, base)
    most, when, others, then = peaks
    fresh = others + plans.f[plans.fresh + at] * parameters  # all are there when the pass's own activations are gone
    if then >= 0 and fresh > most:
        most, when = fresh, then
    working = there + most + plans.f[plans.cached + at] * parameters
    working += min(plans.f[plans.streams + at], max(0.0, plans.f[plans.limit + at] - working))
    after = resting + plans.f[plans.gathered + at] * parameters
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


# Many plans. -----------------------------------------------------------------------------------------

LANES = 32
"""Plans that are played side by side: what they have in common is looked up once, and a processor adds several
numbers at a time."""


@kernel
def plain(t, plans, at):
    """Whether nothing is done for weights before the end of a step: then slots take as long whatever is done there."""
    return not t.i[t.care_inline + plans.i[plans.care + at]]


@kernel
def together(plans, at, other):
    """Whether the slots of two plans are the same ones in the same order."""
    same = plans.i[plans.cut + at] == plans.i[plans.cut + other]
    same = same and plans.i[plans.order + at] == plans.i[plans.order + other]
    return same and plans.i[plans.before + at] == plans.i[plans.before + other]


@kernel
def as_long(plans, at, other):
    """Whether the slots of two plans that can be played together take equally long."""
    same = plans.i[plans.local + at] == plans.i[plans.local + other]
    same = same and plans.i[plans.sends + at] == plans.i[plans.sends + other]
    return same and plans.i[plans.manner + at] == plans.i[plans.manner + other]


@kernel
def as_late(plans, at, other):
    """Whether two plans whose slots take equally long have as many of them, and the same to do for weights."""
    same = plans.i[plans.rounds + at] == plans.i[plans.rounds + other]
    same = same and plans.i[plans.care + at] == plans.i[plans.care + other]
    return same and plans.f[plans.share + at] == plans.f[plans.share + other]


@kernel
def play_lanes(t, plans, rows, lanes, order, before):
    """The same as `play` for some plans side by side, of which nothing travels for weights before the end.

    `rows` are the plans. Rank r of lane p is at r * lanes + p, and so on. When ranks are free after the step and after
    the one a round shorter, if there is one, and how the last slots of the step began. What both steps begin with is
    played once.
    """
    ranks, first = t.i[t.order_ranks + order], t.i[t.order_at + order]
    turns = lanes_turns(t, plans, rows, lanes)
    places = t.i[t.order_places + order]
    if before >= 0:
        places = max(places, t.i[t.order_places + before])
    free, host = zeros(ranks * lanes), zeros(ranks * lanes)
    way, arrived = zeros(2 * ranks * lanes), zeros(places * lanes)
    started = zeros(3 * (t.i[t.tail_at + order + 1] - t.i[t.tail_at + order]) * lanes)
    stage_at = t.i[t.stage_at + plans.i[plans.cut + rows[0]]]
    whole = t.i[t.cut_at + plans.i[plans.cut + rows[0]]]
    shared = t.i[t.order_shared + before] if before >= 0 else 0
    apart, stop = first + shared, t.i[t.order_at + order + 1]
    lanes_slots(t, stage_at, whole, lanes, first, apart, turns, free, host, way, arrived, started, True)
    earlier, host0, way0, arrived0 = doubled(free), doubled(host), doubled(way), doubled(arrived)
    lanes_slots(t, stage_at, whole, lanes, apart, stop, turns, free, host, way, arrived, started, True)
    if before >= 0:
        first, stop = t.i[t.order_at + before], t.i[t.order_at + before + 1]
        lanes_slots(t, stage_at, whole, lanes, first, stop, turns, earlier, host0, way0, arrived0, started, False)
    return free, earlier, started


@kernel
def lanes_turns(t, plans, rows, lanes):
    """The turns of some plans of one cut side by side: the device's and the host's seconds, and those of sending.

    And where those of a shape and a kind of slot begin and end.
    """
    cut = plans.i[plans.cut + rows[0]]
    shapes = t.i[t.cut_at + cut + 1] - t.i[t.cut_at + cut]
    most = most_turns(t, cut, 4)
    device, launched = zeros(most * lanes), zeros(most * lanes)
    low, high = whole_zeros(shapes * 8), whole_zeros(shapes * 8)
    for p in range(lanes):
        turns, begin, end = all_turns(t, plans, rows[p])
        n = 0
        for place in range(shapes * 8):
            low[place] = n
            if place % 8 < 4:
                for turn in range(begin[place], end[place], TURN):
                    device[n * lanes + p] = turns[turn]
                    launched[n * lanes + p] = turns[turn + 1]
                    n += 1
            high[place] = n
    sent = lanes_sends(t, plans, rows, lanes, t.sent_forward, t.sent_back)
    asked = lanes_sends(t, plans, rows, lanes, t.asked_forward, t.asked_back)
    return device, launched, sent, asked, low, high


@kernel
def lanes_sends(t, plans, rows, lanes, forward, back):
    """Seconds of what each shape sends or asks for, forward and back."""
    cut = plans.i[plans.cut + rows[0]]
    shapes = t.i[t.cut_at + cut + 1] - t.i[t.cut_at + cut]
    found = zeros(2 * shapes * lanes)
    for p in range(lanes):
        sends = plans.i[plans.sends + rows[p]]
        for shape in range(shapes):
            found[2 * shape * lanes + p] = t.f[forward + sends + shape]
            found[(2 * shape + 1) * lanes + p] = t.f[back + sends + shape]
    return found


@kernel
def lanes_slots(t, stage_at, whole, lanes, first, stop, turns, free, host, way, arrived, started, noted):
    """Play some slots of an order; `noted`: how the last ones of ranks begin is written down."""
    device, launched, sent, asked, low, high = turns
    every, idle, recorded = natural(lanes), zeros(lanes), 0
    for n in range(first, stop):
        kind = t.i[t.slot_kind + n]
        shape = t.i[t.stage_shape + stage_at + t.i[t.slot_stage + n]]
        place, rank = shape * 8 + kind, natural(t.i[t.slot_rank + n] * lanes)
        back = 0 if kind == F else 1
        receives = t.i[t.gets_back + whole + shape] if back else t.i[t.gets_forward + whole + shape]
        late = noted and t.i[t.slot_tail + n]
        if receives and kind != W:
            source, least = natural(t.i[t.slot_takes + n] * lanes), natural((2 * shape + back) * lanes)
            lanes_wait(arrived, source, asked, least, free, host, rank, idle, every)
        elif late:
            for p in range(lanes):
                idle[p] = 0.0
        if late:
            lanes_note(started, natural(recorded), idle, free, host, rank, every)
            recorded += 3 * lanes
        for turn in range(low[place], high[place]):
            lanes_turn(free, host, rank, device, launched, natural(turn * lanes), every)
        if kind != W:
            send, to = natural((2 * shape + back) * lanes), natural(t.i[t.slot_puts + n] * lanes)
            if sent[send]:  # one cut: all lanes send, or none
                link = natural((2 * t.i[t.slot_rank + n] + back) * lanes)
                lanes_send(free, rank, way, link, sent, send, arrived, to, every)
            else:
                for p in range(every):
                    arrived[to + p] = free[rank + p]


@kernel
def lanes_wait(arrived, source, asked, least, free, host, rank, idle, lanes):
    """A rank waits for what a slot receives, and no less than it takes to ask for it."""
    for p in range(lanes):
        wait = arrived[source + p] - free[rank + p]
        wait = wait if wait > asked[least + p] else asked[least + p]
        idle[p] = wait
        now = free[rank + p] + wait
        free[rank + p] = now
        host[rank + p] = host[rank + p] if host[rank + p] > now else now


@kernel
def lanes_note(started, to, idle, free, host, rank, lanes):
    """How a slot begins is written down."""
    for p in range(lanes):
        started[to + p] = idle[p]
        started[to + lanes + p] = free[rank + p]
        started[to + lanes + lanes + p] = host[rank + p]


@kernel
def lanes_turn(free, host, rank, device, launched, turn, lanes):
    """Host and device take a turn."""
    for p in range(lanes):
        ready = host[rank + p] + launched[turn + p]
        done = free[rank + p] + device[turn + p]
        gap = ready - done
        host[rank + p] = ready
        free[rank + p] = done + (gap if gap > 0.0 else 0.0)


@kernel
def lanes_send(free, rank, way, link, sent, send, arrived, to, lanes):
    """What a slot made leaves when its way is free."""
    for p in range(lanes):
        begun = way[link + p] if way[link + p] > free[rank + p] else free[rank + p]
        over = begun + sent[send + p]
        way[link + p] = over
        arrived[to + p] = over


@kernel
def evaluate(t, plans, first, stop, seconds):
    """Step time of some plans; those that can be played together should lie next to each other."""
    rows, of = whole_zeros(LANES), whole_zeros(stop - first)
    at = first
    while at < stop:
        if plain(t, plans, at):
            at = played_together(t, plans, at, stop, rows, of, seconds)
            continue
        if at > first and together(plans, at, at - 1) and as_long(plans, at, at - 1) and as_late(plans, at, at - 1):
            seconds[at] = seconds[at - 1]
        else:
            seconds[at] = step_seconds(t, plans, at)[0]
        at += 1


@kernel
def played_together(t, plans, at, stop, rows, of, seconds):
    """Play a plan and those after it that can be played side by side with it; where the next one is.

    `rows` are the plans that stand for all whose slots take as long, `of` is which of these each plan has.
    """
    after, lanes = at + 1, 1
    rows[0], of[0] = at, 0
    while after < stop and together(plans, after, at) and plain(t, plans, after):
        if not as_long(plans, after, after - 1):
            if lanes == LANES:
                break
            rows[lanes] = after
            lanes += 1
        of[after - at] = lanes - 1
        after += 1
    order, before = plans.i[plans.order + at], plans.i[plans.before + at]
    free, earlier, started = play_lanes(t, plans, rows, lanes, order, before)
    ranks = t.i[t.order_ranks + order]
    over, left, late = zeros(ranks), zeros(ranks), whole_zeros(after - at)
    distinct = 0
    for row in range(at, after):
        if row == at or of[row - at] != of[row - 1 - at] or not as_late(plans, row, row - 1):
            late[distinct] = row
            distinct += 1
    waiting = lanes_left(t, plans, at, late[:distinct], of, order, started, lanes)
    for n in range(distinct):
        row = late[n]
        p, rounds = of[row - at], plans.i[plans.rounds + row]
        for r in range(ranks):
            over[r] = free[r * lanes + p]
            if before >= 0:
                over[r] += (over[r] - earlier[r * lanes + p]) * rounds
            left[r] = waiting[n * ranks + r]
        found = finished(t, plans, row, over, left)[0]
        for alike in range(row, late[n + 1] if n + 1 < distinct else after):
            seconds[alike] = found
    return after


@kernel
def lanes_left(t, plans, at, late, of, order, started, lanes):
    """`sums_left` of the plans `late`, one after the other; those whose turns are alike are drained side by side."""
    ranks, stages = t.i[t.order_ranks + order], t.i[t.stage_at + plans.i[plans.cut + at]]
    found, rows, places = zeros(len(late) * ranks), whole_zeros(LANES), whole_zeros(LANES)
    done = whole_zeros(len(late))
    for first in range(len(late)):
        if done[first]:
            continue
        if not plans.f[plans.share + late[first]]:
            base = t.i[t.care_at + plans.i[plans.care + late[first]]]
            for r in range(ranks):
                found[first * ranks + r] = rank_sum(t, plans, late[first], r, t.once_all, base)
            continue
        count = 0
        for n in range(first, len(late)):
            if count < LANES and not done[n] and as_turning(t, plans, late[first], late[n]):
                rows[count], places[count], done[n] = late[n], n, 1
                count += 1
        left = drained_lanes(t, plans, at, rows[:count], of, order, started, lanes, stages)
        for q in range(count):
            for r in range(ranks):
                found[places[q] * ranks + r] = left[r * count + q]
    return found


@kernel
def as_turning(t, plans, at, other):
    """Whether the slots of two plans of one cut have the same turns, each of its own length."""
    cut, care, its = plans.i[plans.cut + at], plans.i[plans.care + at], plans.i[plans.care + other]
    if care == its:
        return plans.f[plans.share + other] > 0.0
    own, there = t.i[t.care_at + care], t.i[t.care_at + its]
    same = plans.f[plans.share + other] > 0.0
    for shape in range(t.i[t.cut_at + cut + 1] - t.i[t.cut_at + cut]):
        same = same and (t.i[t.cared + own + shape] > 0) == (t.i[t.cared + there + shape] > 0)
        same = same and (t.f[t.once_all + own + shape] > 0.0) == (t.f[t.once_all + there + shape] > 0.0)
    return same


@kernel
def drained_lanes(t, plans, at, rows, of, order, started, lanes, stage_at):
    """The same as `drained` for some plans side by side: rank r of the q-th is at r * plans + q."""
    count = len(rows)
    left = zeros(t.i[t.order_ranks + order] * count)
    cut = plans.i[plans.cut + rows[0]]
    turns, shapes = zeros(TURN * most_turns(t, cut, 4)), t.i[t.cut_at + cut + 1] - t.i[t.cut_at + cut]
    begin, end = whole_zeros(shapes * 8), whole_zeros(shapes * 8)
    size = tail_turns(t, plans, rows[0], order, turns, begin, end) // TURN * count
    device, launched, room, added = zeros(size), zeros(size), zeros(size), zeros(size)
    share = zeros(count)
    for q in range(count):
        made = tail_turns(t, plans, rows[q], order, turns, begin, end)
        share[q] = plans.f[plans.share + rows[q]]
        for n in range(made // TURN):
            device[n * count + q] = turns[n * TURN]
            launched[n * count + q] = turns[n * TURN + 1]
            room[n * count + q] = turns[n * TURN + 2]
            added[n * count + q] = turns[n * TURN + 5]
    idle, free, host = zeros(count), zeros(count), zeros(count)
    every, first = natural(count), t.i[t.tail_at + order]
    for n in range(first, t.i[t.tail_at + order + 1]):
        slot = t.i[t.tail_slot + n]
        place = t.i[t.stage_shape + stage_at + t.i[t.slot_stage + slot]] * 8 + t.i[t.slot_kind + slot]
        if t.i[t.slot_last + slot]:
            place += 4
        for q in range(count):
            noted = 3 * (n - first) * lanes + of[rows[q] - at]
            idle[q], free[q], host[q] = started[noted], started[noted + lanes], started[noted + 2 * lanes]
        rank = natural(t.i[t.slot_rank + slot] * count)
        lanes_idle(left, rank, idle, every)
        for turn in range(begin[place] // TURN, end[place] // TURN):
            lanes_gap(free, host, device, launched, natural(turn * count), idle, every)
            lanes_drain(left, rank, share, room, added, natural(turn * count), idle, every)
    return left


@kernel
def tail_turns(t, plans, at, order, turns, begin, end):
    """The turns of the last slots of ranks alone, as in `all_turns`; how many figures these are."""
    stage_at = t.i[t.stage_at + plans.i[plans.cut + at]]
    care = t.i[t.care_at + plans.i[plans.care + at]]
    for place in range(len(begin)):
        begin[place], end[place] = 0, 0
    n = 0
    for tail in range(t.i[t.tail_at + order], t.i[t.tail_at + order + 1]):
        slot = t.i[t.tail_slot + tail]
        shape, kind = t.i[t.stage_shape + stage_at + t.i[t.slot_stage + slot]], t.i[t.slot_kind + slot]
        place = shape * 8 + kind + (4 if t.i[t.slot_last + slot] else 0)
        if end[place] == begin[place]:
            begin[place] = n
            last = t.i[t.slot_last + slot] > 0 and t.f[t.once_all + care + shape] > 0.0
            n = slot_turns(t, plans, at, shape, kind, turns, n, last)
            end[place] = n
    return n


@kernel
def lanes_idle(left, rank, idle, lanes):
    """Messages travel while a rank waits."""
    for q in range(lanes):
        once = left[rank + q] - idle[q]
        left[rank + q] = once if once > 0.0 else 0.0


@kernel
def lanes_gap(free, host, device, launched, turn, gap, lanes):
    """Host and device take a turn; how long the device waits for the host."""
    for q in range(lanes):
        ready = host[q] + launched[turn + q]
        done = free[q] + device[turn + q]
        wait = ready - done
        wait = wait if wait > 0.0 else 0.0
        host[q] = ready
        gap[q] = wait
        free[q] = done + wait


@kernel
def lanes_drain(left, rank, share, room, added, turn, gap, lanes):
    """Messages travel in a turn, and more leave after it."""
    for q in range(lanes):
        once = left[rank + q] - share[q] * (room[turn + q] + gap[q])
        left[rank + q] = (once if once > 0.0 else 0.0) + added[turn + q]


# Memory of many plans. --------------------------------------------------------------------------------


@kernel
def evaluate_memory(t, plans, rows, memory):
    """Bytes that the device of the worst rank reports, of some plans: those that hold the same should come together."""
    peaks = [(0.0, -1, 0.0, -1)]
    ranks = whole_zeros(0)
    for n in range(len(rows)):
        at = rows[n]
        if n == 0 or not as_staged(plans, at, rows[n - 1]):
            ranks = fullest_ranks(t, plans, at)
        if n == 0 or not as_full(plans, at, rows[n - 1]):
            peaks = [rank_peaks(t, plans, at, r) for r in ranks]
        most = -1.0
        for rank in range(len(ranks)):
            most = max(most, rank_bytes(t, plans, at, ranks[rank], peaks[rank])[0])
        memory[at] = most * plans.f[plans.reserved + at] + plans.f[plans.context + at]


@kernel
def as_staged(plans, at, other):
    """Whether the ranks of two plans have the same stages, and as many micro-batches in flight."""
    return (
        plans.i[plans.moments + at] == plans.i[plans.moments + other]
        and plans.i[plans.cut + at] == plans.i[plans.cut + other]
    )


@kernel
def fullest_ranks(t, plans, at):
    """Ranks of which one has the most, whatever the sizes: each other one has no more than one of these."""
    order, cut, moments = plans.i[plans.order + at], plans.i[plans.cut + at], plans.i[plans.moments + at]
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
    """Whether a rank has stages of the same shapes as another, and never less in flight."""
    first, there = t.i[t.held_at + rank_at + rank], t.i[t.held_at + rank_at + other]
    stages = t.i[t.held_at + rank_at + other + 1] - there
    if t.i[t.held_at + rank_at + rank + 1] - first != stages:
        return False
    for n in range(stages):
        shape = t.i[t.stage_shape + stage_at + t.i[t.held + first + n]]
        if shape != t.i[t.stage_shape + stage_at + t.i[t.held + there + n]]:
            return False
    for moment in range(t.i[t.moment_at + moments + other], t.i[t.moment_at + moments + other + 1]):
        less = False
        for own in range(t.i[t.moment_at + moments + rank], t.i[t.moment_at + moments + rank + 1]):
            less = less or as_much_flies(t, stage_at, stages, own, moment)
        if not less:
            return False
    return True


@kernel
def as_much_flies(t, stage_at, stages, moment, other):
    """Whether two moments are passes of the same kind, the first with no less in flight of any stage."""
    shape = t.i[t.stage_shape + stage_at + t.i[t.moment_stage + moment]]
    same = shape == t.i[t.stage_shape + stage_at + t.i[t.moment_stage + other]]
    same = same and t.i[t.moment_forward + moment] == t.i[t.moment_forward + other]
    own, its = t.i[t.flying_at + moment], t.i[t.flying_at + other]
    for n in range(stages):
        same = same and t.f[t.flying + own + n] >= t.f[t.flying + its + n]
    return same


@kernel
def as_full(plans, at, other):
    """Whether micro-batches of two plans hold the same."""
    same = plans.i[plans.moments + at] == plans.i[plans.moments + other]
    same = same and plans.i[plans.cut + at] == plans.i[plans.cut + other]
    same = same and plans.f[plans.made + at] == plans.f[plans.made + other]
    same = same and plans.i[plans.rounds + at] == plans.i[plans.rounds + other]
    return same and plans.i[plans.holds + at] == plans.i[plans.holds + other]
