"""One trace leads from a request to what it publishes, by way of a worker in another process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.system.conftest import System

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ABOVE = "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """A receiver of OTLP over HTTP. `spans`: all that came, by name and service."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[tuple[str, str, Any]] = []
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, body: bytes) -> None:
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {item.key: item.value.string_value for item in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(item.name, about["service.name"], item) for item in scope.spans]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            raise AssertionError("nobody asked for it")
        self.server.take(body)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""


@pytest.fixture
def collector(settings_of_processes: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Ask for it before `system`, which sends its traces there."""
    found = Collector()
    running = threading.Thread(target=found.serve_forever, daemon=True)
    running.start()
    settings_of_processes.setenv("TAGMILL_TRACE_URL", found.url)
    settings_of_processes.setenv("TAGMILL_WORKER_TRACE_URL", found.url)
    yield found
    found.shutdown()
    found.server_close()


def test_a_trace_leads_from_a_tag_to_its_publishing(collector: Collector, system: System) -> None:
    system.stack.start_workers(1)
    body = {"name": "gpu", "definition": "//node[@class='display']"}
    system.api.call("POST", "tags/", body, traceparent=f"00-{TRACE}-{ABOVE}-01")
    system.wait(lambda: system.state("gpu") == "ready")
    system.stack.stop()
    found = [item for item in collector.spans if item[2].trace_id.hex() == TRACE]
    spans = {name: (service, span) for name, service, span in found}
    by_id = {span.span_id: name for name, _, span in found}

    def above(name: str) -> list[str]:
        line, span = [], spans[name][1]
        while span.parent_span_id in by_id:
            line.append(by_id[span.parent_span_id])
            span = spans[line[-1]][1]
        assert span.parent_span_id.hex() == ABOVE
        return line

    # What made the work, who leased it, what it fetched, and what came of it.
    assert above("lease") == ["POST tags"]
    assert above("evaluate") == above("fetch") == ["lease", "POST tags"]
    assert above("GET batch") == ["fetch", "lease", "POST tags"]
    assert above("POST complete") == ["complete", "lease", "POST tags"]
    assert above("publish") == ["POST complete", "complete", "lease", "POST tags"]
    services = {name: service for name, (service, _) in spans.items()}
    assert {name for name, service in services.items() if service == "tagmill-worker"} == {
        *("evaluate", "fetch", "complete")
    }
    # Lines of the log say their trace; waiting for work, and the health, are part of none.
    lines = [json.loads(line) for line in system.log("server").splitlines() if line[:1] == "{"]
    assert {line["path"] for line in lines if line.get("trace_id") == TRACE} == {"/api/v1/tags/"}
    assert not {"POST lease", "GET readyz"} & {name for name, _, _ in collector.spans}
    # Nothing that opens a door goes along.
    sent = b"".join(collector.bodies)
    assert not any(secret.encode() in sent for secret in system.secrets)
