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

from foretell.timeline.compiling import kernel

F, B, I, W = 0, 1, 2, 3  # noqa: E741
"""Kinds of slots, as numbers."""


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
def add_turn(turns, device, host, room, gather, sums, once):
    turns[0].append(device)
    turns[1].append(host)
    turns[2].append(room)
    turns[3].append(gather)
    turns[4].append(sums)
    turns[5].append(once)


@kernel
def slot_turns(t, plans, at, shape, kind, turns, last):
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
    begun = len(turns[0])
    turn = t.i[t.care_turn_at + row]  # of the sums that leave after each turn
    # before the first layer: weights of no layer come
    gather = t.f[t.enter_forward + row] if forward else t.f[t.enter_back + row] if kind != W else 0.0
    copied = t.f[t.enter_copy + row] if forward else 0.0
    if one_by_one:
        if share:
            once = t.f[t.once + turn] if last else 0.0
            add_turn(turns, copied, 0.0, copied, gather, t.f[t.buckets + turn] if late else 0.0, once)
        else:
            add_turn(turns, copied + gather, 0.0, copied + gather, 0.0, 0.0, 0.0)
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
            add_turn(turns, device * times, host * part * times, (device - taken) * times, 0.0, 0.0, 0.0)
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
                add_turn(turns, device, host * part, device - taken, gather, sent, once)
            else:
                busy = device + gather + sums
                add_turn(turns, busy, host * part, busy - taken, 0.0, 0.0, 0.0)
            turn += 1
    if one_by_one:
        sums = t.f[t.leave_back + row] if late else 0.0
        updated = t.f[t.slot_update + row] if late else 0.0
        if kind in (B, I):  # gradients go to the host
            updated += t.f[t.leave_copy + row]
        if share:
            once = t.f[t.once + turn] if last else 0.0
            add_turn(turns, updated, 0.0, updated, 0.0, sums + (t.f[t.buckets + turn] if late else 0.0), once)
        else:
            busy = updated + sums + (t.f[t.buckets_all + row] if late else 0.0)
            add_turn(turns, busy, 0.0, busy, 0.0, 0.0, 0.0)
    if t.f[t.sharpness + manner] > 0.0:
        stretch(turns, begun, t.f[t.sharpness + manner])


@kernel
def stretch(turns, begun, q):
    """Host and device meet over a slot in a soft maximum: the device takes longer, no launch is waited for."""
    device, host = 0.0, 0.0
    for n in range(begun, len(turns[0])):
        device += turns[0][n]
        host += turns[1][n]
    more = (device**q + host**q) ** (1 / q) / device - 1 if device else 0.0
    for n in range(begun, len(turns[0])):
        longer = turns[0][n] * more
        turns[0][n] += longer
        turns[2][n] += longer
        turns[1][n] = 0.0


@kernel
def all_turns(t, plans, at):
    """The turns of all shapes: six figures each, and where those of a shape and a kind of slot begin and end.

    Those of the last slots stand behind the usual ones.
    """
    turns = [[0.0], [0.0], [0.0], [0.0], [0.0], [0.0]]
    cut = plans.i[plans.cut + at]
    shapes = t.i[t.cut_at + cut + 1] - t.i[t.cut_at + cut]
    begin, end = [0] * (shapes * 8), [0] * (shapes * 8)
    share = plans.f[plans.share + at]
    for shape in range(shapes):
        row = t.i[t.care_at + plans.i[plans.care + at]] + shape
        for kind in range(4 if plans.i[plans.splits + at] else 2):
            place = shape * 8 + kind
            begin[place] = len(turns[0])
            slot_turns(t, plans, at, shape, kind, turns, False)
            end[place] = len(turns[0])
            begin[place + 4], end[place + 4] = begin[place], end[place]
            if share and t.f[t.once_all + row] and kind in (B, W):
                begin[place + 4] = len(turns[0])
                slot_turns(t, plans, at, shape, kind, turns, True)
                end[place + 4] = len(turns[0])
    return turns, begin, end


# A step: slot by slot. -------------------------------------------------------------------------------


