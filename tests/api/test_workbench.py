"""The workbench's frame, its login and its files, without a browser."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings

from api.web import files, links
from tests.support.http import make_user

# Compressed, all pages together.
MAX_BYTES = 250_000


@pytest.fixture
def ann(db: None) -> Iterator[User]:
    user = make_user("operator", "ann")
    # What is slow to guess is slow to try.
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        user.set_password("correct horse")
        user.save()
        yield user


def test_a_stranger_is_sent_to_the_login_and_back(ann: User) -> None:
    client = Client()
    answer = client.get("/tags/gpu?x=1")
    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=%2Ftags%2Fgpu%3Fx%3D1")
    form = {"username": "ann", "password": "correct horse", "next": "/tags/gpu?x=1"}
    assert client.post("/login/", form)["Location"] == "/tags/gpu?x=1"
    page = client.get("/tags/gpu")
    assert 'data-may="nodes operator viewer"' in page.content.decode()
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/").status_code == 302


@pytest.mark.parametrize(
    "there", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"]
)
def test_a_login_leads_to_no_other_site(ann: User, there: str) -> None:
    form = {"username": "ann", "password": "correct horse", "next": there}
    assert Client().post("/login/", form)["Location"] == "/"


def test_a_wrong_password_is_said_and_guessing_is_throttled(ann: User) -> None:
    client, form = Client(), {"username": "ann", "password": "wrong"}
    assert "correct" in client.post("/login/", form).content.decode()
    for _ in range(9):
        client.post("/login/", form)
    answer = client.post("/login/", {**form, "password": "correct horse"})
    assert answer.status_code == 429
    assert "wait" in answer.content.decode()


def test_a_form_of_another_site_logs_nobody_in_or_out(ann: User) -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post("/login/", {"username": "ann", "password": "x"}).status_code == 403
    assert client.post("/logout/").status_code == 403


def test_a_link_logs_in_once_and_from_this_machine_alone(
    ann: User, configure: Callable[..., None]
) -> None:
    link = links.make(ann)
    assert "_auth_user_id" not in _session(link, REMOTE_ADDR="192.0.2.1")
    assert _session(link)["_auth_user_id"] == str(ann.pk)
    assert "_auth_user_id" not in _session(link)
    configure(trusted_proxies=1)
    assert "_auth_user_id" not in _session(links.make(ann))


def test_a_link_of_somebody_who_was_locked_out_is_void(ann: User) -> None:
    link = links.make(ann)
    User.objects.update(is_active=False)
    assert "_auth_user_id" not in _session(link)


def _session(link: str, **extra: str) -> dict[str, str]:
    client = Client()
    client.get(link, **extra)  # type: ignore[arg-type]
    return dict(client.session)


@pytest.mark.parametrize("path", ["/", "/login/"])
def test_pages_are_under_a_strict_policy(ann: User, path: str) -> None:
    client = Client()
    if path == "/":
        client.force_login(ann)
    answer = client.get(path)
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", answer.content.decode())
    assert "no-store" in answer["Cache-Control"]


def test_files_have_an_address_of_their_content_and_are_kept_for_ever(ann: User) -> None:
    client = Client()
    assert re.fullmatch(r"/static/workbench-[0-9a-f]{16}/app\.mjs", files.address("app.mjs"))
    answer = client.get(files.address("app.mjs"))
    assert answer["Content-Type"].startswith("text/javascript")
    assert "immutable" in answer["Cache-Control"]
    assert client.get(files.address("vendor/lit.d.mts")).status_code == 404


def test_all_that_a_browser_loads_is_small() -> None:
    texts = (files.FOLDER / path for path in files.paths() if not path.endswith(".txt"))
    assert sum(len(gzip.compress(text.read_bytes())) for text in texts) < MAX_BYTES
