"""Whether predictions work: a worker is asked one, at most once in a while."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from foretell.serve.crew import Crew
from foretell.serve.worker import WorkerTask

SMALL: Final = WorkerTask("predict", b'{"model":"mlp","cluster":"h100","batch":1,"plan":""}')

INTERVAL: Final = 10.0
"""Seconds that one look is good for, however many ask."""

PATIENCE: Final = 5.0
"""Seconds in which somebody has to answer."""


class HealthCheck:
    """What the last look said."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.looked_at = -INTERVAL
        self.looking: asyncio.Task[bool] | None = None

    async def well(self) -> bool:
        """Whether a worker answers. All who ask at once wait for one look."""
        if self.looking is None or (self.looking.done() and time.monotonic() - self.looked_at >= INTERVAL):
            self.looking = asyncio.create_task(self._look())
        return await asyncio.shield(self.looking)

    async def _look(self) -> bool:
        """Workers that are all at work are well if one of them answered since the longest answer would have begun."""
        try:
            reply = await asyncio.wait_for(self.crew.asked_anew(SMALL), PATIENCE)
            return reply.kind == "answer"
        except TimeoutError:
            return time.monotonic() - self.crew.answered_at < self.crew.seconds + PATIENCE
        finally:
            self.looked_at = time.monotonic()
