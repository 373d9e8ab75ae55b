"""What the host does more where PyTorch wraps modules and weights, in the time that it needs to start an operator.

So figures follow the host: where starting an operator is measured, these are known with it. They are carried from one
machine to another as ratios; seconds are not.
"""

from __future__ import annotations

from typing import Final

import msgspec

from foretell.plan.figures import Ratio


class Wrapped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times `host.launch`, each."""

    product_forward: Ratio  # a product whose weight is split among tensor ranks: hooks of its module, placements
    product_backward: Ratio
    norm_forward: Ratio  # a norm whose tokens are split among them
    norm_backward: Ratio
    message: Ratio  # a message of activations or their gradients among tensor ranks
    turn: Ratio  # a turn of a ring: keys and values go on, and others come
    unit: Ratio  # either pass of a unit of weights in shares: gathered, let go, its gradients sent
    unit_tensor: Ratio  # and of each of its tensors
    region: Ratio  # either pass of a layer that runs again in the backward pass, beside what runs
    watched: Ratio  # a launch in a layer that is asked for each operator whether its output is saved, forward and again
    update: Ratio  # a tensor of the optimizer's step whose weight is split or in shares


OF_SPLIT: Final = ("product_forward", "product_backward", "norm_forward", "norm_backward", "message")
"""The constants of layers that are split among tensor ranks."""

PLAIN_MESSAGE: Final = 2.5
"""Launches that a message takes where layers hold plain shares: 1.6 for a sum, 3.1 for a gather and 2.5 for a sum in
shares, each with its autograd function (PyTorch 2.13 on a processor: benchmarks/message_host.py)."""


def in_plain_shares(known: Wrapped) -> Wrapped:
    """The same for software whose split layers hold plain shares of weights."""
    message = min(known.message, PLAIN_MESSAGE)
    return msgspec.structs.replace(known, **{**dict.fromkeys(OF_SPLIT, 0.0), "message": message})


def in_one_graph(known: Wrapped) -> Wrapped:
    """The same where layers are compiled: what DTensors and checkpoints do in Python is done once, while tracing.

    A compiled layer on 8 tensor ranks took 82 ms where the eager one took 259 (studies/h200_rehearsals, torchtitan).
    Units of weights have their hooks around layers, outside of what is compiled.
    """
    return msgspec.structs.replace(in_plain_shares(known), message=0.0, turn=0.0, region=0.0, watched=0.0)
