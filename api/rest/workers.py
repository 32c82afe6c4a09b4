"""/api/v1/workers/: the protocol of docs/protocol.md for workers, and the list of them for people.

What workers ask for all the time is native: `lease` (api/server/lease.py), `complete`
(api/server/completion.py) and the nodes of a partition (api/server/batches.py).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

from django.db.models import Q
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from msgspec import UNSET
from msgspec.structs import replace
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import limits
from api.authentication import WorkerTokenAuthentication
from api.openapi import Says, reference
from api.parsers import MessageParser
from api.permissions import IsWorker
from api.protocol import check_leases, message, registered
from api.rest import filters
from api.rest.base import Resource
from api.rest.clusters import cluster_named
from api.roles import Role
from tagmill.config import load
from tagmill.errors import Invalid, ProtocolTooOld
from tagmill.fleet.models import Cluster
from tagmill.work import leases, membership, workers
from tagmill.work.models import Worker, WorkerToken
from tagmill_wire import messages

# What a worker could not evaluate is tried again within the hour.
MAX_DELAY = 3600

T = TypeVar("T", bound=messages.Message)


class LeaseOut(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    partition = serializers.IntegerField(source="partition_id")
    rev = serializers.IntegerField()
    leased_at = serializers.DateTimeField()
    deadline = serializers.DateTimeField()


class Throughput(serializers.Serializer[Any]):
    partitions_per_second = serializers.FloatField(help_text="Completed.")
    documents_per_second = serializers.FloatField(help_text="Evaluated.")


class WorkerOut(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    name = serializers.CharField()
    evaluator = serializers.CharField()
    version = serializers.CharField()
    host = serializers.CharField()
    pid = serializers.IntegerField()
    token = serializers.CharField(source="token.name")
    clusters = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="Those that it may answer for; null: all.",
    )
    registered_at = serializers.DateTimeField()
    last_heartbeat = serializers.DateTimeField()
    alive = serializers.BooleanField(help_text="It was heard of within TAGMILL_LEASE_SECONDS.")
    throughput = Throughput(
        allow_null=True,
        help_text="Of its last minute, as of its last heartbeat; null: it did not say.",
    )
    leases = LeaseOut(many=True)


def _is_alive(wanted: bool) -> Q:
    since = timezone.now() - timedelta(seconds=load().lease_seconds)
    return Q(last_heartbeat__gt=since) if wanted else Q(last_heartbeat__lte=since)


def _answers_for(key: str) -> Q:
    named = WorkerToken.clusters.through.objects.filter(cluster=cluster_named(key).id)
    return Q(token__all_clusters=True) | Q(token__in=named.values("workertoken"))


FILTERS = (
    filters.flag("alive", _is_alive, "Whether it was heard of within TAGMILL_LEASE_SECONDS."),
    filters.text("cluster", _answers_for, "A cluster that it may answer for, by name or uuid."),
    filters.text("prefix", "name__istartswith", "What the name begins with, in any case."),
)


class Workers(Resource):
    roles = {"GET": Role.OPERATOR}
    has_pages = True
    filters = FILTERS
    orders = {"registered_at": "id", "-registered_at": "-id"}
    serializer_class = WorkerOut
    queryset = Worker.objects.all()

    @extend_schema(operation_id="workers_list", responses=WorkerOut(many=True))
    def get(self, request: Request) -> Response:
        """List the workers

        With what each of them holds."""
        found = Worker.objects.select_related("token").prefetch_related("leases", "token__clusters")
        return self.page(found, lambda rows: [_body(row) for row in rows])


OWN = ("uuid", "name", "evaluator", "version", "host", "pid", "registered_at", "last_heartbeat")
OF_LEASE = ("uuid", "rev", "leased_at", "deadline")


def _body(worker: Worker) -> dict[str, Any]:
    named = workers.clusters_of(worker.token)
    silence = timezone.now() - worker.last_heartbeat
    return {
        **{name: getattr(worker, name) for name in OWN},
        "token": worker.token.name,
        "clusters": None if named is None else [cluster.name for cluster in named],
        "alive": silence.total_seconds() < load().lease_seconds,
        "throughput": _throughput(worker),
        "leases": [
            {
                "partition": lease.partition_id,
                **{name: getattr(lease, name) for name in OF_LEASE},
            }
            for lease in worker.leases.all()
        ],
    }


def _throughput(worker: Worker) -> dict[str, float] | None:
    if not worker.done_seconds:
        return None
    counts = {"partitions": worker.done_partitions, "documents": worker.done_documents}
    return {
        f"{name}_per_second": round(count / worker.done_seconds, 1)
        for name, count in counts.items()
    }


class WorkerCall(Resource):
    """One message of the protocol. `request.auth` is the WorkerToken."""

    keeps_answers = False
    authentication_classes = [WorkerTokenAuthentication]
    permission_classes = [IsWorker]
    parser_classes = [MessageParser]
    serializer_class = serializers.Serializer
    queryset: Any = Worker.objects.none()

    def message(self, kind: type[T]) -> T:
        """The body. Raises Invalid."""
        body: Any = self.request.data
        # DRF gives an empty dict for an empty body.
        return message(kind, body or b"")

    def worker(self, uuid: str) -> Worker:
        """Raises WorkerGone."""
        return registered(uuid, self.token)

    @property
    def token(self) -> WorkerToken:
        return cast(WorkerToken, self.request.auth)


View = TypeVar("View", bound=Callable[..., HttpResponse])


def _documented(
    operation: str,
    asked: type[messages.Message],
    answer: type[messages.Message] | None,
    status: int = 200,
) -> Callable[[View], View]:
    said = OpenApiTypes.OBJECT if answer is None else reference(answer)
    return extend_schema(
        operation_id=f"workers_{operation}",
        request={"application/json": reference(asked)},
        responses={(status, "application/json"): said},
        tags=["worker protocol"],
    )


class RegisterWorker(WorkerCall):
    says = {"POST": Says(errors=("protocol_too_old",))}

    @_documented("register", messages.Register, messages.Registered, 201)
    def post(self, request: Request) -> HttpResponse:
        """Register a worker

        See docs/protocol.md, `register`."""
        said = self.message(messages.Register)
        if said.protocol < messages.OLDEST:
            raise ProtocolTooOld(
                f"this worker ({said.version}) speaks version {said.protocol} of the protocol, and"
                f" the server {messages.OLDEST} to {messages.VERSION}: upgrade the worker"
            )
        worker = workers.register(self.token, said)
        named = workers.clusters_of(self.token)
        clusters = Cluster.objects.all() if named is None else named
        config = load()
        answer = messages.Registered(
            worker=str(worker.uuid),
            incarnation=str(worker.incarnation),
            clusters=[str(uuid) for uuid in clusters.values_list("uuid", flat=True)],
            heartbeat_seconds=config.heartbeat_seconds,
            lease_seconds=config.lease_seconds,
            evaluation_seconds=config.evaluation_seconds,
            batch_nodes=config.batch_nodes,
            batch_bytes=config.batch_bytes,
            protocol=min(said.protocol, messages.VERSION),
        )
        return wire_answer(answer, 201)


class Heartbeat(WorkerCall):
    says = {"POST": Says(errors=("worker_gone", "incarnation_changed"))}
    body_limit = limits.LIST

    @_documented("heartbeat", messages.Heartbeat, messages.HeartbeatAnswer)
    def post(self, request: Request) -> HttpResponse:
        """Say that a worker lives

        See docs/protocol.md, `heartbeat`."""
        asked = self.message(messages.Heartbeat)
        check_leases(asked.leases)
        done = None if asked.done is UNSET else asked.done
        if done is not None and min(done.partitions, done.documents) < 0:
            raise Invalid("nothing is done less than no times", field="done")
        lost = leases.heartbeat(self.worker(asked.worker), asked.leases, done)
        answer = messages.HeartbeatAnswer(lost=[str(uuid) for uuid in lost])
        if asked.epoch is not UNSET and (now := membership.epoch()) != asked.epoch:
            answer = replace(answer, epoch=now)
        return wire_answer(answer)


class ShareOfWorker(WorkerCall):
    says = {"POST": Says(errors=("worker_gone", "incarnation_changed"))}

    @_documented("share", messages.ShareRequest, messages.Share)
    def post(self, request: Request) -> HttpResponse:
        """Ask which partitions to hold

        See docs/protocol.md, `share`."""
        asked = self.message(messages.ShareRequest)
        worker = self.worker(asked.worker)
        share = membership.share(worker, asked)
        if asked.former not in {None, asked.worker}:
            leases.end_former(worker, str(asked.former))
        return wire_answer(share)


class GiveUp(WorkerCall):
    says = {"POST": Says(errors=("worker_gone", "incarnation_changed"))}
    body_limit = limits.LIST

    @_documented("fail", messages.GiveUp, None)
    def post(self, request: Request) -> HttpResponse:
        """Give leases back

        See docs/protocol.md, `fail`."""
        asked = self.message(messages.GiveUp)
        if not 0 <= asked.delay <= MAX_DELAY:
            raise Invalid(f"must be 0 to {MAX_DELAY} seconds", field="delay")
        worker = self.worker(asked.worker)
        check_leases(asked.leases)
        leases.give_up(worker, asked.leases, asked.reason, asked.delay)
        return HttpResponse(b"{}", content_type="application/json")


def wire_answer(message: messages.Message, status: int = 200) -> HttpResponse:
    body = messages.dump(message)
    return HttpResponse(body, status=status, content_type="application/json")
