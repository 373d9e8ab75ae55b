"""Workers and questions without a server: what is read, what is kept, and what happens to those who take too long."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretell
from foretell.cost.price import priced
from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.model import zoo
from foretell.model.source import load
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.serve import uploads
from foretell.serve.app import awaited
from foretell.serve.calls import CALLS, JSON, call
from foretell.serve.calls.export import Export
from foretell.serve.calls.predict import answer as predicted
from foretell.serve.calls.search import Search, Sofar
from foretell.serve.calls.search import answer as searched
from foretell.serve.crew import AnswerCache, Crew, WorkerProcess, problem
from foretell.serve.guards import HEALTH
from foretell.serve.openapi import description, quick
from foretell.serve.question import Question, bettered, graph_of, knobs, model_text, read
from foretell.serve.searches import Running, Searches
from foretell.serve.words import FIELDS, spoken
from foretell.serve.worker import WARMING, Reply, WorkerTask, answered
from foretell.timeline.simulate import simulate
from law_examples import examples, reached
from serve_client import PATIENT, QUESTION

T = TypeVar("T")
SMALL = ("gpt2", "resnet18", "bert-base", "llama3.2-1b", "mlp")
PLANS = (
    "dp8",
    "dp8:zero3 +bf16",
    "dp4:zero1 tp2 +bf16",
    "dp2 pp4:1f1b +m4",
    "dp8 +m2 +recompute:block",
    "spatial2 dp4",
)


@examples(12)
@pytest.mark.reaches(answered=4, refused=1)
@given(st.sampled_from(SMALL), st.sampled_from(PLANS), st.sampled_from((16, 32, 64)))
def test_a_question_is_answered_as_by_the_library(model: str, plan: str, batch: int):
    question = Question(model=model, cluster="8xh100", plan=plan, batch=batch)
    try:
        expected = foretell.predict(model, "8xh100", plan, batch)
    except BadInput:
        with pytest.raises(BadInput):
            read(question)
        reached("refused")
        return
    reached("answered")
    found = predicted(question)
    assert found.step_seconds == expected.step_seconds
    assert found.memory_bytes == expected.memory_bytes
    assert found.breakdown == expected.breakdown


@examples(8)
@given(st.sampled_from(sorted(zoo.names())), st.integers(1, 64))
def test_a_model_that_is_kept_is_the_model_for_any_batch(model: str, batch: int):
    from foretell.model.resize import with_samples

    kept = msgspec.structs.replace(with_samples(graph_of(model, 0, "bf16"), batch), name="")
    assert kept == msgspec.structs.replace(load(model, batch, None, "bf16"), name="")


@examples(15)
@given(st.sampled_from(PLANS[:5]), st.sampled_from(("gpt2", "llama3.2-1b")))
def test_joined_events_tell_the_same_step(plan: str, model: str):
    asked = read(Question(model=model, cluster="8xh100", plan=plan, batch=32))
    program = expand(lower(asked.setting))
    fine = simulate(priced(asked.setting, asked.cluster), program)
    coarse = simulate(priced(asked.setting, asked.cluster), program, joined=True)
    assert coarse.step_seconds == pytest.approx(fine.step_seconds, rel=1e-12)
    assert len(coarse.events) < len(fine.events)

    def busy(events: tuple[Any, ...]) -> dict[tuple[int, str, str], float]:
        sums: dict[tuple[int, str, str], float] = {}
        for one in events:
            key = (one.kind, one.stream, one.category)
            sums[key] = sums.get(key, 0.0) + one.seconds
        return sums

    assert busy(coarse.events) == pytest.approx(busy(fine.events))


@examples(6)
@given(st.sampled_from(("dp2 pp4:1f1b +m4", "pp4:interleaved,v2 dp2 +m8 +recompute:block", "dp8:zero3 +bf16")))
def test_a_step_does_not_depend_on_the_memory_of_borders(plan: str):
    asked = read(Question(model="gpt2", cluster="8xh100", plan=plan, batch=32))
    whole, without = expand(lower(asked.setting)), expand(lower(asked.setting), borders=False)
    assert simulate(priced(asked.setting, asked.cluster), whole) == simulate(
        priced(asked.setting, asked.cluster), without
    )
    assert [stage.memory for stage in whole.stages] == [stage.memory for stage in without.stages]


@given(st.dictionaries(st.sampled_from(("compute rate", "memory", "node bandwidth")), st.sampled_from((0.5, 1.0, 2.0))))
@examples(10)
def test_hardware_that_is_turned_says_so(times: dict[str, float]):
    cluster = catalog.cluster("8xh100")
    turned = bettered(cluster, times)
    assert set(times) <= set(knobs(cluster))
    assert turned.device.memory_bytes == int(cluster.device.memory_bytes * times.get("memory", 1.0))
    assert (turned == cluster) == all(factor == 1 for factor in times.values())
    assert (turned.text == cluster.text) == (turned == cluster)


@pytest.mark.reaches(model=5, refused=5)
@given(st.text(max_size=60) | st.sampled_from(sorted(zoo.names())).map("{}:layers=2".format))
def test_no_text_names_a_file(text: str):
    try:
        found = model_text(text)
    except BadInput:
        reached("refused")
        return
    reached("model")
    assert found == text and text.partition(":")[0] in zoo.names()


@given(st.text(max_size=40))
def test_no_text_leads_out_of_the_folder(text: str):
    with pytest.raises(BadInput):
        uploads.path(uploads.PREFIX + text)


def test_of_many_files_the_oldest_go(tmp_path: Path):
    names = [uploads.keep(json.dumps({"at": at}).encode(), tmp_path) for at in range(uploads.MOST + 5)]
    assert len(set(names)) == len(names)
    assert len(list(tmp_path.iterdir())) == uploads.MOST


def test_files_that_come_at_once_do_not_take_each_other_away(tmp_path: Path):
    from concurrent.futures import ThreadPoolExecutor

    contents = [json.dumps({"at": at % 90}).encode() for at in range(180)]
    with ThreadPoolExecutor(8) as several:
        list(several.map(lambda content: uploads.keep(content, tmp_path), contents))
    uploads.keep(b"{}", tmp_path)
    left = list(tmp_path.iterdir())
    assert len(left) == uploads.MOST
    assert all(file.suffix == ".json" for file in left)


def test_a_mistake_is_said_and_not_raised(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    def wrong(body: Any) -> None:
        raise ZeroDivisionError("ouch")

    monkeypatch.setattr(CALLS["predict"], "CALL", answering(call("predict"), wrong))
    reply = answered(WorkerTask("predict", json.dumps(QUESTION).encode()), None)
    assert reply.status == 500 and b"ouch" not in reply.body
    assert "ouch" in capfd.readouterr().err


def answering(one: Any, work: Callable[..., Any]) -> Any:
    import dataclasses

    return dataclasses.replace(one, answer=work)


def test_answers_are_kept_up_to_a_size():
    kept = AnswerCache()
    for at in range(40):
        kept.put(WorkerTask("predict", str(at).encode()), Reply("answer", 200, b" " * 1024 * 1024))
    assert kept.bytes <= AnswerCache.BYTES
    assert kept.get(WorkerTask("predict", b"0")) is None
    assert kept.get(WorkerTask("predict", b"39")) is not None


def test_workers_are_warmed_with_the_first_question_of_the_page():
    script = (Path(foretell.__file__).parent / "serve" / "page" / "serve.js").read_text()
    first = script[script.index("USUAL") : script.index("};")]
    for name, value in json.loads(WARMING).items():
        assert f"{name}: {json.dumps(value)}" in first


def test_without_the_packages_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    import importlib.util

    from click.testing import CliRunner

    from foretell.cli.command import cli
    from foretell.errors import MissingExtra

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = CliRunner().invoke(cli, ["serve"]).exception
    assert isinstance(said, MissingExtra) and "foretell[serve]" in said.fix


@given(st.lists(st.sampled_from(("--batch 64", "--on 8xh100", "a", "`foretell run --trace F`", "--anchor", "x--y"))))
def test_messages_have_no_options(words: list[str]):
    said = spoken(" ".join(words))
    outside = "".join(said.split("`")[::2])
    assert not re.search(r"(^|\s)--", outside)
    assert said.count("`foretell run --trace F`") == words.count("`foretell run --trace F`")
    assert said.count("batch 64") == words.count("--batch 64")
    assert said.count("cluster 8xh100") == words.count("--on 8xh100")


def test_every_field_of_a_question_has_its_name_in_messages():
    for form in (Question, Search, Export):
        assert set(form.__struct_fields__) <= set(FIELDS)


def test_a_search_tells_how_far_it_is_to_the_end():
    told = list[Sofar]()
    searched(Search(model="gpt2", cluster="4xh100", batch=8, fix="pp4:1f1b"), told.append)
    shares = [one.share for one in told]
    assert shares == sorted(shares) and shares[-1] <= 1
    assert any(one.doing.startswith("choosing") and one.plans for one in told)


def test_a_search_that_nobody_watches_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("foretell.serve.searches.UNATTENDED", 0.0)

    async def work() -> tuple[bool, bool]:
        searches = Searches(tmp_path, 1, 600.0)
        running, waiting = Running("running", WorkerTask("search", b"")), Running("waiting", WorkerTask("search", b""))
        searches.all = {"running": running, "waiting": waiting}
        running.state = "running"
        running.looked_at -= 1
        searches.get("waiting")
        return running.stopped, waiting.stopped

    assert run(work) == (True, False)


# --- processes ----------------------------------------------------------------------------------


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def all_of_it() -> T:
        return await work()

    return asyncio.run(all_of_it())


def test_who_takes_too_long_is_ended_and_replaced(tmp_path: Path):
    endless = {**QUESTION, "batch": 2**22, "plan": "pp8:1f1b dp8 +m65536 +bf16"}

    async def work() -> tuple[Reply, Reply, bool]:
        crew = Crew(tmp_path, 1, seconds=0.05)
        crew.start()
        try:
            slow = await asyncio.wait_for(crew.idle.get(), PATIENT)
            crew.idle.put_nowait(slow)
            late = await crew.answer(WorkerTask("view", json.dumps(endless).encode()))
            crew.seconds = 600.0
            found = await crew.answer(WorkerTask("predict", json.dumps(QUESTION).encode()))
            return late, found, slow.alive or slow in crew.all
        finally:
            await crew.end()

    late, found, there = run(work)
    assert late.status == 422 and b"longer than" in late.body
    assert found.status == 200
    assert not there


def test_who_never_gets_ready_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ready, started = WorkerProcess.ready, list[WorkerProcess]()

    async def ready_the_second_time(worker: WorkerProcess) -> bool:
        started.append(worker)
        return await ready(worker) and len(started) > 1

    monkeypatch.setattr(WorkerProcess, "ready", ready_the_second_time)

    async def work() -> tuple[WorkerProcess, set[WorkerProcess]]:
        crew = Crew(tmp_path, 1, seconds=600.0)
        crew.start()
        try:
            return await asyncio.wait_for(crew.idle.get(), PATIENT), set(crew.all)
        finally:
            await crew.end()

    idle, there = run(work)
    assert started[1:] == [idle] and there == {idle}


def test_if_nobody_gets_ready_questions_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def never(worker: WorkerProcess) -> bool:
        return False

    async def work() -> tuple[Reply, int]:
        crew = Crew(tmp_path, 1, seconds=600.0)
        crew.start()
        try:
            await asyncio.gather(*crew.hiring)
            await asyncio.sleep(0)  # those that are done are taken off the list by then
            return await crew.answer(WorkerTask("predict", json.dumps(QUESTION).encode())), len(crew.hiring)
        finally:
            await crew.end()

    monkeypatch.setattr(WorkerProcess, "ready", never)
    told, coming = run(work)
    assert told.status == 503 and b"ended before it could answer" in told.body
    assert coming == 1


def test_only_answers_are_kept(tmp_path: Path):
    class Refusing:
        alive = True

        async def ask(self, task: WorkerTask) -> Reply:
            return problem(422, "not now")

    async def work() -> Reply | None:
        crew, task, worker = Crew(tmp_path, 0, seconds=600.0), WorkerTask("predict", b"{}"), cast(Any, Refusing())
        crew.all.add(worker)
        crew.idle.put_nowait(worker)
        assert (await crew.answer(task)).status == 422
        return crew.kept.get(task)

    assert run(work) is None


class Endless:
    """A worker whose answer never comes."""

    alive = True

    def __init__(self) -> None:
        self.asked, self.ended = asyncio.Event(), asyncio.Event()

    async def ask(self, task: WorkerTask) -> Reply:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def end(self) -> None:
        self.ended.set()


def test_who_hangs_up_holds_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("foretell.serve.crew.HURRY", 0.0)
    hired = list[bool]()
    monkeypatch.setattr(Crew, "_hire", lambda crew: hired.append(True))

    async def work() -> Crew:
        crew, worker = Crew(tmp_path, 1, seconds=600.0), cast(Any, Endless())
        crew.all.add(worker)
        crew.idle.put_nowait(worker)
        asking = asyncio.create_task(crew.answer(WorkerTask("predict", b"{}")))
        waiting = asyncio.create_task(crew.answer(WorkerTask("predict", b"[]")))
        await asyncio.wait_for(worker.asked.wait(), PATIENT)
        waiting.cancel()  # nobody was idle yet
        asking.cancel()
        await asyncio.wait_for(worker.ended.wait(), PATIENT)
        await asyncio.gather(asking, waiting, return_exceptions=True)
        return crew

    crew = run(work)
    assert hired and not crew.all and not crew.waiting


@pytest.mark.parametrize("stays", [True, False])
def test_an_answer_is_awaited_as_long_as_somebody_is_there(stays: bool):
    class Connection:
        async def receive(self) -> dict[str, str]:
            return {"type": "http.disconnect"} if not stays else await asyncio.Event().wait() or {}

    async def work() -> tuple[Reply, bool]:
        ended = asyncio.Event()

        async def answer() -> Reply:
            try:
                if not stays:
                    await asyncio.Event().wait()
                return Reply("answer", 200, b"{}")
            finally:
                ended.set()

        reply = await awaited(cast(Any, Connection()), answer())
        await asyncio.wait_for(ended.wait(), PATIENT)
        return reply, ended.is_set()

    assert run(work)[0].status == (200 if stays else 408)


def test_an_answer_that_comes_soon_is_kept_though_nobody_waits(tmp_path: Path):
    class Slow(Endless):
        async def ask(self, task: WorkerTask) -> Reply:
            self.asked.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return Reply("answer", 200, b"{}")

    async def work() -> tuple[Reply | None, bool]:
        crew, worker, task = Crew(tmp_path, 1, seconds=600.0), cast(Any, Slow()), WorkerTask("predict", b"{}")
        crew.all.add(worker)
        crew.idle.put_nowait(worker)
        asking = asyncio.create_task(crew.answer(task))
        await asyncio.wait_for(worker.asked.wait(), PATIENT)
        asking.cancel()
        assert await asyncio.wait_for(crew.idle.get(), PATIENT) is worker
        return crew.kept.get(task), worker.ended.is_set()

    kept, ended = run(work)
    assert kept is not None and not ended


def test_workers_end_with_the_crew(tmp_path: Path):
    async def work() -> list[WorkerProcess]:
        crew = Crew(tmp_path, 2, seconds=600.0)
        crew.start()
        await crew.answer(WorkerTask("predict", json.dumps(QUESTION).encode()))
        workers = list(crew.all)
        await crew.end()
        return workers

    workers = run(work)
    assert workers and not any(one.alive for one in workers)


# --- the description ----------------------------------------------------------------------------


def test_everything_is_described():
    found = json.loads(description())
    assert {f"/api/{name}" for name in quick()} <= set(found["paths"])
    text = json.dumps(found["paths"])
    named = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(found["components"]["schemas"])
    for path in (one for name, one in found["paths"].items() if name != HEALTH):
        for operation in (path[method] for method in ("get", "post", "delete") if method in path):
            assert operation["summary"] and "422" in operation["responses"]


def test_every_call_is_a_file_with_a_summary():
    for name in CALLS:
        one = call(name)
        assert one.media == JSON or one.media.startswith("text/html")
        assert CALLS[name].__doc__
