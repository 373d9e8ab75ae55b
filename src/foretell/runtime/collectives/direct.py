"""Direct: every rank sends each other one its part, pair by pair.

(n - 1)(alpha + m/n beta): an all-to-all moves no less. In round s a rank sends to the s-th after it and hears from the
s-th before it, so that every port is busy with one message.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretell.runtime.collectives._schedule import Round, Team

KINDS = ("all-to-all", "all-gather", "reduce-scatter")


def rounds(kind: str, team: Team) -> Iterator[Round]:
    for step in range(1, len(team)):
        to, back = team.at + step, team.at - step
        sent = team.at if kind == "all-gather" else to
        got = team.at if kind == "reduce-scatter" else back
        yield Round(
            (team.send(to, team.block(sent)),), (team.send(back, team.block(got)),), adds=kind == "reduce-scatter"
        )
