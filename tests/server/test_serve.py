"""`manage.py serve`, as a process: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import Group, User

from api import tokens
from api.limits import LEASE as LEASE_LIMIT
from api.roles import GROUPS
from api.server.lease import MAX_HOLDS
from loadtest.benches.polls import parked_polls, wait_until
from loadtest.rig.stack import Stack
from tagmill.fleet import clusters
from tagmill.fleet.models import Node
from tagmill.tags import tags
from tagmill.work import workers
from tests.support.servers import serve

LIMIT = 16 * 1024 * 1024
LEASE = "/api/v1/workers/lease"


def call(
    stack: Stack, method: str, path: str, body: Any = None, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    host, _, port = stack.listen.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, names, encode_chunked="Transfer-Encoding" in names)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response, data


def token_of(role: str) -> str:
    user = User.objects.create_user(f"a-{role}")
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    return f"Token {tokens.issue(user, GROUPS[role], days=1)[1]}"


def worker(stack: Stack) -> tuple[str, str]:
    """(Authorization, worker uuid) of a worker that has registered."""
    return registered(stack, workers.issue_token("test", "all")[1])


def registered(stack: Stack, token: str) -> tuple[str, str]:
    header = f"Worker {token}"
    body = json.dumps({"name": "w", "evaluator": "lxml", "version": "0"})
    response, data = call(
        stack,
        "POST",
        "/api/v1/workers/register",
        body,
        Authorization=header,
        Content_Type="application/json",
    )
    assert response.status == 201, data
    return header, json.loads(data)["worker"]


def test_it_is_alive_and_ready(stack: Stack) -> None:
    for path in ("/healthz", "/readyz"):
        assert call(stack, "GET", path)[0].status == 200
        head, body = call(stack, "HEAD", path)
        assert (head.status, body) == (200, b"")


def test_an_answer_without_a_body_describes_none(stack: Stack) -> None:
    """Over the network: the server adds no headers of its own."""
    tags.create("by-hand")
    place, headers = "/api/v1/tags/by-hand/nodes", {"Authorization": token_of("operator")}
    etag = call(stack, "GET", place, **headers)[0].getheader("ETag")
    assert etag
    same, body = call(stack, "GET", place, If_None_Match=etag, **headers)
    gone, nothing = call(stack, "DELETE", "/api/v1/tags/by-hand", **headers)
    assert (same.status, body, gone.status, nothing) == (304, b"", 204, b"")
    for answer in (same, gone):
        assert answer.getheader("Content-Type") is None
        assert answer.getheader("Content-Length") is None


def test_a_taken_port_names_the_setting_that_changes_it(stack: Stack) -> None:
    ended = serve("--listen", stack.listen)
    assert ended.returncode == 2
    (line,) = (line for line in ended.stderr.splitlines() if "does not start" in line)
    assert "TAGMILL_LISTEN" in line
    assert "--listen" in line


def test_a_bad_address_is_named(stack: Stack) -> None:
    ended = serve("--listen", "8080")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("Tagmill does not start: --listen")


def test_an_import_is_refused_before_its_body_is_read(stack: Stack) -> None:
    for header, status in ((None, 401), (token_of("viewer"), 403)):
        headers = {"Authorization": header} if header else {}
        response, data = call(stack, "POST", "/api/v1/nodes/import", b"x" * 100_000, **headers)
        assert response.status == status, data


def test_native_endpoints_refuse_what_they_do_not_understand(stack: Stack) -> None:
    clusters.create("north")
    line, kind = b'{"system_id": "a"}', {"Content_Type": "application/x-ndjson"}
    place = "/api/v1/nodes/import"
    bearer, uuid = worker(stack)
    body = json.dumps({"worker": uuid}).encode()
    zipped = {"Content_Encoding": "gzip"}
    token = token_of("operator")
    for path, sent, header, headers, status, code in (
        (f"{place}?dry_run=1", line, token, kind, 400, "unknown_field"),
        (place, line, token, {}, 415, "unsupported_media_type"),
        (place, line, token, {"Content_Type": "text/csv"}, 415, "unsupported_media_type"),
        (place, line, token, kind | {"Content_Encoding": "br"}, 415, "unsupported_media_type"),
        (place, line, token, kind | {"If_None_Match": "*"}, 412, "condition_not_supported"),
        (f"{LEASE}?x=1", body, bearer, {}, 400, "unknown_field"),
        (LEASE, body, bearer, zipped, 415, "unsupported_media_type"),
        (LEASE, body, bearer, {"Content_Type": "text/csv"}, 415, "unsupported_media_type"),
        (LEASE, body, bearer, {"If_Match": '"x"'}, 412, "condition_not_supported"),
    ):
        response, data = call(stack, "POST", path, sent, Authorization=header, **headers)
        assert (response.status, json.loads(data)["code"]) == (status, code), (path, headers)
    assert not Node.objects.exists()


def test_a_node_named_import_is_read_and_deleted(stack: Stack) -> None:
    clusters.create("north")
    headers = {"Authorization": token_of("operator"), "Content_Type": "application/x-ndjson"}
    place = "/api/v1/nodes/import"
    assert call(stack, "POST", place, b'{"system_id": "import"}', **headers)[0].status == 200
    response, data = call(stack, "GET", place, **headers)
    assert (response.status, json.loads(data)["system_id"]) == (200, "import")
    assert call(stack, "DELETE", place, **headers)[0].status == 204
    assert call(stack, "GET", place, **headers)[0].status == 404


def test_an_import_larger_than_any_request_is_streamed(stack: Stack) -> None:
    lines = LIMIT // 16_000 + 50

    def body() -> Iterator[bytes]:
        for number in range(lines):
            xml = f"<node id='{number}'>{'x' * 16_000}</node>"
            yield json.dumps({"system_id": f"n{number}", "probes": {"lshw": xml}}).encode() + b"\n"

    clusters.create("north")
    header = token_of("operator")
    created, answer = call(
        stack,
        "POST",
        "/api/v1/nodes/import",
        body(),
        Authorization=header,
        Transfer_Encoding="chunked",
        Content_Type="application/x-ndjson",
    )
    assert created.status == 200
    assert json.loads(answer.splitlines()[-1])["summary"]["created"] == lines
    assert Node.objects.count() == lines


def test_metrics_answer_to_this_machine_and_not_through_a_proxy(stack: Stack) -> None:
    assert b"tagmill_parked_polls 0" in call(stack, "GET", "/metrics")[1]
    assert call(stack, "GET", "/metrics", X_Forwarded_For="10.0.0.1")[0].status == 403


def test_a_wrong_worker_token_and_a_wrong_method_are_problems(stack: Stack) -> None:
    response, data = call(stack, "POST", LEASE, b"{no json", Authorization="Worker x")
    assert (response.status, json.loads(data)["code"]) == (401, "unauthorized")
    assert response.getheader("WWW-Authenticate") == "Worker"
    response, _ = call(stack, "GET", "/api/v1/workers/lease")
    assert (response.status, response.getheader("Allow")) == (405, "POST, OPTIONS")


def test_a_lease_request_is_bounded_and_checked_like_other_messages(stack: Stack) -> None:
    header, uuid = worker(stack)
    for message, status, code, field in (
        ({"holds": [1] * (MAX_HOLDS + 1)}, 400, "invalid", "holds"),
        ({"max_partitions": 257}, 400, "invalid", "max_partitions"),
        ({"max_partitions": 0}, 400, "invalid", "max_partitions"),
        ({"max_partitions": "1"}, 400, "invalid", "max_partitions"),
        ({"wishes": 1}, 400, "unknown_field", None),
        ({"holds": list(range(10**8, 10**8 + MAX_HOLDS))}, 200, None, None),
    ):
        body = json.dumps({"worker": uuid, **message}, separators=(",", ":"))
        response, data = call(stack, "POST", LEASE, body, Authorization=header)
        found = json.loads(data)
        assert (response.status, found.get("code"), found.get("field")) == (status, code, field)
    response, data = call(stack, "POST", LEASE, b'{"worker":\n oops}', Authorization=header)
    problem = json.loads(data)
    assert (problem["code"], problem["line"], problem["column"]) == ("malformed_body", 2, 2)
    most = LEASE_LIMIT.size
    response, data = call(stack, "POST", LEASE, b" " * (most + 1), Authorization="Worker x")
    assert (response.status, json.loads(data)["limit"]) == (413, most)


def test_sigterm_answers_parked_polls_and_ends_with_success(own_stack: Stack) -> None:
    header, uuid = worker(own_stack)
    answers: list[bytes] = []

    def poll() -> None:
        body = json.dumps({"worker": uuid})
        answers.append(
            call(
                own_stack,
                "POST",
                "/api/v1/workers/lease",
                body,
                Authorization=header,
                Prefer="wait=60",
            )[1]
        )

    thread = threading.Thread(target=poll)
    thread.start()
    wait_until(lambda: parked_polls(own_stack.url) == 1)
    process = own_stack.signal_server(signal.SIGTERM)
    assert process.wait(20) == 0
    thread.join(20)
    answer = json.loads(answers[0])
    assert (answer["leases"], answer["expressions"]) == ([], {})
