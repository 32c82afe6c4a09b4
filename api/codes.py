"""Every `code` of a problem document: its status, what it means, what to do, and what it carries.

One table for the description in OpenAPI, for the pages that a problem's `type` leads to, and for
the table in docs/api.md, which a test holds against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

MEDIA_TYPE = "application/problem+json"
# A relative reference, as RFC 9457 allows: the page is on the server that answered.
PAGES = "/api/problems/"
# Where a description of an answer says which codes it has.
CODES_OF = "x-codes"
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
# What each member says that only some problems have.
MEMBERS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "field": (TEXT, "The field, or the query parameter, that is wrong."),
    "errors": (
        {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "detail"],
                "properties": {"field": TEXT, "detail": TEXT},
            },
        },
        "Every field that is wrong.",
    ),
    "line": (NUMBER, "From 1."),
    "column": (NUMBER, "From 1, in characters."),
    "caret": (TEXT, "The definition's line, and a caret below the column."),
    "rewrite": (TEXT, "The whole definition, where it is sure what was meant."),
    "limit": (NUMBER, "What may be sent, or how long it may take."),
    "retry_after": (NUMBER, "Seconds to wait; as the header `Retry-After`."),
    "request_id": (TEXT, "The server's log has the details under it."),
}


@dataclass(frozen=True)
class Code:
    status: int
    means: str
    todo: str
    members: tuple[str, ...] = ()


CODES: Mapping[str, Code] = {
    "invalid": Code(
        400,
        "A value in the body or in the query is not what the field takes.",
        "`field` names the first that is wrong, `errors` all of a body: correct them.",
        ("field", "errors"),
    ),
    "unknown_field": Code(
        400,
        "A field or a query parameter does not exist.",
        "`detail` lists those that do: what is not understood is refused, never ignored.",
        ("field",),
    ),
    "malformed_body": Code(
        400,
        "The body is not JSON.",
        "`line` and `column` say where it ends to be.",
        ("line", "column"),
    ),
    "invalid_definition": Code(
        400,
        "The definition is not XPath 1.0, or uses what definitions may not.",
        "`column` and `caret` show the place; `rewrite` is what was most likely meant.",
        ("field", "column", "caret", "rewrite"),
    ),
    "invalid_document": Code(
        400,
        "The document is not XML that can be stored.",
        "`line` and `column` show the place.",
        ("field", "line", "column"),
    ),
    "bad_request": Code(400, "The request is malformed.", "Look at its path and its headers."),
    "unknown_host": Code(
        400,
        "The server does not answer to the name in the `Host` header.",
        "Use a name in TAGMILL_ALLOWED_HOSTS, or add it there.",
    ),
    "unauthorized": Code(
        401,
        "There is no token, or it is wrong, expired or revoked.",
        "Send `Authorization: Bearer <token>`, or log in.",
    ),
    "forbidden": Code(
        403,
        "The role is not enough for this.",
        "`detail` says which it takes: an administrator can give it.",
    ),
    "csrf_failed": Code(
        403,
        "A browser's session came without its CSRF token.",
        "Reload the page, or send a token.",
    ),
    "not_found": Code(
        404,
        "There is nothing of that name, or no such address.",
        "Look at the name; lists say what there is.",
        ("field",),
    ),
    "images_off": Code(
        404, "The server keeps no shared images.", "The worker fetches the documents."
    ),
    "image_missing": Code(
        404, "There is no such shared image, or it is gone.", "The worker fetches the documents."
    ),
    "unknown_expression_set": Code(
        404,
        "The worker names an expression set that is gone.",
        "The worker leases again, or names expressions by their ids.",
    ),
    "method_not_allowed": Code(
        405, "The address has no such method.", "`Allow` has those that it has."
    ),
    "not_acceptable": Code(
        406,
        "The address has no answer of the type that `Accept` asks for.",
        "Ask for one that is described.",
    ),
    "conflict": Code(409, "What is there stands against it.", "`detail` says what.", ("field",)),
    "already_exists": Code(
        409, "The name is taken.", "Choose another, or change what has it.", ("field",)
    ),
    "still_in_use": Code(409, "Something else needs it.", "`detail` says what: remove that first."),
    "too_many_tokens": Code(
        409,
        "The user has as many tokens as TAGMILL_TOKENS_PER_USER allows.",
        "Revoke one.",
    ),
    "automatic_tag": Code(409, "A definition decides about the tag.", "Change the definition."),
    "manual_tag": Code(409, "The tag is assigned by hand.", "There is nothing to rebuild."),
    "not_cancellable": Code(
        409, "The rebuild is over, or is that of a new tag.", "`detail` says which."
    ),
    "kind_change": Code(
        409,
        "It would make a manual tag of an automatic one, or the reverse.",
        "Send `kind` along.",
    ),
    "nothing_pending": Code(409, "No definition waits to be published.", "There is nothing to do."),
    "not_complete": Code(
        409,
        "Other clusters than those named are not evaluated yet.",
        "Wait, or name them, too.",
    ),
    "key_reused": Code(
        409,
        "The Idempotency-Key was sent before with another request.",
        "Make a new key for each request.",
    ),
    "protocol_too_old": Code(
        409,
        "The worker speaks a version of the protocol that the server has given up.",
        "Upgrade the worker.",
    ),
    "worker_gone": Code(410, "The server does not know the worker.", "The worker registers again."),
    "incarnation_changed": Code(
        410,
        "The database was restored.",
        "The worker drops what it holds, and registers again.",
    ),
    "preview_gone": Code(
        410,
        "The preview was cancelled, or a newer one of the same client took its place.",
        "Ask for the newer one, or begin again.",
    ),
    "cursor_gone": Code(
        410,
        "What the cursor names is no longer kept, or is of another database.",
        "Read the lists again, and go on from a new cursor.",
    ),
    "precondition_failed": Code(
        412,
        "`If-Match` or `If-None-Match` does not hold: somebody else was there first.",
        "Get it again, and decide anew.",
    ),
    "condition_not_supported": Code(
        412,
        "A condition was sent where none is checked.",
        "Leave it away.",
    ),
    "image_store_full": Code(
        409, "The shared images have as much room as they may have.", "The worker goes on without."
    ),
    "too_large": Code(
        413, "The body, or a part of it, is too large.", "Send less at a time.", ("field", "limit")
    ),
    "unsupported_media_type": Code(
        415,
        "The body is of a type, or in an encoding, that is not understood here.",
        "Send what is described.",
    ),
    "range_not_satisfiable": Code(
        416, "The range that is asked for is not there.", "Ask for the whole."
    ),
    "too_expensive": Code(
        422,
        "The definition takes too long, or too much memory, on this node.",
        "Write a simpler one.",
        ("limit",),
    ),
    "busy": Code(
        429, "Others of the kind come first.", "Wait `Retry-After` seconds.", ("retry_after",)
    ),
    "throttled": Code(
        429, "There were too many attempts.", "Wait `Retry-After` seconds.", ("retry_after",)
    ),
    "internal": Code(
        500,
        "There is a bug in the server.",
        "Report it with the `request_id`.",
        ("request_id",),
    ),
    "document_damaged": Code(
        500,
        "A stored document cannot be read.",
        "Delete this probe's document of the node, and upload it again.",
    ),
    "database_unavailable": Code(
        503,
        "The database does not answer.",
        "Try again after `Retry-After` seconds.",
    ),
    "database_busy": Code(
        503,
        "A statement or a lock took too long.",
        "Try again after `Retry-After` seconds, or ask for less.",
    ),
    "cache_unavailable": Code(
        503,
        "The counters of attempts cannot be reached.",
        "Look at TAGMILL_CACHE_URL on the server.",
    ),
    "images_unavailable": Code(
        503,
        "Shared images cannot be reached.",
        "The worker goes on without them; look at TAGMILL_IMAGE_STORE on the server.",
    ),
    "not_migrated": Code(
        503,
        "The database lacks migrations.",
        "Run `manage.py migrate` on the server.",
    ),
}


def type_of(code: str) -> str:
    """What a problem's `type` says: the address of the code's page, or `about:blank`."""
    return f"{PAGES}{code}" if code in CODES else "about:blank"


def component(codes: Iterable[str]) -> str:
    """The name of the schema in OpenAPI of problems with one of these codes."""
    return "".join(code.title().replace("_", "") for code in codes) + "Problem"


def schemas(answers: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The schemas that these descriptions of answers, made by `responses`, refer to."""
    found = {}
    for answer in answers:
        if named := answer.get(CODES_OF):
            found[component(named)] = _schema(named)
    return found


