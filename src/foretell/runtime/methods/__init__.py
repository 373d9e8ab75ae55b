"""The algorithms of `foretell simulate` on real processes: each rank goes at its own pace.

The objects of `foretell.learning.algorithms` are the same; what differs is who carries a message and what the time is.

    choice.py     which algorithm a plan's axis means (`ps4:ssp,s3` is ssp:s=3 with one server), or `--method`
    post.py       letters between ranks, over gloo
    sides.py      a worker's side of an algorithm, and a server's
    training.py   a rank that trains so, measured as any other
"""
