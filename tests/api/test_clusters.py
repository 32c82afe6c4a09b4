"""Clusters over REST, the admin and the commands."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from rest_framework.test import APIClient

from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster
from tests.support.http import problem


def test_a_cluster_never_takes_the_uuid_of_another_as_its_name(admin: APIClient) -> None:
    first, second = clusters.create("first"), clusters.create("second")
    body = {"name": str(second.uuid)}
    problem(admin.patch("/api/v1/clusters/first", body, format="json"), 400, "invalid")
    problem(admin.post("/api/v1/clusters/", body, format="json"), 400, "invalid")
    # One that got such a name earlier.
    Cluster.objects.filter(pk=first.pk).update(name=str(second.uuid))
    assert admin.get(f"/api/v1/clusters/{second.uuid}").json()["name"] == "second"
    assert admin.delete(f"/api/v1/clusters/{second.uuid}").status_code == 204
    assert Cluster.objects.get().uuid == first.uuid


def test_the_admin_and_the_commands_refuse_such_names_as_well(db: None, tmp_path: Path) -> None:
    north, name = clusters.create("north"), str(uuid4())
    site = Client()
    site.force_login(User.objects.create_superuser("root"))
    for page in ("add/", f"{north.pk}/change/"):
        answer = site.post(f"/admin/fleet/cluster/{page}", {"name": name})
        assert answer.status_code == 200
        assert b"must not be a uuid" in answer.content
    file, errors = tmp_path / "a.xml", StringIO()
    file.write_text("<list/>")
    with pytest.raises(CommandError):
        call_command("import_lshw", str(file), cluster=name, stderr=errors)
    assert "must not be a uuid" in errors.getvalue()
    assert list(Cluster.objects.values_list("name", flat=True)) == ["north"]
