"""Every address that Django answers. The native ones are in api/server/app.py."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import URLPattern, include, path
from django.urls.resolvers import RoutePattern
from drf_spectacular.views import SpectacularSwaggerView

from api.rest import (
    audit,
    cache,
    changes,
    clusters,
    documents,
    explain,
    nodes,
    partitions,
    preview_nodes,
    previews,
    rebuilds,
    root,
    samples,
    schema,
    tag_nodes,
    tags,
    tokens,
    users,
    verdicts,
    vocabulary,
    workers,
)
from api.web import pages

handler400 = "api.handlers.bad_request"
handler403 = "api.handlers.permission_denied"
handler404 = "api.handlers.not_found"
handler500 = "api.handlers.server_error"


class EitherSlash(RoutePattern):
    """Matches with and without a slash at the end."""

    def match(self, path: str) -> Any:
        other = path[:-1] if path.endswith("/") else f"{path}/"
        return super().match(path) or super().match(other)


def route(pattern: str, view: Any, name: str) -> URLPattern:
    return URLPattern(EitherSlash(pattern, name, is_endpoint=True), view.as_view(), None, name)


V1 = [
    route("", root.Root, "root"),
    route("auth/token", tokens.Token, "token"),
    route("auth/tokens/", tokens.OwnTokens, "own-tokens"),
    route("auth/tokens/<str:key>", tokens.OneOwnToken, "own-token"),
    route("clusters/", clusters.Clusters, "clusters"),
    route("clusters/<str:cluster>", clusters.OneCluster, "cluster"),
    route("nodes/", nodes.Nodes, "nodes"),
    route("nodes/<str:system_id>", nodes.OneNode, "node"),
    route("nodes/<str:system_id>/document", documents.OneDocument, "document"),
    route("nodes/<str:system_id>/tags", nodes.TagsOfNode, "tags-of-node"),
    route("places", tag_nodes.Places, "places"),
    route("tags/", tags.Tags, "tags"),
    route("tags/<str:name>", tags.OneTag, "tag"),
    route("tags/<str:name>/explain", explain.ExplainTag, "explain-tag"),
    route("tags/<str:name>/nodes", tag_nodes.NodesOfTag, "nodes-of-tag"),
    route("tags/<str:name>/members", tag_nodes.MembersOfTag, "members-of-tag"),
    route("tags/<str:name>/rebuild", tags.RebuildTag, "rebuild-tag"),
    route("tags/<str:name>/assign", tags.AssignTag, "assign-tag"),
    route("tags/<str:name>/changes", changes.ChangesOfTag, "changes-of-tag"),
    route("tags/<str:name>/sizes", changes.SizesOfTag, "sizes-of-tag"),
    route("tags/<str:name>/publish", tags.PublishTag, "publish-tag"),
    route("tags/<str:name>/history", audit.HistoryOfTag, "history-of-tag"),
    route("definitions/check", explain.CheckDefinition, "check"),
    route("definitions/lint", explain.LintDefinition, "lint"),
    route("definitions/explain", explain.ExplainDefinition, "explain-definition"),
    route("previews/", previews.Previews, "previews"),
    route("previews/<uuid:uuid>", previews.OnePreview, "preview"),
    route("previews/<uuid:uuid>/verdicts", verdicts.VerdictsOfPreview, "verdicts-of-preview"),
    route("previews/<uuid:uuid>/nodes", preview_nodes.NodesOfPreview, "nodes-of-preview"),
    route("previews/<uuid:uuid>/members", preview_nodes.MembersOfPreview, "members-of-preview"),
    route("audit/", audit.Audit, "audit"),
    route("cache", cache.Cache, "cache"),
    route("cache/flush", cache.FlushCache, "cache-flush"),
    route("cache/enable", cache.EnableCache, "cache-enable"),
    route("cache/disable", cache.DisableCache, "cache-disable"),
    route("rebuilds/", rebuilds.Rebuilds, "rebuilds"),
    route("rebuilds/<uuid:uuid>", rebuilds.OneRebuild, "rebuild"),
    route("rebuilds/<uuid:uuid>/cancel", rebuilds.CancelRebuild, "cancel-rebuild"),
    route("workers/", workers.Workers, "workers"),
    route("workers/register", workers.RegisterWorker, "register"),
    route("workers/heartbeat", workers.Heartbeat, "heartbeat"),
    route("workers/fail", workers.GiveUp, "fail"),
    route("workers/share", workers.ShareOfWorker, "share"),
    route("fleet/samples", samples.Samples, "fleet-samples"),
    route("partitions/", partitions.Partitions, "partitions"),
    route("vocabulary", vocabulary.Words, "vocabulary"),
    route("users/", users.Users, "users"),
    route("users/<str:username>", users.OneUser, "user"),
    route("user-tokens/", tokens.UserTokens, "user-tokens"),
    route("user-tokens/<str:key>", tokens.OneUserToken, "user-token"),
    route("worker-tokens/", tokens.WorkerTokens, "worker-tokens"),
    route("worker-tokens/<str:lookup>", tokens.OneWorkerToken, "worker-token"),
]

# What the workbench shows where: api/web/client/app.mjs finds the page in the address.
WORKBENCH = (
    *("tags/", "tags/<str:name>", "new", "nodes/", "nodes/<str:system_id>"),
    *("health", "fleet", "vocabulary", "recipes", "account"),
)

urlpatterns = [
    path("", pages.shell, name="index"),
    path("login/", pages.log_in, name="login"),
    path("login/oidc", pages.oidc_begin, name="oidc-begin"),
    path("login/oidc/callback", pages.oidc_callback, name="oidc-callback"),
    path("login/<str:token>", pages.follow, name="login-link"),
    path("logout/", pages.log_out, name="logout"),
    *(path(place, pages.shell) for place in WORKBENCH),
    path("api/v1/", include(V1)),
    path("api/schema/", schema.Schema.as_view(), name="schema"),
    path("api/problems/", pages.problems, name="problems"),
    path("api/problems/<str:code>", pages.problem, name="problem"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
    path("admin/", admin.site.urls),
]
