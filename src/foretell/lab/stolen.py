"""How much of its cores this machine did not get: where a server lends them to others, that is what is measured.

Linux counts it (proc(5), `steal`): time in which somebody here wanted a core, and the machine that this one is emulated
on had given it to others. Programs of this machine are no part of it; ranks that are timed go before those.
"""

from __future__ import annotations

from pathlib import Path

STAT = Path("/proc/stat")

CALM = 0.02
"""Share of the wanted time up to which times are believed."""


class Stolen:
    """Counts from now on."""

    def __init__(self) -> None:
        self._stolen, self._wanted = _counted()

    def share(self) -> float:
        """Of the time that cores were wanted since then, the part in which they were elsewhere."""
        stolen, wanted = _counted()
        return (stolen - self._stolen) / max(1, wanted - self._wanted)


def _counted() -> tuple[int, int]:
    """Ticks of all cores: stolen ones, and all in which somebody wanted one. None where nobody counts."""
    if not STAT.exists():
        return 0, 0
    user, nice, system, _, _, irq, softirq, stolen, *_ = map(int, STAT.read_text().partition("\n")[0].split()[1:])
    return stolen, user + nice + system + irq + softirq + stolen


def told(share: float) -> str:
    """What to say of it; nothing where times are to be believed."""
    if share <= CALM:
        return ""
    return f"note: this machine did not get its cores for {share:.0%} of the time that it wanted them; times are longer"
