"""The resources of /api/v1/, a module each. `api.urls` has their addresses.

`previews` is used by the native endpoint for previews, too (`api.server.previews`).
"""

__all__ = [
    "audit",
    "cache",
    "changes",
    "clusters",
    "documents",
    "explain",
    "filters",
    "node_filters",
    "nodes",
    "partitions",
    "preview_nodes",
    "previews",
    "rebuilds",
    "root",
    "samples",
    "schema",
    "tag_nodes",
    "tags",
    "tokens",
    "users",
    "verdicts",
    "vocabulary",
    "workers",
]
