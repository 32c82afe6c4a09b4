"""`doctor`: everything that an operator can do something about, checked from this host."""

from __future__ import annotations

import os
import resource
import shutil
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.util import find_spec

from django.core.cache import cache
from django.db import Error

from api import metrics
from api.server import health, running
from tagmill import caches, database
from tagmill.config import Config
from tagmill.flows import diagnosis
from tagmill.flows.diagnosis import Finding, Limits, State
from tagmill.matches import staleness
from tagmill.program import NAME
from tagmill.tags import waiting

# A disk with less room than either is worth a word; with a fifth of it, more than that.
MIN_FREE_SHARE = 0.1
MIN_FREE_BYTES = 5 * 2**30
# Descriptors beside those of clients: the database's connections, files, pipes.
SPARE_FILES = 256
# What else is read of the environment, by workers.
WORKERS, EVALUATOR = "TAGMILL_WORKER_", "TAGMILL_EVALUATOR"
# Rights of a group or of others.
SHARED = 0o077


def examine(config: Config, limits: Limits | None = None) -> list[Finding]:
    """The settings first. Where the database does not answer, what needs it is left out."""
    found = [*_settings(config), *_files(config), _disk(config)]
    try:
        return found + list(_stored(config, limits or Limits()))
    except Error as error:
        said = " ".join(str(error).split())
        where = database.described(config)
        todo = "start PostgreSQL, or correct DATABASE_URL"
        return [*found, _failure("database", f"{where} does not answer: {said}", todo)]


def _stored(config: Config, limits: Limits) -> Iterator[Finding]:
    """What the database says, as far as it can be read."""
    found = diagnosis.database(running.connections(config, config.maintenance), limits)
    yield from found
    if any(one.check == "rights" and one.state is State.FAILURE for one in found):
        return
    if missing := health.unapplied_migrations():
        said = f"{len(missing)} migrations are missing, {missing[0]} first"
        yield _failure("database", said, f"run `{NAME} migrate`")
        return
    yield diagnosis.tasks(limits)
    yield diagnosis.documents()
    yield from _workers()
    yield _cache(config)


def _failure(check: str, message: str, todo: str) -> Finding:
    return Finding(check, State.FAILURE, message, todo)


def _unknown() -> list[Finding]:
    """Variables that look like settings and are none: a typing error changes nothing, silently."""
    known = [f"TAGMILL_{name.upper()}" for name in Config.model_fields]
    found = []
    for name in sorted(os.environ):
        if not name.startswith("TAGMILL_") or name.startswith(WORKERS):
            continue
        if name not in (*known, EVALUATOR):
            near = get_close_matches(name, known, 1)
            todo = f"did you mean {near[0]}?" if near else "docs/settings.md has those there are"
            said = f"{name} is no setting, and changes nothing"
            found.append(Finding("settings", State.WARNING, said, todo))
    return found


def _settings(config: Config) -> Iterator[Finding]:
    problems = []
    for finding in _unknown():
        yield finding
        problems.append("unknown")
    if database.is_embedded(config):
        yield Finding(
            "settings",
            State.WARNING,
            "the database is the embedded one, which only this host's servers reach",
            "name a PostgreSQL of your own in DATABASE_URL for production",
        )
        problems.append("embedded")
    hosts = set(config.allowed_hosts.split(","))
    if config.trusted_proxies and hosts <= {"localhost", "127.0.0.1", "[::1]"}:
        yield Finding(
            "settings",
            State.FAILURE,
            "there is a proxy in front, and TAGMILL_ALLOWED_HOSTS has only this machine's names",
            "add the name that clients use: all others are answered with 400",
        )
        problems.append("hosts")
    address = config.listen_address[0]
    if not config.trusted_proxies and address not in ("127.0.0.1", "::1", "localhost"):
        yield Finding(
            "settings",
            State.WARNING,
            f"passwords and tokens go over {config.listen} without TLS",
            "put a proxy with TLS in front and set TAGMILL_TRUSTED_PROXIES (docs/server.md)",
        )
        problems.append("tls")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < config.connections + SPARE_FILES:
        yield Finding(
            "settings",
            State.WARNING,
            f"a process may have {hard} files open, fewer than TAGMILL_CONNECTIONS",
            f"LimitNOFILE={config.connections + SPARE_FILES} in its unit, or `ulimit -n`",
        )
        problems.append("files")
    if find_spec("tagmill_kernel") is None:
        yield Finding(
            "settings",
            State.WARNING,
            "the kernel is not installed here: changes wait for workers",
            "install the wheel tagmill_kernel (docs/install.md)",
        )
        problems.append("kernel")
    if not problems:
        yield Finding("settings", State.OK, "every variable is good")


