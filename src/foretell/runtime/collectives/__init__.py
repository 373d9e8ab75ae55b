"""Collectives done for real, one file per algorithm, under the names that `cost/collectives` prices them by.

An algorithm is a schedule: rounds of messages, as plain values. The same rounds are carried out between processes
(`_lines`), rehearsed in one process and counted (`_rehearsal`), and timed against the formula (`foretell lab measure`).

    from foretell.runtime.collectives import chosen
    list(chosen("ring").rounds("all-reduce", Team.of(rank=0, ranks=4, size=1024)))
"""

from foretell.runtime.collectives._choice import ALGORITHMS, Choice, chosen
from foretell.runtime.collectives._schedule import Message, Round, Span, Team

__all__ = ["ALGORITHMS", "Choice", "Message", "Round", "Span", "Team", "chosen"]
