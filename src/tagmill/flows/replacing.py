"""A node as one upload says it, whatever it was before."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from tagmill.errors import DatabaseUnavailable
from tagmill.fleet.models import Document
from tagmill.flows import together
from tagmill.flows.ingest import Upload, Verdict
from tagmill.flows.writes import KIND

# Somebody else adds documents between our look at them and our lock. It takes that many
# coincidences in a row to give up.
ATTEMPTS = 8


class _Overtaken(Exception):
    """The node has documents that were not there when we looked: look again."""


def put(upload: Upload) -> Verdict:
    """Make the node, or replace it: what the upload leaves out takes its default, and documents of
    other probes are deleted. Without a cluster, it stays where it is. Raises what the upload is
    refused for."""
    for _ in range(ATTEMPTS):
        with contextlib.suppress(_Overtaken):
            return together.store(_whole(upload))
    raise DatabaseUnavailable("too many changes to the same node at once: try again")


def _whole(upload: Upload) -> Upload:
    """The upload with all that it does not name."""
    named = Document.objects.filter(node__system_id=upload.system_id, node__deleted_at=None)
    there = set() if "\0" in upload.system_id else set(named.values_list("probe", flat=True))

    def expects(node: Any) -> None:
        if upload.expects is not None:
            upload.expects(node)
        if node is not None and not node.digests.keys() <= there | upload.probes.keys():
            raise _Overtaken

    return replace(
        upload,
        hostname=upload.hostname or "",
        kind=upload.kind or KIND,
        probes={**dict.fromkeys(there), **upload.probes},
        expects=expects,
    )