def _files(config: Config) -> Iterator[Finding]:
    if os.geteuid() == 0:
        yield Finding(
            "permissions",
            State.WARNING,
            "this runs as root",
            "run servers as a user of their own, as the units in deploy/systemd do",
        )
    var = config.var
    if var.exists() and not os.access(var, os.W_OK | os.X_OK):
        yield Finding(
            "permissions",
            State.FAILURE if database.is_embedded(config) else State.WARNING,
            f"{var} cannot be written",
            "give it to the user that runs the server, or name another in TAGMILL_VAR",
        )
    elif (var / "secret_key").exists() and (var / "secret_key").stat().st_mode & SHARED:
        yield Finding(
            "permissions",
            State.FAILURE,
            f"others can read {var / 'secret_key'}, and so can make sessions of anybody",
            f"chmod 600 {var / 'secret_key'}",
        )
    else:
        yield Finding("permissions", State.OK, "the data directory is as it should be")


def _disk(config: Config) -> Finding:
    place = next(path for path in (config.var, *config.var.parents) if path.exists())
    usage = shutil.disk_usage(place)
    said = f"{usage.free / 2**30:,.1f} GiB of {usage.total / 2**30:,.1f} are free at {place}"
    if usage.free > min(MIN_FREE_BYTES, MIN_FREE_SHARE * usage.total):
        return Finding("disk", State.OK, f"{said}; the database's own disk is not seen from here")
    is_short = usage.free < min(MIN_FREE_BYTES, MIN_FREE_SHARE * usage.total) / 5
    return Finding(
        "disk",
        State.FAILURE if is_short else State.WARNING,
        said,
        "make room, or name another disk in TAGMILL_VAR",
    )


def _workers() -> Iterator[Finding]:
    stale = staleness.by_cluster()
    waits: Counter[int] = Counter()
    for (_, cluster), count in stale.items():
        waits[cluster] += count
    alone = 0
    alive = 0
    for cluster, name, workers in waiting.live_workers():
        alive += bool(workers)
        if waits[cluster] and not workers:
            alone += 1
            yield Finding(
                "workers",
                State.FAILURE,
                f"{waits[cluster]} matches of cluster {name} wait, and no worker lives for it",
                f"start one with a token that names it (`{NAME} worker_token`)",
            )
    failed = metrics.tags_by_state({expression for expression, _ in stale})["failed"]
    if failed:
        yield Finding(
            "workers",
            State.WARNING,
            f"the definitions of {failed} tags failed",
            "GET /api/v1/tags/ has `failure` of each: change the definition",
        )
    if not alone:
        yield Finding("workers", State.OK, f"{alive} clusters have workers; none waits in vain")


def _cache(config: Config) -> Finding:
    """Writes an entry and reads it again, as every attempt to log in does."""
    where = "TAGMILL_CACHE_URL" if config.cache_url else "the table cache_entry"
    try:
        cache.set("doctor", "well", timeout=1)
        is_good = cache.get("doctor") == "well"
    except Exception as error:
        is_good = False
        where = f"{where} ({type(error).__name__})"
    if is_good:
        return Finding("cache", State.OK, f"{where} keeps what is counted")
    return Finding(
        "cache",
        State.FAILURE,
        f"{where} does not keep what is written: nobody can log in",
        f"start it, or unset TAGMILL_CACHE_URL ({', '.join(caches.BACKENDS)} are known)",
    )
