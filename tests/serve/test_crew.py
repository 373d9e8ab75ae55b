"""Workers that grow or end while nobody asks them, whether all is well, and what messages say of this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from foretell.errors import BadInput
from foretell.plan.refusal import PlanRefused, Refusal
from foretell.serve import health
from foretell.serve.crew import MOST_HELD, Crew, problem
from foretell.serve.health import SMALL, HealthCheck
from foretell.serve.problem import problem_of
from foretell.serve.worker import Reply, WorkerTask, answered
from serve_client import PATIENT

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def all_of_it() -> T:
        return await work()

    return asyncio.run(all_of_it())


class Growing:
    """A worker that answers, and says how large it is by then."""

    def __init__(self, held: int = 0) -> None:
        self.held, self.ended = held, asyncio.Event()
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()

    async def end(self) -> None:
        self.ended.set()

    async def ask(self, task: WorkerTask) -> Reply:
        self.asked.set()
        await self.go.wait()
        return Reply("answer", 200, task.body, held=self.held)


@pytest.mark.parametrize("busy", [False, True])
def test_who_has_grown_answers_until_another_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool):
    async def work() -> None:
        crew, large, small = Crew(tmp_path, 1, seconds=600.0), Growing(MOST_HELD + 1), Growing()
        ready = asyncio.Event()

        async def hired(self: Crew) -> bool:
            await ready.wait()
            crew.all.add(cast(Any, small))
            crew.idle.put_nowait(cast(Any, small))
            return True

        monkeypatch.setattr(Crew, "_hired", hired)
        crew.all.add(cast(Any, large))
        crew.idle.put_nowait(cast(Any, large))
        for at in range(3):  # and it is hired for once
            assert (await crew.answer(WorkerTask("predict", str(at).encode()))).status == 200
        assert len(crew.hiring) == 1 and large.alive
        large.asked.clear()
        if busy:
            large.go.clear()
        last = asyncio.create_task(crew.answer(WorkerTask("predict", b"last")))
        await asyncio.wait_for(large.asked.wait() if busy else last, PATIENT)
        ready.set()
        await asyncio.gather(*crew.hiring)
        assert large.alive == busy
        large.go.set()
        assert (await last).status == 200
        await asyncio.wait_for(large.ended.wait(), PATIENT)
        assert (await crew.answer(WorkerTask("predict", b"next"))).status == 200
        assert crew.all == {small} and not crew.busy and not crew.outgrown

    run(work)


def test_who_ended_while_idle_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hired = list[bool]()
    monkeypatch.setattr(Crew, "_hire", lambda crew: hired.append(True))

    async def work() -> None:
        crew, gone, there = Crew(tmp_path, 2, seconds=600.0), Growing(), Growing()
        for one in (there, gone):
            crew.all.add(cast(Any, one))
            crew.idle.put_nowait(cast(Any, one))
        await gone.end()
        assert (await crew.answer(WorkerTask("predict", b"{}"))).status == 200
        assert crew.all == {there} and len(hired) == 1

    run(work)


def test_all_who_ask_for_health_wait_for_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def work() -> None:
        crew, worker = Crew(tmp_path, 1, seconds=600.0), Growing()
        crew.all.add(cast(Any, worker))
        crew.idle.put_nowait(cast(Any, worker))
        looks, check = list[WorkerTask](), HealthCheck(crew)
        monkeypatch.setattr(health, "INTERVAL", 10 * PATIENT)
        ask = worker.ask

        async def counted(task: WorkerTask) -> Reply:
            looks.append(task)
            return await ask(task)

        monkeypatch.setattr(worker, "ask", counted)
        assert all(await asyncio.gather(*(check.well() for _ in range(20)))) and len(looks) == 1
        assert await check.well() and len(looks) == 1
        check.looked_at -= health.INTERVAL
        assert await check.well() and len(looks) == 2, "it is asked, and not answered from what is kept"

    run(work)


@pytest.mark.parametrize("lately", [True, False])
def test_who_is_busy_is_well_and_who_does_not_answer_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lately: bool
):
    monkeypatch.setattr("foretell.serve.health.PATIENCE", 0.0)

    async def work() -> bool:
        crew = Crew(tmp_path, 1, seconds=600.0)
        crew.all.add(cast(Any, Growing()))  # and nobody is idle
        if lately:
            crew.answered_at = time.monotonic() - 300  # as long as one answer may take
        return await HealthCheck(crew).well()

    assert run(work) is lately


def test_a_refusal_of_the_small_question_is_no_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def refused(self: Crew, task: WorkerTask) -> Reply:
        return problem(503, "nobody is there")

    monkeypatch.setattr(Crew, "asked_anew", refused)
    assert run(lambda: HealthCheck(Crew(tmp_path, 1, seconds=600.0)).well()) is False


def test_the_small_question_has_an_answer():
    assert answered(SMALL, None).status == 200


PATHS = [
    (
        "cannot read /home/me/.local/share/foretell/records/calibration.json: denied",
        "cannot read calibration.json: denied",
    ),
    ("'/opt/a/b.toml', line 3", "'b.toml', line 3"),
    ("C:\\Users\\me\\x.json is bad", "x.json is bad"),
    ("tokens/s/GPU of http://localhost:8765/openapi.json, POST /api/searches starts one", ""),
    ("a plan: dp8/tp8; 3/4 of it", ""),
]


@pytest.mark.parametrize(("said", "told"), PATHS)
def test_messages_have_no_path_of_this_machine(said: str, told: str):
    assert problem_of(BadInput(said, where=said, fix="")).what == (told or said)
    refused = PlanRefused("no", where="plan")
    refused.refusals = (Refusal(rule="a rule", why=said),)
    assert problem_of(refused).refusals[0].why == (told or said)


def test_not_even_of_a_folder_with_blanks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/Users/A Person")
    assert problem_of(BadInput("in /Users/A Person/records/x.json")).what == "in records/x.json"
