"""What training algorithms do with gradients and messages, whoever carries them.

An algorithm is written once, against a `World`. `foretell.virtual` plays that world on a simulated clock,
`foretell.runtime` on real processes: the same object, so what one says of it the other can be held to.

    world.py         workers, a server, and what they can do: compute, push, reply, send
    algorithms/      what a worker does with a gradient and a server with a message; one file each
    topologies/      which ways messages take; one file each
    compressors/     what becomes of a gradient before it travels, and how it is written; one file each
"""