@kernel
def play(t, plans, at, order, turns, begin, end, inline):
    """All slots of a step; how each rank stands then: free, late, exposed, and how each of its last slots began.

    `inline`: messages for weights travel in every micro-batch, so the queue is played along. Else nothing waits for
    them before the end, and `drained` finds what is left of those that leave once a step from how the last slots began.
    """
    ranks = t.i[t.order_ranks + order]
    free, host, late, exposed = [0.0] * ranks, [0.0] * ranks, [0.0] * ranks, [0.0] * ranks
    queue, issued, once = [0.0] * ranks, [0.0] * ranks, [0.0] * ranks
    way = [0.0] * (2 * ranks)  # when each link is free: forward, back
    first, stop = t.i[t.order_at + order], t.i[t.order_at + order + 1]
    arrived = [0.0] * (stop - first)
    started = [0.0] * (3 * (t.i[t.tail_at + order + 1] - t.i[t.tail_at + order]))
    recorded = 0
    cut, passes, share = plans.i[plans.cut + at], plans.i[plans.passes + at], plans.f[plans.share + at]
    stage_at, prefetch = t.i[t.stage_at + cut], t.i[t.prefetch + plans.i[plans.manner + at]]
    device_of, host_of, room_of, gather_of, sums_of, once_of = turns
    marks = [0.0]
    for n in range(first, stop):
        r, kind = t.i[t.slot_rank + n], t.i[t.slot_kind + n]
        shape = t.i[t.stage_shape + stage_at + t.i[t.slot_stage + n]]
        place = shape * 8 + kind + (4 if inline and t.i[t.slot_last + n] else 0)
        low, high = begin[place], end[place]
        ahead, done_gathers = low, 0  # the next turn whose gather is not issued yet
        if inline:
            marks.clear()
            count = 0
            while ahead < high and count < prefetch:
                if gather_of[ahead]:
                    queue[r] += gather_of[ahead]
                    issued[r] += gather_of[ahead]
                    marks.append(issued[r])
                    count += 1
                ahead += 1
        idle = 0.0
        back = kind != F
        receives = t.i[t.gets_back + passes + shape] if back else t.i[t.gets_forward + passes + shape]
        if receives and kind != W:
            idle = max(arrived[t.i[t.slot_source + n] - first] - free[r], 0.0)
            if inline:
                left = queue[r] - idle
                queue[r] = max(left, 0.0)
                once[r] = max(once[r] + (left - queue[r]), 0.0)
            free[r] += idle
            host[r] = max(host[r], free[r])
        if not inline and t.i[t.slot_tail + n]:
            started[recorded], started[recorded + 1], started[recorded + 2] = idle, free[r], host[r]
            recorded += 3
        for turn in range(low, high):
            if inline and gather_of[turn]:
                while ahead < high and len(marks) < done_gathers + prefetch + 1:
                    if gather_of[ahead]:
                        queue[r] += gather_of[ahead]
                        issued[r] += gather_of[ahead]
                        marks.append(issued[r])
                    ahead += 1
                behind = issued[r] - marks[done_gathers]
                wait = max(queue[r] - behind, 0.0)
                queue[r] -= wait
                free[r] += wait
                exposed[r] += wait
                done_gathers += 1
            host[r] += host_of[turn]
            done = free[r] + device_of[turn]
            gap = max(host[r] - done, 0.0)
            free[r] = done + gap
            late[r] += gap
            if inline:
                left = queue[r] - share * (room_of[turn] + gap)
                queue[r] = max(left, 0.0)
                once[r] = max(once[r] + (left - queue[r]), 0.0)
                queue[r] += sums_of[turn]
                issued[r] += sums_of[turn]
                once[r] += once_of[turn]
        if kind != W:
            send = t.f[t.sent_back + passes + shape] if back else t.f[t.sent_forward + passes + shape]
            if send:
                link = 2 * r + (1 if back else 0)
                way[link] = max(way[link], free[r]) + send
                arrived[n - first] = way[link]
    if inline:
        for r in range(ranks):
            exposed[r] += queue[r] + once[r]
            free[r] += queue[r] + once[r]
    return free, late, exposed, started


