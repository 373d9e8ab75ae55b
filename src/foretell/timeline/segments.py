"""Segments of a slot: what one layer does on its rank, host and device, and what it has travel for weights.

Kernels (`timeline.compiling`): they use nothing but floats, ints and indexing, so Python runs them on lists as they
are, and a compiler on arrays. Both take the same steps in the same order and give the same digits.

A slot is the pass of one micro-batch through one stage. Its segments are its layers one by one; where nothing travels
for weights, equal layers in a row are one segment.
"""
# Tables are lists or arrays, and compilers infer types: annotations would have to lie.
# pyright: basic

from foretell.compiling import kernel, whole_zeros, zeros

F, B, I, W = 0, 1, 2, 3  # noqa: E741
"""Kinds of slots, as numbers."""

DEVICE, HOST, ROOM, GATHER, REDUCE, ONCE = 0, 1, 2, 3, 4, 5
"""The figures of a segment, in seconds: of the device; of the host, which launches it; in which messages for weights
may travel; of the weights that are gathered before it; of the gradients that leave after it in every micro-batch, and
after the last one alone."""

SEGMENT = 6
"""How many figures a segment has."""

PLACES = 8
"""Rows of segments that a stage signature has: one for each kind of slot, and one for the last slot of each kind."""

LAST = 4
"""How many rows after the usual slots those of a step's last slots stand."""


@kernel
def host_seconds(t, profile, launches, layers, recomputes):
    """Seconds of the host for a stage and micro-batch, forward and backward, by the trainer's constants.

    `recomputes`: the layers of which something runs again.
    """
    by_layer = t.f[t.host_layer + profile] * layers
    if recomputes >= layers > 0:
        by_layer = by_layer * t.f[t.host_recompute + profile]
    elif recomputes:
        by_layer += t.f[t.host_layer + profile] * recomputes * (t.f[t.host_recompute + profile] - 1)
    grown = (t.f[t.host_launch + profile] * launches + by_layer) * t.f[t.host_growth + profile]
    return max(grown + t.f[t.host_microbatch + profile], layers * t.f[t.host_floor + profile])


@kernel
def slot_host(t, plans, at, signature):
    """Seconds of the host for a stage signature and micro-batch, both passes, and how many kernels it launches."""
    whole = t.i[t.partition_at + plans.i[plans.partition + at]] + signature
    kinds = t.i[t.program_at + plans.i[plans.program + at]]
    launches, recomputes = 0.0, 0
    for run in range(t.i[t.run_at + whole], t.i[t.run_at + whole + 1]):
        cell = (kinds + t.i[t.run_kind + run]) * 4
        launches += t.i[t.run_times + run] * (t.f[t.launches + cell + F] + t.f[t.launches + cell + B])
        if t.i[t.recomputes + kinds + t.i[t.run_kind + run]] > 0:
            recomputes += t.i[t.run_times + run]
    return host_seconds(t, plans.i[plans.launch_profile + at], launches, t.i[t.layers + whole], recomputes), launches


@kernel
def add_segment(segments, n, device, host, room, gather, reduce, once):
    """Write down a segment; where the next one begins."""
    segments[n + DEVICE] = device
    segments[n + HOST] = host
    segments[n + ROOM] = room
    segments[n + GATHER] = gather
    segments[n + REDUCE] = reduce
    segments[n + ONCE] = once
    return n + SEGMENT


