"""Real learning under a simulated clock: what a training run comes to when nobody waits for a cluster.

Workers, servers and links take the times that the oracle predicts; gradients are real. So algorithms that trade
throughput for freshness (stale, asynchronous, averaged, compressed) are compared by what counts, time to a quality,
in seconds and to the bit again with the same seed.

    engine.py        the clock: a heap of events
    world.py         workers, a server, and what they can do: compute, push, reply, send
    algorithms/      what a worker does with a gradient and a server with a message; one file each
    topologies/      which ways messages take; one file each
    compressors/     what becomes of a gradient before it travels; one file each
    problems/        what is learnt
    pace.py          how long everything takes: figures, or the oracle's for a cluster
    disturbance.py   jitter, stragglers, slow workers, failures, joins and leaves
"""
