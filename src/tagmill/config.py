"""Everything a user can set, validated at start.

One field is one setting: its environment variable is `TAGMILL_<NAME>` (`DATABASE_URL` and
`BENCH_DATABASE_URL` keep their usual names). `docs/settings.md` is generated from this table.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from tagmill import cores
from tagmill.errors import ConfigurationError
from tagmill.program import data_directory
from tagmill_wire.sizes import size

KIB = 1024
MIB = 1024 * KIB
MAX_PORT = 65_535
MAX_PROCESSES = 64
OIDC_ROLES = {"viewer", "uploader", "operator", "admin"}
# Each of a server's processes takes an equal part of these.
DIVIDED = ("connections_per_address", "unread_bytes", "body_cache_bytes")


class Config(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TAGMILL_", frozen=True)

    database_url: Annotated[str, Field(validation_alias="DATABASE_URL")] = ""
    """PostgreSQL 14 to 18, as `postgresql://user:password@host:port/name`. Empty: an embedded
    PostgreSQL under the data directory."""

    connect_seconds: Annotated[int, Field(ge=2, le=120)] = 5
    """How long a connection to PostgreSQL may take to come about (`connect_timeout` in
    `DATABASE_URL` wins)."""

    statement_seconds: Annotated[float, Field(ge=0, le=3600)] = 60.0
    """The longest that one statement of an API server may take, or a transaction stay idle, before
    PostgreSQL ends it; the request is answered with a 503. 0: no limit, also for locks, as
    PgBouncer wants it, which takes no `options`. Commands and periodic tasks are not bound."""

    lock_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """The longest that a statement of an API server waits for a lock."""

    prepare_after: Annotated[int, Field(ge=0, le=1000)] = 5
    """A connection prepares a statement of a hot path that comes for so many times. 0: never, as
    poolers before PgBouncer 1.22 want it, which hand connections on between transactions."""

    var: Path = Field(default_factory=data_directory)
    """The data directory: the embedded PostgreSQL and the demo's state. In a checkout `var`; where
    Tagmill is installed, `STATE_DIRECTORY` or `~/.local/state/tagmill`."""

    listen: str = "127.0.0.1:8080"
    """Address and port of the API server."""

    secret_key: str = ""
    """Django's signing key, the same for all servers. Empty: made once and kept in the database, so
    that a session holds at every server."""

    allowed_hosts: str = "localhost,127.0.0.1,[::1]"
    """Host names that the API answers to, separated by commas."""

    csrf_trusted_origins: str = ""
    """Origins (`https://tags.example.com`) that may post to the admin, separated by commas."""

    cors_origins: str = ""
    """Origins (`https://tags.example.com`) whose pages may call the API with a token, separated by
    commas. Cookies of a session are never taken from them."""

    trusted_proxies: Annotated[int, Field(ge=0, le=16)] = 0
    """Proxies in front, each of which adds to `X-Forwarded-For`. Above 0, `X-Forwarded-Proto` is
    trusted as well, and cookies are sent over TLS alone. 0: no such header is trusted."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is logged, as one JSON object a line on standard error."""

    trace_url: str = ""
    """Where traces are sent by OTLP over HTTP, as `http://127.0.0.1:4318` (needs `pip install
    'tagmill[tracing]'`). Empty: nowhere, and none are made."""

    trace_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of requests of which traces are made; those that are part of one already always
    are."""

    cache_url: str = ""
    """Where the counters are that all server processes share (attempts to log in, previews a
    minute): `redis://host:6379/0` (needs `pip install redis`) or `memcached://host:11211` (needs
    `pip install pymemcache`). Empty: in the database."""

    token_days: Annotated[float, Field(ge=0, le=36_500)] = 90.0
    """How long a token of a user lasts that is issued without a time of its own. 0: for ever."""

    login_hours: Annotated[float, Field(ge=0, le=87_600)] = 12.0
    """How long a token lasts that somebody got for a name and a password. 0: for ever."""

    tokens_per_user: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Most tokens issued for one user, and most that the user got by logging in: beyond it, the
    first are refused, and the oldest of the second end."""

    oidc_issuer: str = ""
    """The provider of OpenID Connect by which people log in at the workbench, as
    `https://id.example.com/realms/fleet` (needs `pip install 'tagmill[oidc]'`): exactly as its
    discovery says it. Empty: by name and password alone."""

    oidc_client_id: str = ""
    """This server's name at the provider. Its redirect URI there is `/login/oidc/callback`."""

    oidc_client_secret: str = ""
    """The secret that belongs to it."""

    oidc_roles: str = ""
    """Which groups of the provider have which role, as `fleet-ops=operator,everybody=viewer`. Who
    has none of them is not let in."""

    oidc_groups_claim: str = "groups"
    """The claim that lists a user's groups."""

    oidc_name_claim: str = "preferred_username"
    """The claim that a user is called by here, at the first login."""

    oidc_scopes: str = "openid profile"
    """What the provider is asked for."""

    metrics_token: str = ""
    """What `/metrics` asks for as `Authorization: Bearer`. Empty: it answers only to clients on the
    same machine that come without a proxy."""

    processes: Annotated[int, Field(ge=1, le=MAX_PROCESSES)] = 1
    """Processes of an API server, behind one address; `auto`: one for each core. Each has threads,
    connections to the database and caches of its own, which docs/server.md counts."""

    threads: Annotated[int, Field(ge=2, le=64)] = 16
    """Threads of each process for REST and admin requests. Waiting workers and event streams need
    none."""

    connections: Annotated[int, Field(ge=16, le=65_536)] = 8192
    """Most connections at once, to all processes of a server; further ones are closed. A worker has
    up to four."""

    connections_per_address: Annotated[int, Field(ge=4, le=65_536)] = 2048
    """Most connections of one address; each process takes its part of them. Not counted where
    `TAGMILL_TRUSTED_PROXIES` is above 0: there, every connection is a proxy's."""

    unread_bytes: Annotated[int, Field(ge=1 * MIB)] = 256 * MIB
    """Most bytes of answers that wait in memory for clients that read slowly, all together; each
    process has its part. Beyond it, those that have been behind for longest are disconnected. What
    a connection's buffer holds anyway, 64 KiB at most, is not counted."""

    drain_seconds: Annotated[float, Field(ge=0.1, le=600)] = 20.0
    """How long a server that is told to stop lets running requests finish. Kubernetes kills after
    30 s."""

    maintenance: bool = True
    """Run the periodic tasks (reaper, sweep, collection, clean-up) inside this API server."""

    partition_slots: Annotated[int, Field(ge=8, le=65_536, multiple_of=8)] = 1024
    """Slots of a partition made from now on; existing ones keep theirs."""

    compact_below: Annotated[float, Field(ge=0, le=0.75)] = 0.5
    """A full partition of which at most this part of the slots has live nodes is emptied into
    another, and deleted. 0: none is."""

    # JSON's quoting doubles a document at worst, and a worker takes pages of 256 MiB. A test holds
    # both limits against that.
    document_bytes: Annotated[int, Field(ge=1024, le=7 * MIB)] = 4 * MIB
    """The largest XML document accepted, as it is uploaded and in UTF-8. Real `lshw -xml` documents
    are 15 to 300 kB. At most 7 MiB: all 16 that a node may have go to a worker in one page."""

    pack_documents: bool = True
    """Pack documents with dictionaries that are trained on each cluster's own. Off: documents are
    stored as XML from now on, and those that are packed stay so."""

    pack_seconds: Annotated[float, Field(ge=0.1, le=8)] = 2.0
    """How long, of each ten seconds, periodic tasks pack what was stored before its dictionary."""

    document_depth: Annotated[int, Field(ge=8, le=255)] = 128
    """The deepest nesting of elements accepted. libxml2 itself stops at 256."""

    document_nodes: Annotated[int, Field(ge=1000, le=1_000_000)] = 400_000
    """Most elements, texts, comments and (two each) attributes of a document; 4 MiB of real `lshw
    -xml` have some 380,000. A server takes up to 200 bytes for each while it checks the document.
    """

    request_bytes: Annotated[int, Field(ge=1 * MIB)] = 16 * MIB
    """The largest results of a worker in one request, and the largest node with its documents as
    JSON; other requests have smaller bounds of their own. At least 1 MiB: a worker's result for one
    partition of 1024 slots and 500 tags has up to 220 kB, and what it learnt for lint comes on
    top."""

    import_line_bytes: Annotated[int, Field(ge=1024)] = 16 * MIB
    """The longest line of a bulk import."""

    definition_bytes: Annotated[int, Field(ge=64, le=16 * KIB)] = 16 * KIB
    """The longest definition of a tag, 16 KiB at most."""

    batch_nodes: Annotated[int, Field(ge=1, le=65_536)] = 1024
    """Most nodes in one batch to a worker, whatever the worker asks for."""

    batch_bytes: Annotated[int, Field(ge=64 * KIB, le=64 * MIB)] = 16 * MIB
    """Most XML bytes in one batch to a worker (a single node that has more still goes out). At most
    64 MiB, which every worker takes."""

    body_cache_bytes: Annotated[int, Field(ge=0)] = 64 * MIB
    """Memory for bodies that are kept as they are sent: lists of nodes, batches, statuses; each
    process has its part. 0 keeps none."""

    status_seconds: Annotated[float, Field(ge=1, le=10)] = 5.0
    """The longest that a status (tags with their states, rebuilds) is kept for requests that allow
    an age (`Cache-Control: max-age=`); others never get a kept one."""

    body_cache_url: str = ""
    """Where servers and their processes share bodies: `memcached://host:11211` (needs `pip install
    pymemcache`) or `redis://host:6379/1` (needs `pip install redis`). Empty: each process has its
    own alone."""

    cache_servers: str = ""
    """The memcached servers that share bodies, instead of `TAGMILL_BODY_CACHE_URL` (needs `pip
    install pymemcache`): `host:port`, separated by commas, this host's own first. `dns:name:port`
    is all addresses of a name, looked up again and again; `file:/path` a file of such lines, read
    again and again."""

    cache_item_bytes: Annotated[int, Field(ge=1024, le=128 * MIB)] = 1 * MIB - 16 * KIB
    """The largest body that is given to cache servers: less than their own limit, which is 1 MiB in
    a memcached that has no other (`-I`)."""

    cache_server_seconds: Annotated[float, Field(ge=0.01, le=10)] = 0.25
    """How long a cache server may take for one answer. After three that are later it is left out
    for a while."""

    image_store: str = ""
    """Where images of partitions are that workers share: a directory, the same for all servers, or
    `s3://bucket/prefix` (needs `pip install 'django-storages[s3]'`; keys and address are in boto3's
    own variables, as `AWS_ENDPOINT_URL_S3`). Empty: `images` in the data directory."""

    image_store_bytes: Annotated[int, Field(ge=0)] = 16 * 1024 * MIB
    """Bytes that all shared images may take; beyond it none is stored. 0: none are shared."""

    image_bytes: Annotated[int, Field(ge=1 * MIB, le=256 * MIB)] = 64 * MIB
    """The largest image of a partition that a worker may share. 1024 nodes of 60 kB have some 5 MB.
    """

    image_days: Annotated[int, Field(ge=1)] = 30
    """How long the image of a partition stays that one kind of worker shared, once there is one of
    another kind: kinds change with versions."""

    lease_seconds: Annotated[int, Field(ge=2, le=3600)] = 60
    """How long a lease lasts without a heartbeat, by the database's clock."""

    heartbeat_seconds: Annotated[int, Field(ge=1, le=600)] = 15
    """How often a worker says that it lives, at most half of a lease. A worker silent for three
    leases is forgotten."""

    poll_seconds: Annotated[int, Field(ge=1, le=300)] = 60
    """The longest that a long-poll is held (`Prefer: wait`)."""

    evaluation_attempts: Annotated[int, Field(ge=1, le=10)] = 2
    """How many different workers must fail an expression before it counts as failed; the only one
    that lives must fail it under so many leases."""

    evaluation_seconds: Annotated[float, Field(gt=0)] = 5.0
    """The longest that one expression may take on one document before a worker stops it."""

    settle_seconds: Annotated[float, Field(ge=0, le=5)] = 0.05
    """The longest that a server evaluates what one transaction uploads, where the kernel is
    installed, so that its tags are true when it is answered; the rest is left to workers. 0 leaves
    all of it to them."""

    settle_steps: Annotated[int, Field(ge=1_000, le=10_000_000)] = 20_000
    """Most steps (nodes looked at) of one expression on one document in a server; one that takes
    more is left to workers."""

    expression_hours: Annotated[float, Field(ge=0)] = 1.0
    """How long an expression that nothing refers to is kept."""

    preview_minutes: Annotated[float, Field(gt=0)] = 10.0
    """How long a preview is kept, and true to the fleet, unless its client asks for another."""

    previews_per_minute: Annotated[int, Field(ge=1)] = 240
    """Most previews that a user may ask for in a minute, counted over all server processes."""

    finished_job_hours: Annotated[int, Field(ge=0)] = 1
    """How long finished jobs stay visible in the admin."""

    rebuild_days: Annotated[int, Field(ge=1)] = 30
    """How long rebuilds that are over stay listed."""

    change_days: Annotated[int, Field(ge=1)] = 90
    """How long the trail keeps which nodes a tag gained and lost, and the names of nodes in
    partitions that are gone."""

    audit_days: Annotated[int, Field(ge=1)] = 365
    """How long the audit keeps who changed tags, clusters, tokens, users and their roles."""

    @field_validator("*", mode="before")
    @classmethod
    def _has_unit(cls, value: Any, info: ValidationInfo) -> Any:
        is_size = (info.field_name or "").endswith("_bytes") and isinstance(value, str)
        return size(value) if is_size else value

    @field_validator("processes", mode="before")
    @classmethod
    def _counts_cores(cls, value: Any) -> Any:
        if value == "auto":
            return min(cores.available(), MAX_PROCESSES)
        if isinstance(value, str) and not value.strip().isdigit():
            raise ValueError(f"must be a number from 1 to {MAX_PROCESSES}, or auto")
        return value

    @field_validator("listen")
    @classmethod
    def _has_port(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or not 0 <= int(port) <= MAX_PORT:
            raise ValueError("must be ADDRESS:PORT, for example 127.0.0.1:8080")
        return value

    @model_validator(mode="after")
    def _can_log_in(self) -> Self:
        if not self.oidc_issuer:
            return self
        url = urlsplit(self.oidc_issuer)
        if url.scheme != "https" and url.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise ValueError("TAGMILL_OIDC_ISSUER must be an https URL")
        for name in ("oidc_client_id", "oidc_client_secret", "oidc_roles"):
            if not getattr(self, name):
                raise ValueError(f"TAGMILL_OIDC_ISSUER needs TAGMILL_{name.upper()}")
        if unknown := set(self.oidc_role_of.values()) - OIDC_ROLES:
            known = ", ".join(sorted(OIDC_ROLES))
            raise ValueError(f"TAGMILL_OIDC_ROLES: {min(unknown)!r} is not one of {known}")
        return self

    @property
    def oidc_role_of(self) -> dict[str, str]:
        """Roles by the provider's groups."""
        pairs = (pair.rpartition("=") for pair in self.oidc_roles.split(",") if pair.strip())
        return {group.strip(): role.strip() for group, _, role in pairs}

    @model_validator(mode="after")
    def _outlives_a_lost_heartbeat(self) -> Self:
        if 2 * self.heartbeat_seconds > self.lease_seconds:
            raise ValueError(
                f"TAGMILL_HEARTBEAT_SECONDS={self.heartbeat_seconds} is more than half of "
                f"TAGMILL_LEASE_SECONDS={self.lease_seconds}: one heartbeat that is late would end "
                "leases of workers that live"
            )
        return self

    def part(self, most: int) -> int:
        """What one process may take of `most` that the whole server may: 1 at least, unless that is
        nothing."""
        return min(most, max(1, most // self.processes))

    def of_one_process(self) -> Self:
        """The same, with one process's part of what is divided."""
        return self.model_copy(update={name: self.part(getattr(self, name)) for name in DIVIDED})

    @property
    def listen_address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


@functools.cache
def load() -> Config:
    """The configuration of this process. Raises ConfigurationError that names each bad variable."""
    try:
        return Config()
    except ValidationError as error:
        raise ConfigurationError("; ".join(map(_problem, error.errors()))) from None


def _problem(item: ErrorDetails) -> str:
    # What is wrong of several settings together has no place, and names them itself.
    if not item["loc"]:
        return item["msg"].removeprefix("Value error, ")
    return f"{_variable(str(item['loc'][0]))}={item['input']!r}: {item['msg']}"


def _variable(field: str) -> str:
    return field if field.isupper() else f"TAGMILL_{field.upper()}"


def table() -> str:
    """All settings as the Markdown of docs/settings.md."""
    meanings = _meanings()
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for name, info in Config.model_fields.items():
        default = info.default
        shown = "" if default == "" or info.default_factory else f"`{default}`"
        meaning = " ".join(meanings.get(name, "").split())
        lines.append(f"| `{info.validation_alias or _variable(name)}` | {shown} | {meaning} |")
    return "\n".join(lines) + "\n"


def _meanings() -> dict[str, str]:
    """The text below each field. pydantic could collect them, but would do so at each start, where
    parsing this source again takes as long as making the rest of the class."""
    found: dict[str, str] = {}
    (made,) = ast.iter_child_nodes(ast.parse(inspect.getsource(Config)))
    for field, text in itertools.pairwise(ast.iter_child_nodes(made)):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(said))),
            ):
                found[name] = said
    return found
