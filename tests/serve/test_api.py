"""The API: the answers of the command line, as JSON, and nothing of this machine but them."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foretell
from serve_client import PATIENT, Server

SMALL = {"model": "gpt2", "cluster": "8xh100", "batch": 16}
CONFIG = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
          "intermediate_size": 1376, "vocab_size": 32000, "max_position_embeddings": 1024}  # fmt: skip


def test_predict_is_what_the_command_line_says(server: Server, question: dict[str, Any]):
    answer = server.post("predict", question)
    assert answer.status == 200
    found = foretell.predict(question["model"], question["cluster"], question["plan"], question["batch"])
    told = answer.json
    assert (told["step_seconds"], told["memory_bytes"]) == (found.step_seconds, found.memory_bytes)
    assert told["breakdown"] == found.breakdown
    assert told["model"] == question["model"]


def test_a_view_has_all_charts_of_one_step(server: Server, question: dict[str, Any]):
    view = server.post("view", question).json
    for title in ("What a step is spent on", "What memory is taken by", "What a rank does", "Streams over the"):
        assert title in view["html"]
    assert "<script" not in view["html"]
    assert view["ranks"] == 64
    assert "fabric bandwidth" in view["knobs"]
    assert view["said"].startswith("A step takes")


def test_faster_links_make_exposed_messages_shorter(server: Server, question: dict[str, Any]):
    slow = server.post("predict", question).json
    fast = server.post("predict", {**question, "hardware": {"node bandwidth": 4}}).json
    assert fast["breakdown"]["exposed.tp"] < slow["breakdown"]["exposed.tp"]
    assert "4x node bandwidth" in fast["cluster"]
    wrong = server.post("predict", {**question, "hardware": {"horsepower": 4}})
    assert wrong.status == 422 and "horsepower" in wrong.json["what"]


def test_a_refused_plan_says_its_rules_and_a_plan_that_works(server: Server, question: dict[str, Any]):
    answer = server.post("view", {**question, "plan": "dp8 tp16:sp +m8 +bf16"})
    assert answer.status == 422
    rules = {one["rule"] for one in answer.json["refusals"]}
    assert rules == {"enough ranks", "heads divide"}
    for plan in answer.json["plans"]:
        assert server.post("predict", {**question, "plan": plan}).status == 200


def test_ways_to_fine_tune(server: Server):
    """As `foretell fit --tuning` has them; the way to take is one that is answered."""
    about = {"model": "gpt2", "cluster": "1xrtx4090", "batch": 16, "tokens": 1e6, "price": 2}
    told = server.post("tuning", about).json
    kinds = [one["kind"] for one in told["found"]["rungs"]]
    assert {"full", "LoRA", "QLoRA"} <= {*kinds}
    taken = told["found"]["rungs"][told["found"]["taken"]]
    assert taken["fits"] and taken["seconds"] > 0 and taken["cost"] > 0
    assert taken["what"] in told["said"] and taken["plan"] in told["html"]
    chosen = {"plan": taken["plan"], "optimizer": taken["optimizer"], "batch": taken["batch"], "seq": taken["seq"]}
    again = server.post("predict", {**about, **chosen}).json
    assert again["step_seconds"] == taken["step_seconds"]
    images = server.post("tuning", {**about, "model": "resnet50"})
    assert images.status == 422 and "--" not in images.json["what"]


def test_two_questions_are_compared(server: Server, question: dict[str, Any]):
    other = {**question, "plan": "dp16:zero1 tp4:sp +m4 +bf16"}
    both = server.post("compare", {"first": question, "second": other}).json
    assert both["first"]["plan"] == question["plan"] and both["second"]["plan"] == other["plan"]
    assert both["faster"] == pytest.approx(both["first"]["step_seconds"] / both["second"]["step_seconds"])
    assert "What both steps are spent on" in both["html"] and "What memory both take" in both["html"]
    assert {"<mark>dp8:zero1</mark>", "<mark>tp4:sp</mark>"} <= set(re.findall("<mark>.*?</mark>", both["html"]))
    assert "<mark>+bf16</mark>" not in both["html"]
    assert both["said"].startswith("The second is") and both["said"] in both["html"]


def test_messages_speak_of_fields(server: Server, question: dict[str, Any]):
    answer = server.post("predict", {**question, "batch": 60}).json
    assert "batch 64" in " ".join(one["way_out"] for one in answer["refusals"])
    assert "--" not in json.dumps(answer)


def test_files_are_attached_and_complete(server: Server, question: dict[str, Any]):
    report = server.post("report", question)
    assert report.headers["content-type"].startswith("text/html")
    assert report.headers["content-disposition"].startswith("attachment")
    assert report.body.startswith(b"<!doctype html>") and len(report.body) < 6 * 1024 * 1024
    alone = server.post("trace", question).json
    both = server.post("trace", {**question, "beside": question}).json
    assert len(both["traceEvents"]) == 2 * len(alone["traceEvents"])
    names = {one["args"]["name"] for one in both["traceEvents"] if one["name"] == "process_name"}
    assert {name.partition(":")[0] for name in names} == {"first", "second"}
    written = server.post("export", {**question, "plan": "dp8:zero3 tp8:sp +m8 +bf16", "to": "torchtitan-toml"}).json
    assert "tensor_parallel_degree = 8" in written["text"] and written["trainer"] == "torchtitan"
    assert server.post("export", {**question, "to": "punchcards"}).status == 422


def test_a_config_is_handed_in_and_asked_about(server: Server):
    found = server.ask("POST", "/api/models", json.dumps(CONFIG).encode()).json
    assert found["model"].startswith("uploaded:") and found["layers"] == 4
    own = server.post("predict", {**SMALL, "model": found["model"], "plan": "dp8 +bf16"})
    assert own.status == 200
    zoo = "llama:hidden=512,layers=4,heads=8,kv_heads=8,ffn=1376,vocab=32000,seq=1024"
    same = foretell.predict(zoo, "8xh100", "dp8 +bf16", 16)
    assert own.json["step_seconds"] == pytest.approx(same.step_seconds)
    assert b"/tmp" not in own.body and b"foretell-serve" not in own.body


def test_a_graph_is_handed_in_for_any_batch(server: Server):
    graph = foretell.load("resnet18", batch=4)
    found = server.ask("POST", "/api/models", msgspec.json.encode(graph)).json
    answer = server.post("predict", {**SMALL, "model": found["model"], "plan": "dp8"})
    assert answer.status == 200
    assert answer.json["step_seconds"] == pytest.approx(foretell.predict("resnet18", "8xh100", "dp8", 16).step_seconds)


def test_a_kept_prediction_brings_its_question(server: Server, tmp_path: Path):
    from click.testing import CliRunner

    from foretell.cli.command import cli

    file = tmp_path / "kept.json"
    words = ["predict", "gpt2", "--on", "8xh100", "--plan", "dp8 +bf16", "--batch", "16", "--keep", str(file)]
    assert CliRunner().invoke(cli, words).exit_code == 0
    found = server.ask("POST", "/api/models", file.read_bytes()).json
    assert found["question"]["plan"] == "dp8 +bf16"
    assert server.post("predict", found["question"]).status == 200


def _watched(server: Server, name: str) -> dict[str, Any]:
    end = time.monotonic() + PATIENT
    while time.monotonic() < end:
        told: dict[str, Any] = server.ask("GET", f"/api/searches/{name}").json
        if told["state"] in ("done", "failed"):
            return told
        time.sleep(0.1)
    raise AssertionError("the search does not end")


def test_a_search_finds_what_the_library_finds(server: Server):
    begun = server.post("searches", {**SMALL, "only": ["dp", "tp"]})
    assert begun.status == 202
    told = _watched(server, begun.json["id"])
    assert told["state"] == told["doing"] == "done" and told["share"] == 1 and not told["stopped"]
    found = told["answer"]["found"]
    same = foretell.plan(SMALL["model"], SMALL["cluster"], SMALL["batch"], only=["dp", "tp"])
    assert found["evaluated"] == same.evaluated and same.best is not None
    assert found["best"]["plan"] == same.best.plan
    assert "Plans by time and memory" in told["answer"]["html"]


def test_a_search_that_is_stopped_says_what_it_found(server: Server):
    asked = {"model": "llama3-8b", "cluster": "1024xh100", "batch": 1024}
    begun = server.post("searches", asked).json
    stopped = server.ask("DELETE", f"/api/searches/{begun['id']}")
    assert stopped.status == 200 and stopped.json["stopped"]
    told = _watched(server, begun["id"])
    assert told["stopped"]
    if told["state"] == "failed":  # on a busy machine it may not have begun
        assert "stopped" in told["problem"]["what"]
        return
    found = told["answer"]["found"]
    assert found["evaluated"] > 0
    if found["best"]:
        again = server.post("predict", {**asked, "plan": found["best"]["plan"]}).json
        assert again["step_seconds"] == pytest.approx(found["best"]["step_seconds"])


def test_a_search_that_has_no_answer_says_why(server: Server):
    begun = server.post("searches", {**SMALL, "only": ["tea"]}).json
    told = _watched(server, begun["id"])
    assert told["state"] == "failed" and "tea" in told["problem"]["what"]
    assert server.ask("GET", "/api/searches/0123456789abcdef").status == 404


def test_choices_can_all_be_asked_about(server: Server):
    found = server.ask("GET", "/api/choices").json
    assert {"llama3-8b", "resnet50"} <= set(found["models"])
    for place in found["places"][::9]:
        text = f"8x{place['name']}" if place["kind"] == "device" and place["node"] >= 8 else place["name"]
        answer = server.post("predict", {"model": "gpt2", "cluster": text, "batch": 8, "plan": "+fp32"})
        assert answer.status in (200, 422), (text, answer)
    for trainer in found["trainers"][::5]:
        answer = server.post("predict", {**SMALL, "plan": "dp8", "trainer": trainer})
        assert answer.status in (200, 422), (trainer, answer)


def test_a_whole_run_has_days_and_a_cost(server: Server, question: dict[str, Any]):
    view = server.post("view", {**question, "tokens": 1e12, "price": 2.0}).json
    found, run = view["prediction"], view["prediction"]["training"]
    assert run["steps"] == math.ceil(1e12 / (64 * 8192))
    assert run["seconds"] == pytest.approx(run["steps"] * found["step_seconds"])
    assert run["cost"] == pytest.approx(64 * run["seconds"] / 3600 * 2.0)
    assert run["interval"] is None and run["mtbf"] is None
    assert "whole run" in view["html"] and "GPU-hours" in view["html"]
    assert "The whole run takes" in view["said"]
    assert server.post("view", question).json["prediction"]["training"] is None


def test_images_are_trained_on_samples(server: Server):
    asked = {"model": "resnet50", "cluster": "8xv100", "batch": 256, "plan": "dp8", "tokens": 1281167}
    assert server.post("predict", asked).json["training"]["steps"] == math.ceil(1281167 / 256)


def test_experts_are_offered_for_models_that_have_them(server: Server, question: dict[str, Any]):
    assert "ep" not in server.post("view", question).json["axes"]
    sparse = {**question, "model": "mixtral-8x7b", "plan": "dp8:zero1,ep8 tp8:sp +m8 +bf16"}
    assert "ep" in server.post("view", sparse).json["axes"]


def test_trainers_of_today_come_first(server: Server):
    found = server.ask("GET", "/api/choices").json
    past = found["historical"]
    assert past["chainer"] == "2019" and "torchtitan" not in past
    assert [name in past for name in found["trainers"]] == sorted(name in past for name in found["trainers"])
