"""What others may send: from other pages, too much of it, or what only looks like a question."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from serve_client import PATIENT, Server


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost", "localhost:1", "127.0.0.1.evil.example", ""]
)
def test_a_foreign_host_is_refused(server: Server, host: str):
    answer = server.ask("GET", "/api/choices", headers={"Host": host})
    assert answer.status == 421
    assert b"llama" not in answer.body


def test_own_names_are_answered(server: Server):
    for name in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST"):
        host = f"{name}:{server.port}"
        assert server.ask("GET", "/", headers={"Host": host, "Origin": f"http://{host}"}).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost:1",
        "https://localhost.evil.example",
        "http://[::1",
        "http://[",
        "",
    ],
)
def test_a_foreign_origin_is_refused(server: Server, question: dict[str, Any], origin: str):
    assert server.post("predict", question, {"Origin": origin}).status == 403


def test_other_sites_may_link_and_not_ask(server: Server, question: dict[str, Any]):
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert server.post("predict", question, foreign).status == 403
    assert server.ask("GET", "/api/choices", headers=foreign | {"Sec-Fetch-Mode": "no-cors"}).status == 403
    assert server.ask("GET", "/", headers=foreign | {"Sec-Fetch-Mode": "navigate"}).status == 200


def test_forms_of_other_pages_have_no_type_that_is_taken(server: Server, question: dict[str, Any]):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert server.post("predict", question, {"Content-Type": kind}).status == 415


def test_every_answer_forbids_what_is_not_needed(server: Server):
    answers = [server.ask("GET", path) for path in ("/", "/serve.js", "/api/choices", "/openapi.json", "/nothing")]
    answers += [server.ask("GET", "/", headers={"Host": "evil.example"})]
    answers += [server.ask("GET", "/", headers={"Origin": "http://evil.example"})]
    assert {answer.status for answer in answers} == {200, 404, 421, 403}
    for headers in (answer.headers for answer in answers):
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


WRONG: list[tuple[str, Any, int]] = [
    ("no JSON", b"{", 400),
    ("no object", b"[]", 400),
    ("no text", b"\xff\xfe\x00", 400),
    ("nothing", b"", 400),
    ("deep", b"[" * 30_000, 400),
    ("deep inside", b'{"model":' * 6_000 + b"1" + b"}" * 6_000, 400),
    ("a number as a model", {"model": 1}, 400),
    ("a batch of nothing", {"batch": 0}, 400),
    ("a huge batch", {"batch": 10**30}, 400),
    ("no number", b'{"model":"gpt2","cluster":"h100","plan":"","batch":1e999}', 400),
    ("half a sample", {"batch": 1.5}, 400),
    ("a field nobody knows", {"calibration": "/etc/passwd"}, 400),
    ("infinitely good", b'{"model":"gpt2","cluster":"h100","plan":"","batch":1,"hardware":{"memory":Infinity}}', 400),
    ("worse than nothing", {"hardware": {"memory": -1}}, 400),
    ("a long plan", {"plan": "dp2 " * 1000}, 400),
    ("no plan", {"plan": "please"}, 422),
    ("too many ranks", {"plan": "dp99999999999999999999"}, 422),
    ("letters of others", {"plan": "dp\uff18"}, 422),
    ("a zero", {"plan": "dp8\0"}, 422),
    ("half a character", b'{"model":"gpt2","cluster":"h100","batch":1,"plan":"\\ud800"}', 400),
    ("a path", {"model": "/etc/passwd"}, 400),
    ("a path above", {"model": "../../etc/passwd"}, 400),
    ("a file", {"model": "config.json"}, 422),
    ("a module", {"model": "os:getcwd"}, 422),
    ("a factory", {"model": "evil.py:factory"}, 422),
    ("a hash of nothing", {"model": "uploaded:0123456789abcdef01234567"}, 422),
    ("no hash", {"model": "uploaded:.."}, 422),
    ("a cluster of a file", {"cluster": "mine.toml"}, 422),
    ("a link of a file", {"cluster": "8x8xh100,mine.toml"}, 422),
    ("a trainer of a file", {"trainer": "mine.toml"}, 422),
    ("a trainer nobody knows", {"trainer": "abacus"}, 422),
    ("an optimizer nobody knows", {"optimizer": "hope"}, 422),
    ("a field of a family", {"model": "llama3-8b:layers=99999999999999999999"}, 422),
    ("many clusters", {"cluster": "99999999999xh100"}, 422),
]


@pytest.mark.parametrize(
    ("body", "status"), [(body, status) for _, body, status in WRONG], ids=[name for name, *_ in WRONG]
)
def test_what_is_no_question_is_refused_with_a_message(
    server: Server, question: dict[str, Any], body: Any, status: int
):
    answer = server.post("predict", body if isinstance(body, bytes) else question | body)
    assert answer.status == status, answer
    assert answer.json["what"]
    assert "/etc" not in answer.json["what"] or "/etc" in str(body)
    assert "Traceback" not in answer.body.decode()


@pytest.mark.parametrize("path", ["predict", "models", "searches"])
def test_too_much_is_refused_before_it_is_read(server: Server, path: str):
    declared = {
        "Content-Length": str(10**12),
        "Content-Type": "application/json",
        "Authorization": f"token {server.token}",
    }
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENT) as line:
        head = "".join(
            f"{name}: {value}\r\n" for name, value in {"Host": f"localhost:{server.port}", **declared}.items()
        )
        line.sendall(f"POST /api/{path} HTTP/1.1\r\n{head}\r\n".encode())
        assert b" 413 " in line.recv(4096)


def test_too_much_in_parts_is_refused(server: Server):
    part = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENT) as line:
        head = f"Host: localhost:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
        head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        line.sendall(f"POST /api/predict HTTP/1.1\r\n{head}\r\n".encode())
        line.sendall(part * 17)  # of which it takes 16, and reads all: it has no reason to hang up early
        assert b" 413 " in line.recv(4096)


FILES = [
    b"", b" ", b"{}", b"[]", b"null", b'"text"', b"\0\0\0", b"PK\x03\x04", b"import os; os.system('true')",
    b'{"model_type": "llama"}', b'{"model_type": "llama", "auto_map": {"AutoModel": "evil.py"}}',
    b'{"model_type": "evil", "auto_map": {"AutoConfig": "evil--evil.Config"}}',
    b'{"blocks": 7}', b'{"blocks": []}', b"[" * 100_000, b'{"a":' * 100_000, b'{"kind": "prediction"}',
    b'{"kind": "prediction", "content": {"question": {"model": "/etc/passwd"}}}',
    json.dumps({"model_type": "llama", "hidden_size": 10**18, "num_hidden_layers": 10**9, "vocab_size": 2}).encode(),
    json.dumps({"model_type": "llama", "hidden_size": -1}).encode(),
    b"conv1 " * 1000,
]  # fmt: skip


@pytest.mark.parametrize("content", FILES, ids=range(len(FILES)))
def test_files_that_are_no_models_are_refused(server: Server, content: bytes):
    answer = server.ask("POST", "/api/models", content)
    assert answer.status in (200, 400, 422), answer  # a configuration that says little is a small model
    assert b"foretell-serve" not in answer.body
    if answer.status == 200:
        assert content.startswith(b'{"model_type": "llama"')


def test_methods_and_places_that_are_not_there(server: Server):
    assert server.ask("GET", "/api/predict").status == 405
    assert server.ask("PUT", "/api/models", b"{}").status == 405
    assert server.ask("GET", "/../../etc/passwd").status == 404
    assert server.ask("GET", "/page/index.html").status == 404
    assert server.ask("GET", "/api/searches/..%2f..%2fetc").status == 404