@kernel
def slot_segments(t, plans, at, signature, kind, segments, n, last):
    """The segments of a kind of slot of a stage signature: equal ones in a row are one where no weights travel.

    `last`: the slot is the step's last of its stage, after whose segments gradients that are reduced once may leave.
    """
    row = t.i[t.traffic_at + plans.i[plans.traffic + at]] + signature
    overlap, begun = plans.f[plans.overlap + at], n
    one_by_one = last or t.i[t.has_traffic + row] > 0
    if one_by_one:
        n = enter_segment(t, overlap, row, kind, segments, n, last)
    n = layer_segments(t, plans, at, signature, kind, segments, n, last)
    if one_by_one:
        n = leave_segment(t, overlap, row, kind, segments, n, last, (n - begun) // SEGMENT)
    sharpness = t.f[t.sharpness + plans.i[plans.launch_profile + at]]
    if sharpness > 0.0:
        soft_maximum(segments, begun, n, sharpness)
    return n


@kernel
def enter_segment(t, overlap, row, kind, segments, n, last):
    """What comes before the first layer: weights of no layer come."""
    forward, late = kind == F, kind in (B, W)
    place = t.i[t.traffic_segment_at + row]
    gather = t.f[t.enter_forward + row] if forward else t.f[t.enter_back + row] if kind != W else 0.0
    copied = t.f[t.enter_copy + row] if forward else 0.0
    if overlap:
        once = t.f[t.once + place] if last else 0.0
        reduce = t.f[t.buckets + place] if late else 0.0
        return add_segment(segments, n, copied, 0.0, copied, gather, reduce, once)
    return add_segment(segments, n, copied + gather, 0.0, copied + gather, 0.0, 0.0, 0.0)


@kernel
def layer_segments(t, plans, at, signature, kind, segments, n, last):
    """The layers of a slot, in the order in which they run."""
    traffic, profile = plans.i[plans.traffic + at], plans.i[plans.launch_profile + at]
    overlap, row = plans.f[plans.overlap + at], t.i[t.traffic_at + traffic] + signature
    whole = t.i[t.partition_at + plans.i[plans.partition + at]] + signature
    first, end = t.i[t.run_at + whole], t.i[t.run_at + whole + 1]
    host, launches = slot_host(t, plans, at, signature)
    fixed = t.f[t.device_layer + profile] * t.i[t.layers + whole]
    forward, late = kind == F, kind in (B, W)
    one_by_one = last or t.i[t.has_traffic + row] > 0
    place = t.i[t.traffic_segment_at + row] + 1  # of the gradients that leave after each segment
    for number in range(end - first):
        run = first + number if forward else end - 1 - number
        cell = (t.i[t.program_at + plans.i[plans.program + at]] + t.i[t.run_kind + run]) * 4 + kind
        part = t.f[t.launches + cell] / launches if launches else 0.0
        device = t.f[t.device + cell] + fixed * part
        waited = waited_seconds(t, traffic, cell)
        times, own_host = t.i[t.run_times + run], host * part
        if not one_by_one:
            n = add_segment(segments, n, device * times, own_host * times, (device - waited) * times, 0.0, 0.0, 0.0)
            continue
        own = t.i[t.traffic_run_at + row] + run - first
        gather = t.f[t.gather_forward + own] if forward else t.f[t.gather_back + own] if kind != W else 0.0
        reduce = t.f[t.reduce + own] if late else 0.0
        device += t.f[t.copy_forward + own] if forward else t.f[t.copy_back + own] if kind != W else 0.0
        if kind != W:  # what the host does around weights in shares
            own_host += t.f[t.host_launch + profile] * t.f[t.unit_launches + own]
        for _ in range(times):
            if overlap:
                once = t.f[t.once + place] if last else 0.0
                sent = reduce + (t.f[t.buckets + place] if late else 0.0)
                n = add_segment(segments, n, device, own_host, device - waited, gather, sent, once)
            else:
                busy = device + gather + reduce
                n = add_segment(segments, n, busy, own_host, busy - waited, 0.0, 0.0, 0.0)
            place += 1
    return n


@kernel
def waited_seconds(t, traffic, cell):
    """Seconds of a layer in which messages for weights stand still: one on the same level is waited for."""
    found = 0.0
    for level in range(t.levels):
        if t.i[t.level_busy + traffic * t.levels + level]:
            found = max(found, t.f[t.waits + cell * t.levels + level])
    return found


@kernel
def leave_segment(t, overlap, row, kind, segments, n, last, before):
    """What comes after the last layer, and so many segments: gradients go to the host, weights are updated."""
    late, place = kind in (B, W), t.i[t.traffic_segment_at + row] + before
    reduce = t.f[t.leave_back + row] if late else 0.0
    updated = t.f[t.slot_update + row] if late else 0.0
    if kind in (B, I):
        updated += t.f[t.leave_copy + row]
    if overlap:
        once = t.f[t.once + place] if last else 0.0
        sent = reduce + (t.f[t.buckets + place] if late else 0.0)
        return add_segment(segments, n, updated, 0.0, updated, 0.0, sent, once)
    busy = updated + reduce + (t.f[t.buckets_all + row] if late else 0.0)
    return add_segment(segments, n, busy, 0.0, busy, 0.0, 0.0, 0.0)


@kernel
def soft_maximum(segments, begun, end, q):
    """Host and device meet over a slot in a soft maximum: the device takes longer, no launch is waited for."""
    device, host = 0.0, 0.0
    for n in range(begun, end, SEGMENT):
        device += segments[n + DEVICE]
        host += segments[n + HOST]
    more = (device**q + host**q) ** (1 / q) / device - 1 if device else 0.0
    for n in range(begun, end, SEGMENT):
        longer = segments[n + DEVICE] * more
        segments[n + DEVICE] += longer
        segments[n + ROOM] += longer
        segments[n + HOST] = 0.0


@kernel
def segments_at_most(t, partition, kinds):
    """Room for all segments of a plan."""
    found = 0
    for signature in range(t.i[t.partition_at + partition], t.i[t.partition_at + partition + 1]):
        layers = 2
        for run in range(t.i[t.run_at + signature], t.i[t.run_at + signature + 1]):
            layers += t.i[t.run_times + run]
        found += layers * (kinds + kinds // 2)
    return found


@kernel
def all_segments(t, plans, at):
    """The segments of all stage signatures, and where those of a signature and a kind of slot begin and end.

    Those of the last slots stand behind the usual ones.
    """
    partition = plans.i[plans.partition + at]
    kinds = 4 if plans.i[plans.splits + at] else 2
    segments = zeros(SEGMENT * segments_at_most(t, partition, kinds))
    signatures = t.i[t.partition_at + partition + 1] - t.i[t.partition_at + partition]
    begin, end = whole_zeros(signatures * PLACES), whole_zeros(signatures * PLACES)
    overlap = plans.f[plans.overlap + at]
    n = 0
    for signature in range(signatures):
        row = t.i[t.traffic_at + plans.i[plans.traffic + at]] + signature
        for kind in range(kinds):
            place = signature * PLACES + kind
            begin[place] = n
            n = slot_segments(t, plans, at, signature, kind, segments, n, False)
            end[place] = n
            begin[place + LAST], end[place + LAST] = begin[place], end[place]
            if overlap and t.f[t.once_all + row] and kind in (B, W):
                begin[place + LAST] = n
                n = slot_segments(t, plans, at, signature, kind, segments, n, True)
                end[place + LAST] = n
    return segments, begin, end
