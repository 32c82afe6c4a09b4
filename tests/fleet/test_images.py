"""Shared images: the newest of each partition and schema, and nothing believed that is older."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.storage import storages
from django.db.models.functions import Now

from tagmill import config, image_store
from tagmill.errors import (
    ConfigurationError,
    ImageMissing,
    ImagesOff,
    ImageStoreFull,
    IncarnationChanged,
    Invalid,
    NotFound,
)
from tagmill.fleet import images, incarnation
from tagmill.fleet.images import Name
from tagmill.fleet.models import SharedImage
from tagmill.flows import full_partitions
from tagmill.flows.ingest import delete
from tests.support.fleet import north, put, the_partition

pytestmark = pytest.mark.django_db

S3 = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of a real S3 server, in a thread."""
    server = pytest.importorskip("moto.server", reason="`make proofs` installs the S3 server")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.proof)], autouse=True)
def store(
    request: pytest.FixtureRequest,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    place = str(tmp_path / "images")
    if request.param == "s3":
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", request.getfixturevalue("s3"))
        for name, value in S3.items():
            monkeypatch.setenv(name, value)
        import boto3

        bucket = f"b{uuid4()}"
        boto3.client("s3").create_bucket(Bucket=bucket)
        place = f"s3://{bucket}/some/where"
    given = config.load().model_copy(update={"image_store": place})
    made = image_store.django_settings(given)
    settings.STORAGES = {**settings.STORAGES, "images": made}
    return storages["images"]


only_directory = pytest.mark.parametrize("store", ["directory"], indirect=True)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def limit(**values: int) -> None:
        given = config.load().model_copy(update=values)
        monkeypatch.setattr(images, "load", lambda: given)

    return limit


def name(body: bytes, rev: int | None = None, schema: str = "1_kernel_x") -> Name:
    digest = hashlib.blake2b(body, digest_size=32).hexdigest()
    at = the_partition().rev if rev is None else rev
    return Name(str(incarnation.current()), at, schema, digest)


def share(body: bytes, **more: Any) -> bool:
    return images.store(the_partition().id, name(body, **more), io.BytesIO(body), len(body))


def newest(schema: str = "1_kernel_x") -> bytes:
    found = images.newest(the_partition().id, str(incarnation.current()), schema)
    with images.opened(found) as file:
        return file.read()


def files(store: Any) -> list[str]:
    return [f"{d}/{f}" for d in store.listdir("")[0] for f in store.listdir(d)[1]]


def test_the_newest_of_each_schema_is_kept_and_older_ones_go(store: Any) -> None:
    north("a")
    assert share(b"one")
    put("a", xml=b"<list/>")
    assert share(b"two")
    assert share(b"other", schema="1_lxml")
    assert (newest(), newest("1_lxml")) == (b"two", b"other")
    assert len(files(store)) == 2
    # Whoever comes late, or again, changes nothing.
    assert not share(b"late", rev=the_partition().rev - 1)
    assert not share(b"two")
    assert newest() == b"two"
    assert len(files(store)) == 2


@only_directory
def test_a_partition_has_few_schemas(store: Any) -> None:
    north("a")
    for number in range(images.MAX_SCHEMAS + 2):
        assert share(b"%d" % number, schema=f"s{number}")
    kept = set(SharedImage.objects.values_list("schema", flat=True))
    assert kept == {f"s{number}" for number in range(2, images.MAX_SCHEMAS + 2)}
    assert len(files(store)) == images.MAX_SCHEMAS


@only_directory
def test_what_another_kind_of_worker_made_goes_when_there_has_been_a_newer_one(store: Any) -> None:
    north("a")
    assert share(b"old kind", schema="1_kernel_x") and share(b"new kind", schema="2_kernel_x")
    days = timedelta(days=config.load().image_days + 1)
    assert images.sweep() == 0
    SharedImage.objects.filter(schema="1_kernel_x").update(stored_at=Now() - days)
    assert images.sweep() == 1
    assert newest("2_kernel_x") == b"new kind"
    # The only one stays, however old it is.
    SharedImage.objects.update(stored_at=Now() - days)
    assert images.sweep() == 0
    assert len(files(store)) == 1


def test_a_store_that_was_emptied_misses_and_fills_again(store: Any) -> None:
    north("a")
    share(b"one")
    for file in files(store):
        store.delete(file)
    with pytest.raises(ImageMissing):
        newest()
    assert share(b"one")
    assert newest() == b"one"


@only_directory
def test_what_was_damaged_or_put_there_by_hand_is_not_believed(store: Any) -> None:
    north("a")
    share(b"one")
    (file,) = files(store)
    Path(store.path(file)).write_bytes(b"longer")
    with pytest.raises(ImageMissing):
        newest()
    with pytest.raises(ImageMissing):
        images.named(the_partition().id, name(b"longer"))


@only_directory
def test_a_name_must_be_true() -> None:
    north("a")
    with pytest.raises(Invalid, match="digest"):
        images.store(the_partition().id, name(b"one"), io.BytesIO(b"two"), 3)
    with pytest.raises(Invalid, match="rev"):
        share(b"one", rev=the_partition().rev + 1)
    with pytest.raises(Invalid):
        Name.read("../../etc/passwd")
    with pytest.raises(NotFound):
        images.store(10**9, name(b"one"), io.BytesIO(b"one"), 3)
    other = name(b"one")._replace(incarnation=str(uuid4()))
    with pytest.raises(IncarnationChanged):
        images.store(the_partition().id, other, io.BytesIO(b"one"), 3)
    assert not SharedImage.objects.exists()


@only_directory
def test_a_restored_database_refuses_older_images(store: Any) -> None:
    """Another incarnation: neither found nor in the way, and swept."""
    north("a")
    share(b"before")
    before = name(b"before")
    incarnation.declare()
    with pytest.raises(IncarnationChanged):
        images.named(the_partition().id, before)
    with pytest.raises(ImageMissing):
        newest()
    # Also at a lower rev than the image that was there.
    assert share(b"after", rev=0)
    assert newest() == b"after"
    SharedImage.objects.update(incarnation=uuid4())
    assert images.sweep() == 1
    assert files(store) == []


def test_files_that_no_row_names_are_swept_when_they_are_old(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    north("a")
    share(b"one")
    store.save(f"{incarnation.current()}/stray", io.BytesIO(b"two"))
    assert images.sweep() == 0
    monkeypatch.setattr(images, "ORPHAN_AGE", timedelta(seconds=-1))
    assert images.sweep() == 1
    assert newest() == b"one"


@only_directory
def test_the_store_is_bounded_and_may_be_off(limit: Callable[..., None]) -> None:
    north("a")
    limit(image_store_bytes=5)
    assert share(b"five!")
    with pytest.raises(ImageStoreFull, match="IMAGE_STORE_BYTES"):
        share(b"x", schema="other")
    # In its own place.
    put("a", xml=b"<list/>")
    assert share(b"again")
    limit(image_store_bytes=0)
    with pytest.raises(ImagesOff):
        newest()
    with pytest.raises(ImagesOff):
        share(b"x")


@only_directory
def test_images_go_with_their_partition(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    north(*(f"n{number}" for number in range(the_slots())))
    share(b"one")
    for number in range(the_slots()):
        delete(f"n{number}")
    assert full_partitions.delete_empty() == 1
    monkeypatch.setattr(images, "ORPHAN_AGE", timedelta(seconds=-1))
    assert images.sweep() == 1
    assert files(store) == []


def the_slots() -> int:
    return config.load().partition_slots


@only_directory
@pytest.mark.parametrize("place", ["gs://bucket", "s3://", "s3://user:secret@bucket"])
def test_a_place_that_is_none_is_named_without_its_secrets(place: str) -> None:
    given = config.load().model_copy(update={"image_store": place})
    with pytest.raises(ConfigurationError, match="TAGMILL_IMAGE_STORE") as caught:
        image_store.django_settings(given)
    assert "secret@" not in str(caught.value)
