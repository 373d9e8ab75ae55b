"""Asking a server of the tests, header by header."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple

PATIENT = 240.0
"""Seconds that anything here may take: machines that run tests may be busy with many."""

QUESTION: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "64xh100",
    "batch": 64,
    "plan": "dp8:zero1 tp8:sp +m8 +bf16",
}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server(NamedTuple):
    """Where it listens, and what it wants to be told."""

    url: str
    port: int
    token: str

    @property
    def page(self) -> str:
        """The address that a person opens first."""
        return f"{self.url}?token={self.token}"

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """A request with these headers, the token, and no others but those that HTTP needs."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        own = {"Host": f"localhost:{self.port}", "Authorization": f"Bearer {self.token}"}
        own |= {"Content-Type": "application/json"} if content is not None else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENT)
        try:
            connection.request(method, path, content, own | (headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def post(self, name: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        return self.ask("POST", f"/api/{name}", body, headers)
