"""What the card says of its power, again and again, from a process of its own: `python sampler.py FILE MILLISECONDS`.

Reads through NVML and changes nothing. A line is a list: monotonic seconds, watts now, watts averaged by the driver
over a second, joules since the driver was loaded, MHz of the multiprocessors and of the memory, degrees, and why clocks
are held back (NVML's bits). Without NVML's library it asks `nvidia-smi` instead, which has no joules. Ends when its
standard input does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

POWER_INSTANT, POWER_AVERAGE = 186, 185
MULTIPROCESSORS, MEMORY = 1, 2


class FieldValue(ctypes.Structure):
    """NVML's nvmlFieldValue_t; an unsigned int is all that is read of the value."""

    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("answer", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    )


class Card:
    """The first card, through NVML."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        if self.library.nvmlInit_v2():
            raise OSError("NVML does not start")
        self.handle = ctypes.c_void_p()
        if self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)):
            raise OSError("NVML shows no card")

    def number(self, name: str, *more: int, kind: Any = ctypes.c_uint) -> int | None:
        value = kind()
        try:
            refused = getattr(self.library, name)(self.handle, *more, ctypes.byref(value))
        except AttributeError:
            return None
        return None if refused else int(value.value)

    def field(self, which: int) -> int | None:
        asked = FieldValue(field=which)
        refused = self.library.nvmlDeviceGetFieldValues(self.handle, 1, ctypes.byref(asked))
        return None if refused or asked.answer else int(asked.value & 0xFFFFFFFF)

    def limits(self) -> dict[str, int | None]:
        """Milliwatts that the card may take, and the clocks that it may reach."""
        names = {
            "enforced_limit_mw": ("nvmlDeviceGetEnforcedPowerLimit",),
            "default_limit_mw": ("nvmlDeviceGetPowerManagementDefaultLimit",),
            "most_sm_mhz": ("nvmlDeviceGetMaxClockInfo", MULTIPROCESSORS),
            "most_memory_mhz": ("nvmlDeviceGetMaxClockInfo", MEMORY),
        }
        return {word: self.number(*call) for word, call in names.items()}  # type: ignore[arg-type]

    def read(self) -> list[float | None]:
        now, second = self.field(POWER_INSTANT), self.field(POWER_AVERAGE)
        second = second if second is not None else self.number("nvmlDeviceGetPowerUsage")
        joules = self.number("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong)
        return [
            time.monotonic(),
            None if now is None else now / 1e3,
            None if second is None else second / 1e3,
            None if joules is None else joules / 1e3,
            self.number("nvmlDeviceGetClockInfo", MULTIPROCESSORS),
            self.number("nvmlDeviceGetClockInfo", MEMORY),
            self.number("nvmlDeviceGetTemperature", 0),
            self.number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong),
        ]


def asked(milliseconds: int) -> Iterator[list[float | None]]:
    """The same of `nvidia-smi`, where NVML's library cannot be loaded."""
    words = "power.draw.instant,power.draw.average,clocks.sm,clocks.mem,temperature.gpu"
    command = ["nvidia-smi", f"--query-gpu={words}", "--format=csv,noheader,nounits", f"-lms={milliseconds}", "-i", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout or ():
            numbers: list[float | None] = []
            for word in line.split(","):
                with contextlib.suppress(ValueError):
                    numbers.append(float(word))
            if len(numbers) == 5:
                yield [time.monotonic(), *numbers[:2], None, *numbers[2:], None]


def main(out: Path, milliseconds: int) -> None:
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    with out.open("w") as file:
        try:
            card = Card()
            file.write(json.dumps({"by": "nvml", **card.limits()}) + "\n")
        except (OSError, AttributeError) as problem:
            file.write(json.dumps({"by": "nvidia-smi", "because": str(problem)[:200]}) + "\n")
            for numbers in asked(milliseconds):
                file.write(json.dumps(numbers) + "\n")
                file.flush()
                if ended.is_set():
                    return
            return
        while not ended.wait(milliseconds / 1e3):
            file.write(json.dumps(card.read()) + "\n")
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
