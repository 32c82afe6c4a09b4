"""The worker's options: one dataclass, from the command line, the environment, or the default.

docs/worker.md has the table; a test holds it against this module.
"""

from __future__ import annotations

import argparse
import logging
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tagmill_wire.sizes import size
from tagmill_worker.errors import BadSettings
from tagmill_worker.evaluators.base import AUTO, EVALUATORS, has_kernel, resolve

PREFIX = "TAGMILL_WORKER_"
MAX_PORT = 65535
MAX_PARTITIONS = 256
API = "/api/v1"
MIN_EVALUATION_BYTES = 256 * 2**20
MIN_CACHE_BYTES = 2**20
MIN_RATIO = 0.1
MAX_FLUSH_SECONDS = 86_400


def evaluation_bytes(text: str) -> int:
    value = size(text)
    if 0 < value < MIN_EVALUATION_BYTES:
        raise ValueError("must be 256MiB or more, which a large document takes, or 0")
    return value


def cache_bytes(text: str) -> int:
    value = size(text)
    if 0 < value < MIN_CACHE_BYTES:
        raise ValueError("must be 1MiB or more, or 0")
    return value


def directory(text: str) -> str:
    return str(Path(text).absolute()) if text else ""


def ratio(text: str) -> float:
    value = seconds(text)
    if not MIN_RATIO <= value <= 1:
        raise ValueError("must be a number from 0.1 to 1")
    return value


def flush_seconds(text: str) -> float:
    value = seconds(text)
    if not 1 <= value <= MAX_FLUSH_SECONDS:
        raise ValueError(f"must be a number of seconds from 1 to {MAX_FLUSH_SECONDS}")
    return value


