"""Six verbs, ended by a signal at a random moment: what do they leave behind, and do they go on?

    python benchmarks/kills.py [--kills 60] [--seed 0] [--only run,sweep]

After each kill: it ended within ten seconds with the exit code of its signal (or had ended before), no process of it is
left, no temporary folder (after SIGKILL: none once the next command has run), every file is whole, and a file that was
to be replaced is the old one or the new one. Then the same command goes on, and its answer is that of one that nobody
killed. Ends with 1 if any of this is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SIGNALS = (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)
GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL where somebody is in a hurry."""

MARK = "FORETELL_KILLED"
"""A variable that all processes of a command have."""

OLD = "the old report"


class Verb(NamedTuple):
    """A command, and what of its answer has to be the same however often it was begun."""

    words: tuple[str, ...]
    answer: Callable[[dict[str, Any]], Any]
    resumed: tuple[str, ...] = ()  # words that make it go on
    ends: bool = True  # by itself


SWEEP = ("--model", "lenet,alexnet", "--on", "8xh100,64xh100", "--batch", "64..256", "--plan", "dp8", "--jobs", "2")
RUN = ("lenet", "--plan", "dp2", "--batch", "8", "--steps", "20", "--device", "cpu", "--checkpoint", "kept")
SIMULATE = ("lenet", "--on", "4xv100-16", "--workers", "4", "--algorithms", "sync,async", "--html", "report.html")
VERBS = {
    "run": Verb(("run", *RUN, "--checkpoint-every", "3", "--records", "records"), lambda told: told["losses"]),
    "bench": Verb(
        ("bench", "--engine", "ddp,gpipe", "--pair", "image", "--ranks", "2", "--steps", "4", "--out", "study"),
        lambda told: [(row["engine"], row["status"], row["losses"]) for row in told["rows"]],
    ),
    "sweep": Verb(("sweep", *SWEEP, "--out", "kept"), lambda told: told["rows"]),
    "calibrate": Verb(
        ("calibrate", "--quick", "--only", "matmul,launch", "--device", "cpu", "--out", "calibration.json"),
        lambda told: (told["samples"], told["complete"]),
        ("--resume",),
    ),
    "simulate": Verb(("simulate", *SIMULATE), lambda told: told),
    "serve": Verb(("serve", "--port", "0"), lambda told: sorted(told), ends=False),
}


class Command:
    """A command that runs in a folder of its own."""

    def __init__(self, words: tuple[str, ...], folder: Path) -> None:
        self.mark, self.folder = uuid.uuid4().hex, folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.errors = folder / "errors.txt"
        own = {MARK: self.mark, "TMPDIR": str(self.temporary), "FORETELL_RECORDS": str(folder / "records")}
        own["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torch")
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "foretell", *words, "--json"],
                cwd=folder,
                env={**os.environ, **own},
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # as a queue does
            )

    def ended(self) -> dict[str, Any]:
        """Its answer, when it has ended by itself."""
        out, _ = self.process.communicate(timeout=600)
        if self.process.returncode:
            raise AssertionError(f"ended with {self.process.returncode}: {self.errors.read_text()[-300:]}")
        return json.loads(out.splitlines()[-1])

    def left(self) -> list[str]:
        """Processes of it that are there, by what they are."""
        found: list[str] = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80])
            except OSError:
                continue
        return found


