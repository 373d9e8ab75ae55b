"""Slots of all ranks in an order in which they can run, each after those it waits for. Kernels, as in `plan.unroll`."""
# Tables are lists or arrays, and compilers infer types: annotations would have to lie.
# pyright: basic

from foretell.compiling import kernel, whole_zeros
from foretell.plan.unroll import B, F, I, W

FIRST, SECOND = 1, 2
"""Of a forward and a backward that run together."""


@kernel
def flattened(slots, path_first, path_last, stages, place):
    """An order of all ranks' slots, each after the one it waits for: the slot and its rank, and where that one is.

    Slots that run together (of one `block`) come one after the other, after all that either waits for.

    `place` is room for where the forward and the backward of each stage and micro-batch are, -1 as long as nowhere.
    """
    row_at, kind, stage, microbatch, block = slots.row_at, slots.kind, slots.stage, slots.microbatch, slots.block
    ranks, total = len(row_at) - 1, row_at[len(row_at) - 1]
    count = len(path_first)
    slot, rank, source = whole_zeros(total), whole_zeros(total), whole_zeros(total)
    at = whole_zeros(ranks)
    done = 0
    moved = True
    while moved:
        moved = False
        for r in range(ranks):
            while row_at[r] + at[r] < row_at[r + 1]:
                n = row_at[r] + at[r]
                stop, ready = n, True
                while stop < row_at[r + 1] and block[stop] == block[n]:
                    needs = needed(kind[stop], stage[stop], microbatch[stop], path_first, path_last, stages)
                    ready = ready and (needs < 0 or place[needs] >= 0)
                    stop += 1
                if not ready:
                    break
                for own in range(n, stop):
                    one, batch = stage[own], microbatch[own]
                    needs = needed(kind[own], one, batch, path_first, path_last, stages)
                    slot[done], rank[done] = own, r
                    source[done] = place[needs] if needs >= 0 else -1
                    if kind[own] == F:
                        place[one * count + batch] = done
                    elif kind[own] != W:
                        place[stages * count + one * count + batch] = done
                    done += 1
                    at[r] += 1
                moved = True
    return slot, rank, source, done


@kernel
def needed(kind, stage, microbatch, path_first, path_last, stages):
    """The place of what a slot waits for, which must be filled; -1: nothing."""
    count = len(path_first)
    if kind == W:
        return stages * count + stage * count + microbatch
    if kind == F:
        return (stage - 1) * count + microbatch if stage != path_first[microbatch] else -1
    if stage == path_last[microbatch]:
        return stage * count + microbatch
    return stages * count + (stage + 1) * count + microbatch


@kernel
def pairs(row_at, kind, block, pair):
    """Mark the first and the second of a forward and a backward that run together."""
    for r in range(len(row_at) - 1):
        for n in range(row_at[r], row_at[r + 1] - 1):
            if block[n] == block[n + 1] and kind[n] + kind[n + 1] == F + B:
                pair[n], pair[n + 1] = FIRST, SECOND


@kernel
def posted(kind, source, puts, takes):
    """Places where what slots send waits until it is taken, as few as can be; how many there are.

    The first place is for what nobody takes. A place is free again after the slot that takes what lies there has put
    down its own: so the two never are one.
    """
    taken, unused = whole_zeros(len(source)), whole_zeros(len(source) + 1)
    for n in range(len(source)):
        if source[n] >= 0 and kind[n] != W:
            taken[source[n]] = 1
    places, free = 1, 0
    for n in range(len(source)):
        if taken[n]:
            if free:
                free -= 1
                puts[n] = unused[free]
            else:
                puts[n] = places
                places += 1
        if source[n] >= 0 and kind[n] != W:
            takes[n] = puts[source[n]]
            unused[free] = takes[n]
            free += 1
    return places


@kernel
def ends(row_at, kind, stage, stages, is_last):
    """Mark the last slot of each stage of a rank that makes gradients of weights."""
    for r in range(len(row_at) - 1):
        seen = whole_zeros(stages)
        for back in range(row_at[r + 1] - row_at[r]):
            n = row_at[r + 1] - 1 - back
            if (kind[n] == B or kind[n] == W) and not seen[stage[n]]:
                seen[stage[n]] = 1
                is_last[n] = 1


@kernel
def tails(rank, last, ranks, tail, places):
    """Mark each rank's first last slot and all after it, and write their places down; how many there are."""
    begun = whole_zeros(ranks)
    found = 0
    for n in range(len(rank)):
        if last[n]:
            begun[rank[n]] = 1
        if begun[rank[n]]:
            tail[n] = 1
            places[found] = n
            found += 1
    return found


@kernel
def in_flight(row_at, kind, stage, held, chunks, flying):
    """Of each slot of each rank, the micro-batches in flight before it: between their forward and the end of their
    backward pass, by the stages of the rank (`held`, `chunks` of each). Where there is none, nothing waits for it."""
    for r in range(len(row_at) - 1):
        now, goes_back = whole_zeros(chunks), False
        for n in range(row_at[r], row_at[r + 1]):
            goes_back = goes_back or kind[n] != F
        for n in range(row_at[r], row_at[r + 1]):
            for c in range(chunks):
                flying[n * chunks + c] = now[c]
            if goes_back and kind[n] != I:  # a pass that is cut in two lets go with its second half
                now[chunk_of(held, r * chunks, stage[n])] += 1 if kind[n] == F else -1


@kernel
def chunk_of(held, first, stage):
    """Which of its stages, which stand from `first` on, a rank calls so."""
    chunk = 0
    while held[first + chunk] != stage:
        chunk += 1
    return chunk


@kernel
def fullest(row_at, kind, stage, held, chunks, flying, kept, begin):
    """The slots in which a rank may hold most: no other of their stage and way has as much of all in flight.

    `kept` is for their numbers, rank after rank from `begin` on.
    """
    found = 0
    for r in range(len(row_at) - 1):
        begin[r] = found
        room = row_at[r + 1] - row_at[r]
        own = whole_zeros(2 * chunks)  # how many of each chunk and way
        numbers = whole_zeros(2 * chunks * room)
        for n in range(row_at[r], row_at[r + 1]):
            way = 2 * chunk_of(held, r * chunks, stage[n]) + (1 if kind[n] == F else 0)
            own[way] = kept_beside(n, numbers, way * room, own[way], flying, chunks)
        found = merged(own, numbers, room, kept, found)
    begin[len(row_at) - 1] = found


@kernel
def kept_beside(slot, numbers, first, count, flying, chunks):
    """Add a slot to those that may hold most, in place of those with less of all in flight; how many there are."""
    left = 0
    for n in range(first, first + count):
        more, less = True, True
        for c in range(chunks):
            more = more and flying[numbers[n] * chunks + c] >= flying[slot * chunks + c]
            less = less and flying[numbers[n] * chunks + c] <= flying[slot * chunks + c]
        if more:
            return count
        if not less:
            numbers[first + left] = numbers[n]
            left += 1
    numbers[first + left] = slot
    return left + 1


@kernel
def merged(own, numbers, room, kept, found):
    """The slots of all chunks and ways in one row, by their numbers, from `found` on; where they end."""
    at = whole_zeros(len(own))
    while True:
        least = -1
        for way in range(len(own)):
            if at[way] < own[way]:
                number = numbers[way * room + at[way]]
                if least < 0 or number < numbers[least * room + at[least]]:
                    least = way
        if least < 0:
            return found
        kept[found] = numbers[least * room + at[least]]
        at[least] += 1
        found += 1
