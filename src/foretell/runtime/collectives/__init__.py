"""Collectives done for real, one file per algorithm, under the names that `cost/collectives` prices them by.

An algorithm is a schedule: rounds of messages, as plain values. The same rounds are carried out between processes
(`_lines`), rehearsed in one process and counted (`_rehearsal`), and timed against the formula (`foretell lab measure`).

    from foretell.runtime.collectives import chosen
    list(chosen("ring").rounds("all-reduce", Team.of(rank=0, ranks=4, size=1024)))
"""

from foretell.runtime.collectives._choice import ALGORITHMS, AlgorithmChoice, chosen
from foretell.runtime.collectives._schedule import ElementSpan, Message, Round, Team

__all__ = ["ALGORITHMS", "AlgorithmChoice", "ElementSpan", "Message", "Round", "Team", "chosen"]
