"""/api/v1/cache: what the body cache counts, and what administrators ask of it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.cache import controls, reports
from api.cache.controls import Scope
from api.cache.keyspaces import KEYSPACES
from api.models import BodyCacheControl
from api.rest.base import Resource, Strict
from api.roles import Role


class ScopeIn(Strict):
    keyspace = serializers.ChoiceField(list(KEYSPACES), required=False)
    tag = serializers.CharField(
        required=False, max_length=256, help_text="Bodies about this tag: its name."
    )
    partition = serializers.IntegerField(
        required=False, min_value=0, max_value=2**63 - 1, help_text="Batches of this partition."
    )


class KeyspaceOut(serializers.Serializer[Any]):
    keyspace = serializers.CharField()
    about = serializers.CharField()
    processes = serializers.IntegerField(help_text="That have reported in the last minutes.")
    lookups = serializers.IntegerField(help_text="Hits, misses and coalesced together.")
    hits = serializers.IntegerField()
    misses = serializers.IntegerField()
    coalesced = serializers.IntegerField(help_text="That waited for the build of another request.")
    evicted_bytes = serializers.IntegerField()
    oversize = serializers.IntegerField(help_text="Bodies that were too large to be kept.")
    builds = serializers.IntegerField()
    build_seconds = serializers.FloatField()
    entries = serializers.IntegerField()
    bytes = serializers.IntegerField(help_text="Kept by all processes together.")


class ControlOut(serializers.Serializer[Any]):
    scope = serializers.CharField()
    generation = serializers.IntegerField(help_text="Raised by each flush.")
    is_off = serializers.BooleanField()
    changed_at = serializers.DateTimeField()


class CacheOut(serializers.Serializer[Any]):
    keyspaces = KeyspaceOut(many=True)
    controls = ControlOut(many=True)


def body() -> dict[str, Any]:
    counted = {found.keyspace: found._asdict() for found in reports.stats()}
    empty = reports.Stats("", *([0] * (len(reports.Stats._fields) - 1)))._asdict()
    return {
        "keyspaces": [
            {**empty, **counted.get(name, {}), "keyspace": name, "about": keyspace.about}
            for name, keyspace in KEYSPACES.items()
        ],
        "controls": list(
            BodyCacheControl.objects.values("scope", "generation", "is_off", "changed_at")
        ),
    }


class Cache(Resource):
    roles = {"GET": Role.ADMIN}
    serializer_class = CacheOut
    queryset = BodyCacheControl.objects.all()

    @extend_schema(operation_id="cache_stats")
    def get(self, request: Request) -> Response:
        """Get what the body cache counts

        Of all server processes together, two seconds old at most; and what was asked of it."""
        return Response(body())


class _Control(Resource):
    roles = {"POST": Role.ADMIN}
    serializer_class = CacheOut
    queryset = BodyCacheControl.objects.all()

    def scope(self) -> Scope:
        return Scope(**self.given(ScopeIn))


class FlushCache(_Control):
    @extend_schema(operation_id="cache_flush", request=ScopeIn, responses=CacheOut)
    def post(self, request: Request) -> Response:
        """Flush the body cache

        From now on no server answers from what it has kept of this. Without a field: of all."""
        controls.flush(self.scope())
        return Response(body())


class DisableCache(_Control):
    @extend_schema(operation_id="cache_disable", request=ScopeIn, responses=CacheOut)
    def post(self, request: Request) -> Response:
        """Switch the body cache off

        From now on every server builds these bodies for each request. Without a field: all."""
        controls.switch(self.scope(), is_off=True)
        return Response(body())


class EnableCache(_Control):
    @extend_schema(operation_id="cache_enable", request=ScopeIn, responses=CacheOut)
    def post(self, request: Request) -> Response:
        """Switch the body cache on

        Undoes `disable`; without a field, all that was disabled."""
        controls.switch(self.scope(), is_off=False)
        return Response(body())
