"""Who has the token is answered, and nobody else; it is in no log and no message."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import click.testing
import pytest

from foretell.cli.command import cli
from foretell.errors import BadInput
from serve_client import Server

WRONG = [
    "",
    "Bearer",
    "Bearer ",
    "Bearer 0123456789abcdef",
    "Basic {token}",
    "{token}",
    "Bearer {token}0",
    "Bearer \xe9",
]


@pytest.mark.parametrize("given", WRONG)
@pytest.mark.parametrize("path", ["/api/choices", "/openapi.json", "/nothing", "/api/searches/1"])
def test_without_the_token_nothing_is_told(server: Server, given: str, path: str):
    answer = server.ask("GET", path, headers={"Authorization": given.replace("{token}", server.token)})
    assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer"
    assert server.token.encode() not in answer.body and answer.json["fix"]
    assert "set-cookie" not in answer.headers


def test_a_program_brings_it_in_a_header(server: Server, question: dict[str, Any]):
    for scheme in ("Bearer", "bearer", "token"):
        given = {"Authorization": f"{scheme} {server.token}"}
        assert server.post("predict", question, given).status == 200


def test_a_browser_gets_a_cookie_with_the_first_page(server: Server):
    first = server.ask("GET", f"/?token={server.token}", headers={"Authorization": ""})
    cookie, *options = first.headers["set-cookie"].split("; ")
    assert first.status == 200 and set(options) == {"HttpOnly", "SameSite=Strict", "Path=/"}
    assert str(server.port) in cookie.partition("=")[0], "a browser has one jar for all ports"
    known = {"Authorization": "", "Cookie": cookie}
    assert server.ask("GET", "/api/choices", headers=known).status == 200
    assert server.ask("GET", "/api/choices", headers=known | {"Cookie": f"{cookie}0"}).status == 401
    assert server.ask("GET", f"/api/choices?token={server.token}", headers={"Authorization": ""}).status == 401


def test_the_page_is_public_and_knows_nobody(server: Server):
    for path in ("/", "/serve.js", "/?token=", "/?token=0123456789abcdef"):
        answer = server.ask("GET", path, headers={"Authorization": ""})
        assert answer.status == 200 and "set-cookie" not in answer.headers
        assert server.token.encode() not in answer.body


def test_a_foreign_name_gets_no_cookie(server: Server):
    answer = server.ask("GET", f"/?token={server.token}", headers={"Host": "evil.example"})
    assert answer.status == 421 and "set-cookie" not in answer.headers


def test_health_is_told_to_everybody(server: Server, question: dict[str, Any]):
    assert server.post("predict", question).status == 200  # a worker has started
    answer = server.ask("GET", "/healthz", headers={"Authorization": "", "Host": "10.0.0.7:8765"})
    assert answer.status == 200 and answer.json == {"ok": True}
    assert server.ask("POST", "/healthz", b"{}", headers={"Authorization": ""}).status == 401


@pytest.mark.parametrize(
    ("words", "variable", "where"),
    [
        (["--token", "short-secret"], "", "--token"),
        (["--token", "a secret with blanks in it"], "", "--token"),
        ([], "secret/of/the/variable", "--token"),
        (["--token", "secret-0123456789", "--no-token"], "", "--no-token"),
    ],
)
def test_a_token_that_is_refused_is_not_repeated(words: list[str], variable: str, where: str):
    ran = click.testing.CliRunner(env={"FORETELL_TOKEN": variable}).invoke(cli, ["serve", "--port", "0", *words])
    assert isinstance(ran.exception, BadInput) and ran.exception.where == where
    assert "secret" not in str(ran.exception) + ran.output


@pytest.mark.slow
def test_whoever_reaches_a_server_without_a_token_is_answered():
    """And its own variable is not passed on to workers, nor told in the terminal."""
    from answers import documented

    command = [sys.executable, "-m", "foretell", "serve", "--port", "0", "--json", "--workers", "1", "--no-token"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            said = documented("serve", process.stdout.readline())
            server = Server(said["url"], int(said["url"].rstrip("/").rpartition(":")[2]), said["token"])
            assert server.token == ""
            assert server.ask("GET", "/api/choices", headers={"Authorization": ""}).status == 200
        finally:
            process.terminate()
