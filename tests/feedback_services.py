"""LangSmith and Langfuse on 127.0.0.1, as far as feedback goes: what their clients send, and what they read.

Paths, parameters and field names are those of langsmith 0.15 (`Client.create_feedback`, `list_feedback`, `schemas.Feedback`)
and langfuse 5.0 (`api/scores/raw_client.py`, `api/scores/types`).
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

from langfuse import Langfuse
from langsmith import Client

from langchain_memoryworth import LangfuseScores, LangSmithFeedback

START = datetime(2026, 1, 1, tzinfo=UTC)


class Service:
    """What both have: a clock of their own, rows, and a list of the requests."""

    def __init__(self) -> None:
        self.now = START
        self.rows: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, dict[str, list[str]]]] = []
        self.fail_after: int | None = None

    def forward(self, **time: float) -> None:
        self.now += timedelta(**time)

    def answer(self, method: str, url: str, body: Any) -> tuple[int, Any]:
        split = urlsplit(url)
        query = parse_qs(split.query)
        self.requests.append((method, split.path, query))
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                return 403, {"detail": "no more today"}
        return self.route(method, split.path, query, body)

    def route(self, method: str, path: str, query: Any, body: Any) -> tuple[int, Any]:
        raise NotImplementedError

    def delete(self, feedback_id: str) -> None:
        raise NotImplementedError


class LangSmith(Service):
    """`/feedback`."""

    def connect(self, url: str) -> None:
        self.client = Client(api_url=url, api_key="key", auto_batch_tracing=False)
        self.source = LangSmithFeedback(self.client)

    def close(self) -> None:
        self.client.cleanup()

    def route(self, method: str, path: str, query: Any, body: Any) -> tuple[int, Any]:
        if path == "/info":
            return 200, {}
        if method == "POST":
            self.rows[body["id"]] = {"trace_id": None, **body, **self._times()}
            return 200, self.rows[body["id"]]
        one = re.fullmatch(r"/feedback/([0-9a-f-]{36})", path)
        if one is None:
            return 200, self._listed(query)
        if one[1] not in self.rows:
            return 404, {"detail": "Feedback not found"}
        if method == "PATCH":
            self.rows[one[1]] |= {**body, "modified_at": self._times()["modified_at"]}
        if method == "DELETE":
            return 200, self.rows.pop(one[1])
        return 200, self.rows[one[1]]

    def _times(self) -> dict[str, str]:
        now = self.now.replace(tzinfo=None).isoformat()  # without a zone, as the service has it
        return {"created_at": now, "modified_at": now}

    def _listed(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        since = query.get("min_created_at")
        rows = [
            r
            for r in sorted(self.rows.values(), key=lambda r: (r["created_at"], r["id"]))
            if r["run_id"] in query.get("run", [r["run_id"]])
            and r["key"] in query.get("key", [r["key"]])
            and r.get("session_id") in query.get("session", [r.get("session_id")])
            and (
                since is None
                or datetime.fromisoformat(r["created_at"] + "+00:00")
                >= datetime.fromisoformat(since[0])
            )
        ]
        start = int(query["offset"][0])
        return rows[start : start + int(query["limit"][0])]

    def say(self, run_id: Any, score: Any, key: str = "thumbs", **more: Any) -> str:
        """Somebody gives feedback."""
        given = {"value": score} if isinstance(score, str) else {"score": score}
        made = self.client.create_feedback(run_id, key, session_id=UUID(int=1), **given, **more)
        return str(made.id)

    def correct(self, feedback_id: str, score: Any) -> None:
        self.client.update_feedback(feedback_id, score=score)

    def delete(self, feedback_id: str) -> None:
        self.client.delete_feedback(feedback_id)


class LangfuseService(Service):
    """`/api/public/v3/scores`."""

    def connect(self, url: str) -> None:
        # A key of its own: the client keeps one connection for each key, also after `shutdown`.
        key = f"pk-{uuid4()}"
        self.client = Langfuse(
            public_key=key,
            secret_key="sk",  # noqa: S106
            base_url=url,
            tracing_enabled=False,
        )
        self.source = LangfuseScores(self.client)

    def close(self) -> None:
        self.client.shutdown()

    def route(self, method: str, path: str, query: Any, body: Any) -> tuple[int, Any]:
        if method == "DELETE":
            self.rows.pop(path.rsplit("/", 1)[1])
            return 202, {"message": "Score deletion request has been accepted"}
        if path != "/api/public/v3/scores":
            return 404, {"message": path}
        return self._listed(query)

    def _listed(self, query: dict[str, list[str]]) -> tuple[int, Any]:
        limit = int(query["limit"][0])
        if limit > 100:
            return 400, {"message": "limit"}
        ids, names = (query[k][0].split(",") if k in query else None for k in ("id", "name"))
        since = query.get("fromTimestamp")
        rows = [
            r
            for r in self.rows.values()
            if (ids is None or r["id"] in ids)
            and (names is None or r["name"] in names)
            and (since is None or r["timestamp"] >= since[0])
        ]
        start = int(query.get("cursor", ["0"])[0])
        data = rows[start : start + limit]
        if "subject" not in query.get("fields", [""])[0].split(","):
            data = [{k: v for k, v in r.items() if k != "subject"} for r in data]
        meta: dict[str, Any] = {"limit": limit}
        if start + limit < len(rows):
            meta["cursor"] = str(start + limit)
        return 200, {"data": data, "meta": meta}

    def say(self, run_id: Any, score: Any, key: str = "thumbs", **subject: Any) -> str:
        """Somebody gives a score."""
        kind = {bool: "BOOLEAN", float: "NUMERIC", int: "NUMERIC", str: "CATEGORICAL"}[type(score)]
        trace = {"kind": "trace", "id": Langfuse.create_trace_id(seed=str(run_id))}
        now = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        score_id = str(uuid4())
        self.rows[score_id] = {
            "id": score_id,
            "projectId": "p",
            "name": key,
            "value": score,
            "dataType": kind,
            "source": "API",
            "timestamp": now,
            "environment": "default",
            "createdAt": now,
            "updatedAt": now,
            "subject": subject or trace,
        }
        return score_id

    def correct(self, feedback_id: str, score: Any) -> None:
        now = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.rows[feedback_id] |= {"value": score, "updatedAt": now}

    def delete(self, feedback_id: str) -> None:
        self.client.api.scores.delete(feedback_id)


@contextmanager
def serving(service: Any) -> Iterator[Any]:
    """The service behind a port, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length) or "null")
            status, said = service.answer(self.command, self.path, body)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    service.connect(f"http://127.0.0.1:{server.server_port}")
    try:
        yield service
    finally:
        service.close()
        server.shutdown()
        server.server_close()
        thread.join()
