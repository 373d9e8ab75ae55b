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

from foretell.compiling import kernel, whole_zeros, zeros
from foretell.timeline.exposed_reduce import exposed_reduce_seconds
from foretell.timeline.lookups import rank_sum
from foretell.timeline.slot_loop import run_step

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
    free = after_rounds(end.free, shorter.free, 0, 1, rounds)
    late = after_rounds(end.late, shorter.late, 0, 1, rounds)
    exposed = after_rounds(end.exposed, shorter.exposed, 0, 1, rounds)
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
        free = after_rounds(end.free, shorter.free, lane_of[row - at], lanes, plans.i[plans.rounds + row])
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
