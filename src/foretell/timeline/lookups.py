"""What kernels look up of a plan in more than one place. Kernels, as in `timeline.segments`."""
# Tables are lists or arrays, and compilers infer types: annotations would have to lie.
# pyright: basic

from foretell.compiling import kernel


@kernel
def has_streams(t, plans, at):
    """Whether messages for weights travel beside the computation in every micro-batch."""
    return t.i[t.traffic_inline + plans.i[plans.traffic + at]] > 0 and plans.f[plans.overlap + at] > 0.0


@kernel
def rank_sum(t, plans, at, rank, values, base):
    """The sum of a column of stage signatures over the stages of a rank."""
    order = plans.i[plans.order + at]
    stage_at = t.i[t.stage_at + plans.i[plans.partition + at]]
    place = t.i[t.rank_at + order] + rank
    found = 0.0
    for n in range(t.i[t.held_at + place], t.i[t.held_at + place + 1]):
        found += t.f[values + base + t.i[t.stage_signature + stage_at + t.i[t.held + n]]]
    return found
