"""Settings are documented, and bad ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagmill import config, database, program, secret
from tagmill.errors import ConfigurationError
from tagmill.fleet import documents
from tagmill_wire.messages import Batch, BatchNode, dump
from tagmill_worker import pages

DOCS = program.ROOT / "docs"


def test_docs_list_every_setting() -> None:
    page = (DOCS / "settings.md").read_text()
    assert config.table() in page, "run: manage.py settings, and paste it into docs/settings.md"


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("TAGMILL_LISTEN", "8080", "ADDRESS:PORT"),
        ("TAGMILL_LISTEN", "127.0.0.1:99999", "ADDRESS:PORT"),
        ("TAGMILL_PARTITION_SLOTS", "100", "multiple of 8"),
        ("TAGMILL_THREADS", "many", "integer"),
        ("TAGMILL_DOCUMENT_BYTES", str(8 << 20), "less than or equal to 7340032"),
        ("TAGMILL_REQUEST_BYTES", str(64 << 10), "greater than or equal to 1048576"),
        ("TAGMILL_LOG_LEVEL", "loud", "debug"),
        ("TAGMILL_DEFINITION_BYTES", "16385", "16384"),
        ("TAGMILL_HEARTBEAT_SECONDS", "31", "half of TAGMILL_LEASE_SECONDS=60"),
        ("TAGMILL_LEASE_SECONDS", "29", "TAGMILL_HEARTBEAT_SECONDS=15"),
    ],
)
def test_a_bad_setting_is_named_and_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    monkeypatch.setenv(variable, value)
    config.load.cache_clear()
    try:
        with pytest.raises(ConfigurationError) as caught:
            config.load()
    finally:
        monkeypatch.undo()
        config.load.cache_clear()
    assert variable in str(caught.value)
    assert says in str(caught.value)


def most(setting: str) -> int:
    (found,) = (
        constraint.le
        for constraint in config.Config.model_fields[setting].metadata
        if hasattr(constraint, "le")
    )
    return int(found)


def page_bytes(nodes: int, documents: int, size: int) -> int:
    """The size of a page whose documents have so many bytes, each of which JSON doubles."""
    probes = {f"p{number:063}": "" for number in range(documents)}
    node = len(dump(BatchNode(most("batch_nodes"), 2**63 - 1, probes))) + 1
    return len(dump(Batch(2**63 - 1, 2**63 - 1, [], None))) + nodes * (node + documents * 2 * size)


def test_json_doubles_a_document_at_worst() -> None:
    assert len(dump(BatchNode(1, 1, {"p": '"\\\n\t\r\x7f\x85' * 100}))) <= 2 * 700 + 100


def test_the_largest_node_and_the_largest_batch_fit_a_page() -> None:
    largest = page_bytes(1, documents.MAX_PROBES, most("document_bytes"))
    assert largest <= pages.MAX_BYTES
    most_nodes = most("batch_nodes")
    assert 2 * most("batch_bytes") + page_bytes(most_nodes, 16, 0) <= pages.MAX_BYTES


def test_a_database_other_than_postgresql_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="DATABASE_URL must be postgresql://"):
        database.django_settings(config.Config(DATABASE_URL="mysql://localhost/tagmill"))


def test_a_database_url_is_taken_apart() -> None:
    url = "postgresql://me:p%40ss@db.example.com:5433/tags?sslmode=require"
    settings = database.django_settings(config.Config(DATABASE_URL=url))
    assert settings["NAME"] == "tags"
    assert settings["USER"] == "me"
    assert settings["PASSWORD"] == "p@ss"
    assert settings["HOST"] == "db.example.com"
    assert settings["PORT"] == "5433"
    assert settings["OPTIONS"]["sslmode"] == "require"


def test_a_database_that_vanishes_is_given_up_unless_the_url_says_otherwise() -> None:
    url = "postgresql://me@db.example.com/tags?connect_timeout=3&options=-c%20lock_timeout%3D1s"
    settings = database.django_settings(config.Config(DATABASE_URL=url))
    options = settings["OPTIONS"]
    assert options["connect_timeout"] == "3"
    assert options["tcp_user_timeout"] == "20000"
    assert options["keepalives_idle"] == "10"
    unsaid = config.Config(DATABASE_URL="postgresql://me@db.example.com/tags", connect_seconds=7)
    assert database.django_settings(unsaid)["OPTIONS"]["connect_timeout"] == "7"
    database.bound_statements(settings, config.Config(statement_seconds=0))
    assert options["options"] == "-c lock_timeout=1s"
    database.bound_statements(settings, config.Config(statement_seconds=2.5, lock_seconds=0.5))
    assert options["options"] == (
        "-c statement_timeout=2500 -c lock_timeout=500"
        " -c idle_in_transaction_session_timeout=2500 -c jit=off -c lock_timeout=1s"
    )


def test_a_process_begins_with_the_signing_key_that_is_given_or_was_kept(tmp_path: Path) -> None:
    settings = config.Config(var=tmp_path)
    assert len(secret.key(settings)) >= 50
    assert secret.key(settings) != secret.key(settings)
    (tmp_path / "secret_key").write_text("kept by an earlier version")
    assert secret.key(settings) == "kept by an earlier version"
    assert secret.key(config.Config(var=tmp_path, secret_key="given")) == "given"