def kill(verb: Verb, folder: Path, number: signal.Signals, after: float) -> tuple[list[str], float] | None:
    """Begin, wait, kill; what is wrong then, and the seconds until it had ended. None where nobody was left to kill."""
    command = Command(verb.words, folder)
    try:
        command.process.communicate(timeout=after)
        return None
    except subprocess.TimeoutExpired:
        command.process.send_signal(number)
    begun = time.monotonic()
    try:
        command.process.wait(GRACE)
    except subprocess.TimeoutExpired:
        command.process.kill()
        command.process.wait()
        return [f"was there {GRACE:g} s after {number.name}"], GRACE
    took, code = time.monotonic() - begun, command.process.returncode
    assert command.process.stdout
    command.process.stdout.close()
    wrong = [] if code in (0, -number, 128 + number) else [f"ended with {code}"]
    while command.left() and time.monotonic() - begun < GRACE:
        time.sleep(0.05)
    wrong += [f"left a process: {one}" for one in command.left()]
    if number != signal.SIGKILL:
        wrong += [f"left {one.name}" for one in command.temporary.iterdir()]
        said = command.errors.read_text()
        if (
            code == 128 + number
            and not said.startswith("foretell: ")
            and "\nforetell: " not in said
            and "note:" not in said
        ):
            wrong.append(f"said {said[-80:]!r}")
        wrong += ["a traceback"] if "Traceback" in said else []
    return wrong + half_files(folder, number), took


def half_files(folder: Path, number: signal.Signals) -> list[str]:
    """Files that are not whole."""
    wrong: list[str] = []
    for file in folder.rglob("*"):
        if file.is_dir() or folder / "tmp" in file.parents or folder / "torch" in file.parents:
            continue
        if file.suffix == ".json":
            try:
                json.loads(file.read_bytes())
            except ValueError:
                wrong.append(f"{file.name} is half a file")
        elif file.suffix == ".part" and file.name.startswith(".") and number != signal.SIGKILL:
            wrong.append(f"left {file.name}")
    page = folder / "report.html"
    if page.is_file() and page.read_text() != OLD and not page.read_text().rstrip().endswith("</html>"):
        wrong.append("report.html is half a file")
    return wrong


def goes_on(verb: Verb, folder: Path, whole: Any) -> list[str]:
    """What is wrong with the same command after it."""
    if not verb.ends:
        return []
    command = Command((*verb.words, *verb.resumed), folder)
    try:
        found = verb.answer(command.ended())
    except AssertionError as problem:
        return [f"does not go on: {problem}"]
    wrong = [] if found == whole else [f"another answer: {str(found)[:200]}"]
    return wrong + [f"left {one.name} after the next command" for one in command.temporary.iterdir()]


def whole_of(verb: Verb) -> tuple[Any, float]:
    """The answer that nobody interrupted, and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        command = Command(verb.words, Path(folder))
        if verb.ends:
            answer = verb.answer(command.ended())
            return answer, time.monotonic() - begun
        assert command.process.stdout
        command.process.stdout.readline()
        took = time.monotonic() - begun
        command.process.terminate()
        command.process.communicate()
        return None, 1.5 * took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(VERBS))
    asked = parser.parse_args()
    draws = random.Random(asked.seed)
    names = asked.only.split(",")
    known = {name: whole_of(VERBS[name]) for name in names}
    good, longest = 0, 0.0
    for at in range(asked.kills):
        name = names[at % len(names)]
        verb, (whole, span) = VERBS[name], known[name]
        number, after = draws.choice(SIGNALS), draws.uniform(0.0, span)
        with tempfile.TemporaryDirectory(prefix="kill-") as place:
            while True:
                folder = Path(tempfile.mkdtemp(dir=place))
                (folder / "report.html").write_text(OLD)
                if (found := kill(verb, folder, number, after)) is not None:
                    break
                after *= 0.7  # it was faster than before
            wrong, took = found
            said = (folder / "errors.txt").read_text().strip().splitlines()[-1:] or [""]
            wrong += goes_on(verb, folder, whole)
        good, longest = good + (not wrong), max(longest, took)
        verdict = "; ".join(wrong) or "good"
        print(
            f"{name:<9} {number.name:<7} after {after:5.2f} s, gone in {took:.2f} s  {verdict}  {said[0][:100]}",
            flush=True,
        )
    print(
        f"{good} of {asked.kills} kills left nothing behind and went on with the same answer; gone in {longest:.1f} s"
    )
    sys.exit(good < asked.kills)


if __name__ == "__main__":
    main()
