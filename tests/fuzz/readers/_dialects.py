"""What the readers of configurations share: files of each dialect, as foretell writes them, and who reads them."""

from __future__ import annotations

from collections.abc import Callable

import foretell
from foretell.dialects import dialect, names
from foretell.errors import ForetellError
from fuzz.reader import Entry, command

ENTRIES: tuple[Entry, ...] = (
    command("predict", "--from-config", "{file}", "--on", "16xh100"),
    command("predict", "llama3-8b", "--from-config", "{file}", "--on", "16xh100", "--batch", "64", "--json"),
    command(
        "export", "llama3-8b", "--from-config", "{file}", "--on", "16xh100", "--batch", "64", "--to", "megatron-lm"
    ),
    command("program", "llama3-8b", "--from-config", "{file}", "--batch", "64", "--on", "16xh100"),
)

PLANS = ("dp16:zero3 +bf16", "pp2:1f1b dp2:zero1 tp4:sp +m8 +bf16", "dp8:zero2 tp2 +m2 +bf16 +recompute:block")


def written(form: str, *others: str) -> Callable[[], list[bytes]]:
    """Files of all dialects that are written in a format: JSON, TOML, YAML, a script, Python."""

    def samples() -> list[bytes]:
        found = [other.encode() for other in others]
        for name in (name for name in names() if dialect(name).format.name == form):
            for plan in PLANS:
                try:
                    found.append(foretell.export("llama3-8b", "16xh100", plan, 64, to=name).text.encode())
                except ForetellError:
                    continue  # what this trainer cannot express
        assert found, form
        return found

    return samples