def _schema(named: Sequence[str]) -> dict[str, Any]:
    """One schema for all codes that an operation may answer a status with: a client tells them by
    `code`, and needs no type for each."""
    about = [CODES[code] for code in named]
    properties: dict[str, Any] = {
        "type": {"type": "string", "format": "uri-reference"},
        "title": TEXT,
        "status": {"type": "integer", "enum": [about[0].status]},
        "code": {"type": "string", "enum": list(named)},
        "detail": {"type": "string", "description": "For people: what is wrong, and what to do."},
    }
    for name in sorted({name for code in about for name in code.members}):
        schema, description = MEMBERS[name]
        properties[name] = {**schema, "description": description}
    return {
        "type": "object",
        "description": " ".join(f"`{code}`: {CODES[code].means}" for code in named),
        "required": ["type", "title", "status", "code", "detail"],
        "properties": properties,
    }


def responses(codes: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The answers of an operation that fails with one of these codes, by status."""
    by_status: dict[int, list[str]] = {}
    for code in sorted(set(codes), key=list(CODES).index):
        by_status.setdefault(CODES[code].status, []).append(code)
    return {str(status): _response(status, named) for status, named in sorted(by_status.items())}


def _response(status: int, codes: list[str]) -> dict[str, Any]:
    meanings = " ".join(f"`{code}`: {CODES[code].means} {CODES[code].todo}" for code in codes)
    place = f"#/components/schemas/{component(codes)}"
    return {
        "description": f"{HTTPStatus(status).phrase}. {meanings}",
        "content": {MEDIA_TYPE: {"schema": {"$ref": place}}},
        CODES_OF: codes,
    }


def table() -> str:
    """All codes as the Markdown of docs/api.md."""
    lines = [
        "| code | status | what it means, and what to do | more members |",
        "|---|---|---|---|",
    ]
    for code, about in CODES.items():
        members = ", ".join(f"`{name}`" for name in about.members)
        lines.append(f"| `{code}` | {about.status} | {about.means} {about.todo} | {members} |")
    return "\n".join(lines) + "\n"
