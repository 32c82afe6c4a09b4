"""/api/v1/fleet/samples: how the fleet was in the last hour, for charts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models.functions import Now
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.rest.base import Resource
from api.roles import Role
from tagmill.work.models import Sample

HOUR = timedelta(hours=1)
FIELDS = ("at", "nodes", "stale", "jobs", "leases", "workers", "changes", "verdicts")


class SampleOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    nodes = serializers.IntegerField()
    stale = serializers.IntegerField(help_text="Matches that wait for evaluation.")
    jobs = serializers.IntegerField(help_text="Partitions that wait for a worker.")
    leases = serializers.IntegerField(help_text="Partitions that a worker is at.")
    workers = serializers.IntegerField(help_text="Workers that were heard of.")
    changes = serializers.IntegerField(
        help_text="Changes of partitions since the sample before; nodes stored together count once."
    )
    verdicts = serializers.IntegerField(
        help_text="Verdicts on nodes by workers since the sample before."
    )


class SamplesOut(serializers.Serializer[Any]):
    results = SampleOut(many=True)


class Samples(Resource):
    roles = {"GET": Role.OPERATOR}
    serializer_class = SamplesOut
    queryset = Sample.objects.all()

    @extend_schema(operation_id="fleet_samples", responses=SamplesOut)
    def get(self, request: Request) -> Response:
        """Read how the fleet was in the last hour

        A sample each 20 seconds or so, the oldest first; none for the time when no server ran."""
        found = Sample.objects.filter(at__gt=Now() - HOUR).order_by("at")
        return Response({"results": list(found.values(*FIELDS))})