def count(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.strip().isdigit() or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError("must be a number of seconds, 0 or more")
    return value


def url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise ValueError("must be a URL, as http://127.0.0.1:8080")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("must be a URL without user, query or fragment, as http://127.0.0.1:8080")
    # What the API's documentation shows is meant as well.
    return text.rstrip("/").removesuffix(API).rstrip("/")


def collector(text: str) -> str:
    return url(text) if text else ""


def choice(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in names:
            raise ValueError("must be one of " + ", ".join(names))
        return text.lower()

    return parse


def name(text: str) -> str:
    if not 1 <= len(text) <= 100 or not text.isprintable():  # noqa: PLR2004 - the server's column
        raise ValueError("must be 1 to 100 printable characters")
    return text


def token(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError("must be a worker token, as tmw_...")
    return text


def evaluator(text: str) -> str:
    name = choice(AUTO, *EVALUATORS)(text)
    if name == "kernel" and not has_kernel():
        raise ValueError(
            "the kernel is not installed: build it (`make install` where there is cargo), or choose"
            " lxml or auto"
        )
    return resolve(name)


def share(text: str) -> float:
    value = seconds(text)
    if value > 1:
        raise ValueError("must be a number from 0 to 1")
    return value


def option(
    parse: Callable[[str], Any], default: str | None, text: str, variable: str | None = None
) -> Any:
    """A field with the parser of its value, the default as text, its help, and the variable where
    that is not named after the field."""
    metadata = {"parse": parse, "default": default, "help": text, "variable": variable}
    return field(metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    server: str = option(url, "http://127.0.0.1:8080", "URL of the API server.")
    token: str = option(
        token,
        None,
        "The worker token. Other users can read options: prefer the variable or the file.",
    )
    name: str = option(name, None, "Name shown to operators. Default: the host's name.")
    batch_nodes: int = option(
        count(1, 1_000_000), "256", "Most nodes in one batch; the server may send fewer."
    )
    batch_bytes: int = option(
        size, "16MiB", "Most XML bytes in one batch; the server may send fewer."
    )
    prefetch: int = option(
        size, "16MiB", "Bytes of batches, compressed, fetched ahead of the evaluation."
    )
    max_partitions: int = option(count(1, MAX_PARTITIONS), "64", "Most partitions in one lease.")
    store_bytes: int = option(
        size, "512MiB", "Bytes of batches, compressed, kept between leases. 0 keeps none."
    )
    drain_seconds: float = option(
        seconds, "30", "How long SIGTERM waits for the partition under evaluation."
    )
    evaluator: str = option(
        evaluator,
        "auto",
        "What evaluates: kernel, lxml, or auto: the kernel where it is installed.",
        variable="TAGMILL_EVALUATOR",
    )
    image_bytes: int = option(
        size, "1GiB", "Bytes of images that the kernel holds between leases. 0 holds none."
    )
    evaluation_bytes: int = option(
        evaluation_bytes,
        "2GiB",
        "Memory that the evaluating process may take beside its images: one that needs more ends,"
        " and what it was at is given back or has failed. At least 256MiB; 0 is no limit.",
    )
    cache_dir: str = option(
        directory,
        "",
        "Directory, of this worker alone, for files of what it holds, so that it need not fetch it"
        " when it starts again. Default: none are kept.",
    )
    cache_bytes: int = option(
        cache_bytes, "0", "Bytes that these files may take. Required with `--cache-dir`."
    )
    cache_full_ratio: float = option(
        ratio,
        "0.7",
        "Share of them from which newcomers pass, unless something idle makes room, and above which"
        " partitions are evicted, down to 0.02 below. From 0.1 to 1.",
    )
    cache_dirty_ratio: float = option(
        ratio,
        "0.3",
        "Share of them that may wait to be shared with other workers; above it one partition is"
        " uploaded at a time.",
    )
    cache_dirty_high_ratio: float = option(
        ratio,
        "0.4",
        "Share of them above which four are. Not below `--cache-dirty-ratio`, nor above"
        " `--cache-full-ratio`.",
    )
    cache_flush_seconds: float = option(
        flush_seconds, "60", "The longest that one waits to be uploaded, 1 to 86400 seconds."
    )
    offered: float = option(
        share,
        "1",
        "Share of what it can hold, 0 to 1, by which it owns partitions. 0: it owns none, and holds"
        " what it was leased.",
    )
    shadow: float = option(
        share, "0", "Share of the documents, 0 to 1, on which the kernel is compared with lxml."
    )
    metrics_port: int = option(count(0, MAX_PORT), "0", "Port of Prometheus' `/metrics`. 0: none.")
    metrics_host: str = option(str, "127.0.0.1", "Address that `/metrics` listens on.")
    trace_url: str = option(
        collector,
        "",
        "Where traces are sent by OTLP over HTTP, as http://127.0.0.1:4318 (needs"
        " `tagmill-worker[tracing]`). Empty: nowhere.",
    )
    log_level: str = option(
        choice("debug", "info", "warning", "error"),
        "info",
        "What is logged, as one JSON object a line on standard error.",
    )


def flag(item: Field[Any]) -> str:
    return "--" + item.name.replace("_", "-")


def variable(item: Field[Any]) -> str:
    return item.metadata["variable"] or PREFIX + item.name.upper()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="tagmill-worker",
        description="Evaluates tag expressions for a Tagmill server. "
        f"Every option can be given as a variable, as {PREFIX}SERVER.",
        allow_abbrev=False,
    )
    for item in fields(Settings):
        # argparse would read a % in a help text as its own.
        made.add_argument(flag(item), metavar="X", help=item.metadata["help"].replace("%", "%%"))
    made.add_argument(
        "--token-file", metavar="FILE", help=f"File with the token. Also {PREFIX}TOKEN_FILE."
    )
    return made


def load(arguments: list[str], environment: Mapping[str, str]) -> Settings:
    """Raises BadSettings, with every problem. Exits as argparse does for --help and unknown ones.

    An option wins over its variable; an empty variable counts as unset.
    """
    given = vars(parser().parse_args(arguments))
    values: dict[str, Any] = {}
    problems: list[str] = []
    if given["token"] is None:
        given["token"] = _token_of_file(given["token_file"], environment, problems)
    for item in fields(Settings):
        text, source = given[item.name], flag(item)
        if text is None:
            text, source = environment.get(variable(item)) or None, variable(item)
        if text is None:
            text = socket.gethostname() if item.name == "name" else item.metadata["default"]
        if text is None:
            problems.append(f"{flag(item)}, {PREFIX}TOKEN_FILE or {variable(item)} is required")
            continue
        try:
            values[item.name] = item.metadata["parse"](text)
        except ValueError as error:
            problems.append(f"{source}: {error}")
    if not problems and bool(values["cache_dir"]) != bool(values["cache_bytes"]):
        problems.append("--cache-dir and --cache-bytes are given both or not at all")
    ratios = [f"--cache-{name}-ratio" for name in ("dirty", "dirty-high", "full")]
    if not problems and not (
        values["cache_dirty_ratio"]
        <= values["cache_dirty_high_ratio"]
        <= values["cache_full_ratio"]
    ):
        problems.append(f"{', '.join(ratios)} must not decrease in this order")
    if problems:
        raise BadSettings("; ".join(problems))
    return Settings(**values)


def _token_of_file(
    given: str | None, environment: Mapping[str, str], problems: list[str]
) -> str | None:
    path = given or environment.get(PREFIX + "TOKEN_FILE")
    if not path or (given is None and environment.get(PREFIX + "TOKEN")):
        return None
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{'--token-file' if given else PREFIX + 'TOKEN_FILE'}: {error}")
        return None


def level(settings: Settings) -> int:
    return logging.getLevelNamesMapping()[settings.log_level.upper()]


assert all(item.default is MISSING for item in fields(Settings))  # noqa: S101 - see `option`
