"""Requests made up from the API's own description: whatever they are, the server makes no mistake."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from law_examples import examples, reached
from serve_client import PATIENT, QUESTION, Server

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
"""No mistake, no status that is not described, and answers of the form that is."""


def described(server: Server) -> Any:
    from foretell.serve.openapi import description

    schema = schemathesis.openapi.from_dict(json.loads(description()))
    schema.config.update(base_url=server.url)
    return schema


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_made_up_requests_are_answered_or_refused(server: Server):
    schema = described(server)
    for result in schema.get_all_operations():
        _fuzzed(result.ok(), server)


def _fuzzed(operation: Any, server: Server) -> None:
    without = {"suppress_health_check": list(HealthCheck), "database": None}
    calm = settings(examples(12), phases=(Phase.explicit, Phase.generate), **without)

    @calm
    @given(case=st.one_of(operation.as_strategy(), operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)))
    def fuzz(case: Any) -> None:
        headers = {"Host": f"localhost:{server.port}", "Authorization": f"Bearer {server.token}"}
        answer = case.call(base_url=server.url, headers=headers, timeout=PATIENT)
        case.validate_response(answer, checks=CHECKS)

    fuzz()


FIELDS = {
    "model": st.sampled_from(("gpt2", "resnet50", "mixtral-8x7b", "llama3-8b:layers=2", "t5-base", "unet")),
    "cluster": st.sampled_from(("h100", "8xh100", "16xv100-16", "dgx-a100", "abci:64", "gb200-nvl72", "9xa100")),
    "batch": st.integers(1, 4096),
    "seq": st.sampled_from((0, 1, 128, 4096)),
    "plan": st.lists(
        st.sampled_from(("dp8", "dp8:zero3", "tp2", "tp8:sp", "pp2:1f1b", "pp4:gpipe", "cp2:ring", "spatial2x2", "+m4",
                         "+bf16", "+fp8", "+recompute:block", "+offload:optimizer", "ps4:async", "dp2:ep2", "filter4")),
        max_size=5,
    ).map(" ".join),
    "trainer": st.sampled_from(("", "megatron-core", "deepspeed", "fsdp", "nanotron")),
    "hardware": st.dictionaries(st.sampled_from(("memory", "fabric bandwidth")), st.floats(0.01, 100), max_size=1),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.reaches(answered=5, refused=5)
@examples(48)
@given(
    name=st.sampled_from(("predict", "view", "report", "trace", "export", "model")), body=st.fixed_dictionaries(FIELDS)
)
def test_questions_that_could_be_meant_are_answered_or_refused(server: Server, name: str, body: dict[str, Any]):
    if name == "model":
        body = {"model": body["model"]}
    answer = server.post(name, {**body, "to": "megatron-lm"} if name == "export" else body)
    assert answer.status in (200, 422), (name, body, answer.body[:500])
    reached("answered" if answer.status == 200 else "refused")


def test_the_example_is_one(server: Server):
    assert server.post("predict", QUESTION).status == 200
