"""Predictions that were kept, signed again after they were spoiled."""

import json
import random

from foretell.cli.kept import digest
from fuzz.mutate import json_form
from fuzz.reader import Reader, command, files


def _signed(content: bytes, rng: random.Random) -> bytes:
    spoiled = json_form(content, rng)
    try:
        tree = json.loads(spoiled)
        tree["content"]["hash"] = digest(tree["content"]["question"], tree["content"]["answer"])
        return json.dumps(tree, indent=1).encode()
    except (ValueError, TypeError, LookupError, RecursionError):
        return spoiled


READER = Reader(
    form=_signed,
    samples=files("tests/fuzz/samples/prediction.json"),
    entries=(
        command("check", "{file}"),
        command("check", "{file}", "--json"),
        command("results", "show", "{file}"),
    ),
)