@kernel
def drained(t, plans, at, order, turns, begin, end, started, left):
    """Seconds of sums that come once a step which each rank has still to wait for after its last slot."""
    share = plans.f[plans.share + at]
    stage_at = t.i[t.stage_at + plans.i[plans.cut + at]]
    first = t.i[t.tail_at + order]
    for n in range(first, t.i[t.tail_at + order + 1]):
        slot = t.i[t.tail_slot + n]
        r = t.i[t.slot_rank + slot]
        place = t.i[t.stage_shape + stage_at + t.i[t.slot_stage + slot]] * 8 + t.i[t.slot_kind + slot]
        if t.i[t.slot_last + slot]:
            place += 4
        idle, free, host = started[3 * (n - first)], started[3 * (n - first) + 1], started[3 * (n - first) + 2]
        once = max(left[r] - idle, 0.0)
        for turn in range(begin[place], end[place]):
            host += turns[1][turn]
            done = free + turns[0][turn]
            gap = max(host - done, 0.0)
            free = done + gap
            once = max(once - share * (turns[2][turn] + gap), 0.0) + turns[5][turn]
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
def ends(t, plans, at):
    """For each rank: when its slots and sums are over, how long its device waited for the host, and for sums."""
    order, before = plans.i[plans.order + at], plans.i[plans.before + at]
    turns, begin, end = all_turns(t, plans, at)
    inline = t.i[t.care_inline + plans.i[plans.care + at]] and plans.f[plans.share + at] > 0.0
    free, late, exposed, started = play(t, plans, at, order, turns, begin, end, inline)
    ranks = len(free)
    if before >= 0:  # the step is longer than what was played: each round of micro-batches adds the same
        free0, late0, exposed0, _ = play(t, plans, at, before, turns, begin, end, inline)
        rounds = plans.i[plans.rounds + at]
        for r in range(ranks):
            free[r] += (free[r] - free0[r]) * rounds
            late[r] += (late[r] - late0[r]) * rounds
            exposed[r] += (exposed[r] - exposed0[r]) * rounds
    if not inline:
        left = [0.0] * ranks
        if plans.f[plans.share + at]:
            drained(t, plans, at, order, turns, begin, end, started, left)
        else:
            for r in range(ranks):
                left[r] = rank_sum(t, plans, at, r, t.once_all, t.i[t.care_at + plans.i[plans.care + at]])
        for r in range(ranks):
            free[r] += left[r]
            exposed[r] += left[r]
    return free, late, exposed


@kernel
def step_seconds(t, plans, at):
    """Seconds of a step, the rank that ends last, and how long it was free, late and exposed."""
    free, late, exposed = ends(t, plans, at)
    base = t.i[t.care_at + plans.i[plans.care + at]]
    meet = 0.0
    for r in range(len(free)):
        if rank_sum(t, plans, at, r, t.tied, base):
            meet = max(meet, free[r])
    found, worst = -1.0, 0
    for r in range(len(free)):
        start = meet if rank_sum(t, plans, at, r, t.tied, base) else free[r]
        over = start + rank_sum(t, plans, at, r, t.finish, base)
        if over > found:
            found, worst = over, r
    return found, worst, free[worst], late[worst], exposed[worst]


# Memory. ---------------------------------------------------------------------------------------------


@kernel
def rank_memory(t, plans, at, rank):
    """The most bytes in tensors that a rank has at once, and in which moment of its order; -1: after the update."""
    order, passes = plans.i[plans.order + at], plans.i[plans.passes + at]
    stage_at = t.i[t.stage_at + plans.i[plans.cut + at]]
    base = t.i[t.care_at + plans.i[plans.care + at]]
    place = t.i[t.rank_at + order] + rank
    parameters = rank_sum(t, plans, at, rank, t.parameters, base)
    resting = rank_sum(t, plans, at, rank, t.resting, base) + plans.f[plans.copies + at] * parameters
    first, stop = t.i[t.held_at + place], t.i[t.held_at + place + 1]
    chunks = stop - first
    most, when = 0.0, -1
    for moment in range(t.i[t.moment_at + place], t.i[t.moment_at + place + 1]):
        held = 0.0
        for chunk in range(chunks):
            kept = t.f[t.kept + passes + t.i[t.stage_shape + stage_at + t.i[t.held + first + chunk]]]
            held += t.f[t.flying + t.i[t.flying_at + moment] + chunk] * kept
        shape = passes + t.i[t.stage_shape + stage_at + t.i[t.moment_stage + moment]]
        kept = t.f[t.kept + shape]
        if t.i[t.moment_forward + moment]:
            now = held + kept + max(0.0, t.f[t.forward_peak + shape] - kept)
        else:
            now = held + max(0.0, t.f[t.backward_peak + shape] - kept) + plans.f[plans.fresh + at] * parameters
        if now > most or when < 0:
            most, when = now, moment
    working = resting + (most + plans.f[plans.streams + at]) + plans.f[plans.cached + at] * parameters
    after = resting + plans.f[plans.gathered + at] * parameters
    if after > working:
        return after, -1
    return working, when


@kernel
def memory_bytes(t, plans, at):
    """Bytes that the device of the worst rank reports, and which rank that is."""
    found, worst = -1.0, 0
    for r in range(t.i[t.order_ranks + plans.i[plans.order + at]]):
        most, _ = rank_memory(t, plans, at, r)
        if most > found:
            found, worst = most, r
    return found * plans.f[plans.reserved + at] + plans.f[plans.context + at], worst


@kernel
def evaluate(t, plans, first, stop, seconds, memory):
    """Step time and memory of some plans."""
    for at in range(first, stop):
        seconds[at] = step_seconds(t, plans, at)[0]
        memory[at] = memory_bytes(t, plans, at)[0]
