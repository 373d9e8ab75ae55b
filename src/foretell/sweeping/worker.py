"""`python -m foretell.sweeping.worker`: cells come in, one line of JSON each, and answers go out."""

from __future__ import annotations

import os
import sys

import msgspec

from foretell.sweeping.answering import answered
from foretell.sweeping.cell import Cell


def main() -> None:
    """Until nobody asks any more. What a user's model prints goes to standard error, not between the answers."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin.buffer:
        replies.write(msgspec.json.encode(answered(msgspec.json.decode(line, type=Cell))) + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
