"""The main flow, by the client that openapi-python-client has generated into the package
`tagmill_client`: python flow.py ADDRESS TOKEN."""


# mypy: ignore-errors

from __future__ import annotations

import io
import json
import sys

# Held back until it is so.
WAIT = "wait=20"
GPU = b"<list><node id='core'><node class='display'/></node></list>"


def main(address: str, token: str) -> None:
    from tagmill_client import AuthenticatedClient
    from tagmill_client.api.clusters import clusters_create, clusters_destroy
    from tagmill_client.api.definitions import definitions_explain
    from tagmill_client.api.nodes import (
        nodes_destroy,
        nodes_document_update,
        nodes_import,
        nodes_list,
        nodes_retrieve,
    )
    from tagmill_client.api.previews import previews_create, previews_retrieve
    from tagmill_client.api.rebuilds import rebuilds_create, rebuilds_retrieve
    from tagmill_client.api.tags import tags_create, tags_destroy, tags_nodes_list, tags_retrieve
    from tagmill_client.models import (
        ClusterInRequest,
        ExplainInRequest,
        NodesListInclude,
        PreviewInRequest,
        RebuildSome,
        TagFieldsRequest,
    )
    from tagmill_client.types import File

    # As it is generated: it sends the token as Bearer.
    client = AuthenticatedClient(base_url=address, token=token, raise_on_unexpected_status=True)

    def done(answer, *wanted: int):
        assert answer.status_code in wanted, (answer.status_code, answer.content)
        return answer.parsed

    cluster = done(
        clusters_create.sync_detailed(client=client, body=ClusterInRequest("north")), 201
    )
    lines = b"".join(b'{"system_id": "m%d", "cluster": "north"}\n' % number for number in range(3))
    imported = nodes_import.sync_detailed(client=client, body=File(io.BytesIO(lines)))
    assert json.loads(imported.content.splitlines()[-1])["summary"]["created"] == 3
    stored = nodes_document_update.sync_detailed("m1", client=client, body=File(io.BytesIO(GPU)))
    assert done(stored, 200).outcome == "updated"
    body = TagFieldsRequest(name="gpu", definition="//node[@class='display']")
    made = done(tags_create.sync_detailed(client=client, body=body), 201)
    assert made.name == "gpu"
    tag = done(tags_retrieve.sync_detailed("gpu", client=client, prefer=WAIT), 200)
    assert (tag.state, tag.node_count) == ("ready", 1)
    page = done(tags_nodes_list.sync_detailed("gpu", client=client), 200)
    assert [node.system_id for node in page.results] == ["m1"]
    listed = done(
        nodes_list.sync_detailed(client=client, include=NodesListInclude.TAGS, limit=2), 200
    )
    assert len(listed.results) == 2 and listed.next_
    preview = done(
        previews_create.sync_detailed(client=client, body=PreviewInRequest("//node")), 200, 202
    )
    found = done(previews_retrieve.sync_detailed(preview.uuid, client=client, prefer=WAIT), 200)
    assert (found.state, found.node_count) == ("complete", 1)
    asked = ExplainInRequest(definition="//node[@class='display']", node="m1")
    assert done(definitions_explain.sync_detailed(client=client, body=asked), 200).verdict
    begun = done(rebuilds_create.sync_detailed(client=client, body=RebuildSome(["gpu"])), 202)
    rebuild = done(rebuilds_retrieve.sync_detailed(begun.uuid, client=client, prefer=WAIT), 200)
    assert rebuild.state == "complete"
    done(tags_destroy.sync_detailed("gpu", client=client), 204)
    for name in ("m0", "m1", "m2"):
        done(nodes_destroy.sync_detailed(name, client=client), 204)
    missing = nodes_retrieve.sync_detailed("m0", client=client)
    assert missing.status_code == 404 and missing.parsed.code == "not_found"
    done(clusters_destroy.sync_detailed(str(cluster.uuid), client=client), 204)


if __name__ == "__main__":
    main(*sys.argv[1:])
