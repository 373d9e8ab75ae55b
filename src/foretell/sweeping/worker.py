"""`python -m foretell.sweeping.worker`: cells come in, one line of JSON each, and answers go out."""

from __future__ import annotations

import msgspec

from foretell.processes import answer_lines, end_with_parent
from foretell.sweeping.answering import answered
from foretell.sweeping.cell import SweepCell

if __name__ == "__main__":
    end_with_parent()
    answer_lines(lambda line: msgspec.json.encode(answered(msgspec.json.decode(line, type=SweepCell))))
