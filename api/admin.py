"""Django's admin site: the same domain functions as the API, never a model saved past them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ORDER_VAR, PAGE_VAR
from django.contrib.auth.models import User
from django.db.models import Count, QuerySet, Sum
from django.db.models.functions import Now
from django.http import HttpRequest
from django.urls import reverse_lazy
from django.utils.html import format_html

from api.models import BodyCacheControl, BodyCacheReport, UserToken
from tagmill.errors import TagmillError
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster, Node, Partition
from tagmill.matches import staleness
from tagmill.tags import freshness, linting, rebuilds, tags, waiting
from tagmill.tags.models import TAG_NAME, Rebuild, Tag
from tagmill.work import workers
from tagmill.work.models import Worker, WorkerToken

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    ModelForm = forms.ModelForm[Tag]
else:
    ModelAdmin, ModelForm = admin.ModelAdmin, forms.ModelForm

admin.site.site_title = admin.site.site_header = "Tagmill"
admin.site.index_title = "Administration"
# A fleet has far more rows than a page should show; the API has them all.
PER_PAGE = 50
# How many tags of a rebuild a list names; a rebuild may have a thousand.
MAX_NAMES = 8
# How many running rebuilds of a list show their progress: the newest. Others show it on their page.
MAX_PROGRESS = 3


class ReadOnly(ModelAdmin):
    list_per_page = PER_PAGE
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class TagForm(ModelForm):
    name = forms.RegexField(
        rf"\A{TAG_NAME}\Z", max_length=256, help_text="letters, digits, dashes, underscores"
    )
    definition = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(
            attrs={
                "rows": 4,
                "cols": 90,
                "spellcheck": "false",
                # For tag_form.js.
                "data-lint-url": reverse_lazy("lint"),
                "data-preview-url": reverse_lazy("previews"),
            }
        ),
        help_text="XPath 1.0. Empty: a tag that is assigned by hand.",
    )
    namespaces = forms.JSONField(
        required=False, initial=dict, help_text='URI by prefix, as {"a": "urn:example"}'
    )
    convert = forms.BooleanField(
        required=False,
        help_text="With a definition: give up what was assigned by hand. "
        "Without: make it a manual tag with the nodes that it has now.",
    )

    class Meta:
        model = Tag
        fields = ("name", "comment", "kernel_opts")

    class Media:
        js = ("api/tag_form.js",)
        css = {"screen": ("api/tag_form.css",)}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        shown = self.instance.pending_expression or self.instance.expression
        if shown:
            self.initial.update(definition=shown.text, namespaces=shown.namespaces)
        if self.instance.pk is not None and "definition" in self.fields:
            self.fields["definition"].widget.attrs["data-tag"] = self.instance.name

    def clean(self) -> dict[str, Any] | None:
        """Validates and stores at once: the domain knows what is wrong, and says so here."""
        super().clean()
        if self.errors:
            return self.cleaned_data
        fields = {
            "comment": self.cleaned_data["comment"],
            "kernel_opts": self.cleaned_data["kernel_opts"],
            # Browsers send line ends of their own: it is to be the expression that was previewed.
            "definition": self.cleaned_data["definition"].replace("\r\n", "\n") or None,
            "namespaces": self.cleaned_data["namespaces"] or {},
        }
        try:
            if self.instance.pk is None:
                by = cast(User, self.asked_by)
                self.instance = tags.create(self.cleaned_data["name"], **fields, by=by)
            else:
                self._update(fields)
        except TagmillError as error:
            place = f" (column {error.extra['column']})" if "column" in error.extra else ""
            field = "definition" if place else error.extra.get("field")
            self.add_error(field if field in self.fields else None, f"{error.detail}{place}")
        return self.cleaned_data

    asked_by: Any = None

    def _update(self, fields: dict[str, Any]) -> None:
        known = {**self.initial, "definition": self.initial.get("definition")}
        changes = {name: value for name, value in fields.items() if value != known.get(name)}
        if "namespaces" in changes and not fields["definition"]:
            del changes["namespaces"]
        if self.cleaned_data["name"] != self.initial["name"]:
            changes["name"] = self.cleaned_data["name"]
        if self.cleaned_data.get("convert") and "definition" in changes:
            changes["kind"] = "automatic" if fields["definition"] else "manual"
        if changes:
            by = cast(User, self.asked_by)
            self.instance = tags.update(self.initial["name"], by=by, **changes)

    def _post_clean(self) -> None:
        """The domain has checked and stored the instance; Django's own construction must not touch
        it again."""

    def save(self, commit: bool = True) -> Tag:
        return self.instance

    def save_m2m(self) -> None:
        """There is nothing of the kind."""


@admin.register(Tag)
class TagAdmin(ModelAdmin):
    form = TagForm
    list_display = ("name", "state", "nodes", "stale", "published", "pending", "comment")
    search_fields = ("name", "comment")
    list_select_related = ("expression", "pending_expression")
    list_per_page = PER_PAGE
    readonly_fields = ("state", "nodes", "published", "pending", "failure", "waits")
    actions = ("rebuild_selected",)

    def get_form(self, request: HttpRequest, obj: Any = None, *args: Any, **options: Any) -> Any:
        form = super().get_form(request, obj, *args, **options)
        return type("TagForm", (form,), {"asked_by": request.user})

    def get_fieldsets(self, request: HttpRequest, obj: Tag | None = None) -> Any:
        shown: list[Any] = [
            (None, {"fields": ("name", "definition", "namespaces", "comment", "kernel_opts")})
        ]
        if obj is not None:
            shown.append(("Automatic or manual", {"fields": ("convert",)}))
            shown.append(("Now", {"fields": self.readonly_fields}))
        return shown

    def save_model(self, request: HttpRequest, obj: Tag, form: Any, change: bool) -> None:
        """The form has stored it: say what it may say other than was meant."""
        current = obj.pending_expression or obj.expression
        if current is not None:
            for warning in linting.of_expression(current):
                text = f"{warning.message} (column {warning.column}, {warning.code})"
                self.message_user(request, text, messages.WARNING)

    def delete_model(self, request: HttpRequest, obj: Tag) -> None:
        tags.delete(obj.name)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Tag]) -> None:
        tags.delete_all(list(queryset.values_list("name", flat=True)))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The states of all tags of the page at once. Reading the rows here fills the cache of the
        queryset that the template reads."""
        page: Any = super().get_changelist_instance(request)
        statuses = freshness.status(list(page.result_list))
        for tag in page.result_list:
            tag.status = statuses[tag.id]
        return page

    def _status(self, tag: Any) -> freshness.TagStatus:
        if not hasattr(tag, "status"):
            tag.status = freshness.status([tag])[tag.id]
        status: freshness.TagStatus = tag.status
        return status

    @admin.display
    def state(self, tag: Tag) -> str:
        return self._status(tag).state

    @admin.display
    def nodes(self, tag: Tag) -> int:
        return self._status(tag).node_count

    @admin.display(description="partitions to do")
    def stale(self, tag: Tag) -> str:
        return f"{self._status(tag).pending} of {self._status(tag).partitions}"

    @admin.display
    def failure(self, tag: Tag) -> str:
        return self._status(tag).failure or "-"

    @admin.display(description="waiting for")
    def waits(self, tag: Tag) -> str:
        wanted = tag.pending_expression_id or tag.expression_id
        if wanted is None or self._status(tag).state == "ready":
            return "-"
        found = waiting.waiting_for([wanted]).expressions.get(wanted, [])
        return "; ".join(wait.message for wait in found) or "-"

    @admin.display(description="published definition")
    def published(self, tag: Tag) -> str:
        return _code(tag.expression)

    @admin.display(description="pending definition")
    def pending(self, tag: Tag) -> str:
        return _code(tag.pending_expression)

    @admin.action(description="Rebuild selected tags", permissions=["change"])
    def rebuild_selected(self, request: HttpRequest, queryset: QuerySet[Tag]) -> None:
        names = list(queryset.values_list("name", flat=True))
        try:
            made = rebuilds.request(names, cast(User, request.user), "forced")
        except TagmillError as error:
            self.message_user(request, error.detail, messages.ERROR)
        else:
            self.message_user(request, f"Rebuild {made.uuid} of {len(names)} tags has begun.")


@admin.register(Rebuild)
class RebuildAdmin(ReadOnly):
    list_display = (
        "short", "tag_names", "progress", "state", "reason", "requested_by", "requested_at"
    )  # fmt: skip
    list_filter = ("state", "reason")
    list_select_related = ("requested_by",)
    fields = (
        "uuid", "state", "progress", "nodes_per_second", "reason", "tag_names",
        "requested_by", "requested_at", "finished_at",
    )  # fmt: skip

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """What the rows show is read for all of them at once, and the progress, which is derived
        from a target for each tag and partition, for a few."""
        page: Any = super().get_changelist_instance(request)
        rows = list(page.result_list)
        tags_of = rebuilds.first_tags([row.id for row in rows], MAX_NAMES)
        running = [row for row in rows if row.state == Rebuild.State.RUNNING]
        for row in rows:
            row.first_tags = tags_of[row.id]
            row.found_progress = None
        for row in running[:MAX_PROGRESS]:
            row.found_progress = rebuilds.progress(row)
        return page

    @admin.display(description="rebuild")
    def short(self, rebuild: Rebuild) -> str:
        return str(rebuild.uuid)[:8]

    @admin.display
    def progress(self, rebuild: Any) -> str:
        if not hasattr(rebuild, "found_progress"):
            rebuild.found_progress = rebuilds.progress(rebuild)
        found = rebuild.found_progress
        if found is None:
            return _bar(1, 1) if rebuild.state == Rebuild.State.COMPLETE else "-"
        return _bar(found.done, found.total)

    @admin.display(description="nodes per second")
    def nodes_per_second(self, rebuild: Rebuild) -> str:
        speed = rebuilds.progress(rebuild).nodes_per_second
        return "-" if speed is None else f"{speed:,.0f}"

    @admin.display(description="tags")
    def tag_names(self, rebuild: Any) -> str:
        if not hasattr(rebuild, "first_tags"):
            rebuild.first_tags = rebuilds.first_tags([rebuild.id], MAX_NAMES)[rebuild.id]
        count, names = rebuild.first_tags
        more = f" and {count - len(names)} more" if count > len(names) else ""
        return ", ".join(names) + more or "-"


class ClusterForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic when it runs
    class Meta:
        model = Cluster
        fields = ("name",)

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        try:
            clusters.check_name(name)
        except TagmillError as error:
            raise forms.ValidationError(error.detail) from None
        return name


@admin.register(Cluster)
class ClusterAdmin(ModelAdmin):
    form = ClusterForm
    list_display = ("name", "uuid", "created_at")
    search_fields = ("name",)
    fields = ("name",)

    def save_model(self, request: HttpRequest, obj: Cluster, form: Any, change: bool) -> None:
        if change:
            clusters.rename(obj, obj.name)
        else:
            obj.pk = clusters.create(obj.name).pk

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """One at a time and empty: over the API."""
        return False


@admin.register(Partition)
class PartitionAdmin(ReadOnly):
    list_display = ("id", "cluster", "number", "node_count", "slots", "rev", "stale")
    list_filter = ("cluster",)
    list_select_related = ("cluster",)

    @admin.display
    def slots(self, partition: Partition) -> str:
        return f"{partition.next_slot} of {partition.capacity}"

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """What the rows show is read for all of them at once."""
        page: Any = super().get_changelist_instance(request)
        counts = staleness.by_partition([partition.id for partition in page.result_list])
        for partition in page.result_list:
            partition.stale_count = counts[partition.id]
        return page

    @admin.display(description="stale matches")
    def stale(self, partition: Any) -> int:
        count: int = partition.stale_count
        return count


@admin.register(Node)
class NodeAdmin(ReadOnly):
    list_display = ("system_id", "hostname", "kind", "partition", "slot", "updated_at")
    # Exactly as they are: by their indexes.
    search_fields = ("system_id__exact", "hostname__exact")
    list_select_related = ("partition",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Node]:
        return super().get_queryset(request).filter(deleted_at=None)

    def get_paginator(self, request: HttpRequest, *args: Any, **options: Any) -> Any:
        """All live nodes are counted with their partitions already."""
        found: Any = super().get_paginator(request, *args, **options)
        if request.GET.keys() <= {PAGE_VAR, ORDER_VAR}:
            found.count = Partition.objects.aggregate(all=Sum("node_count", default=0))["all"]
        return found


@admin.register(Worker)
class WorkerAdmin(ReadOnly):
    list_display = (
        "name", "host", "pid", "last_heartbeat", "partitions", "evaluator", "version", "token"
    )  # fmt: skip
    list_select_related = ("token",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).annotate(lease_count=Count("leases"))

    @admin.display(description="partitions leased")
    def partitions(self, worker: Any) -> int:
        count: int = worker.lease_count
        return count


@admin.register(BodyCacheReport)
class BodyCacheReportAdmin(ReadOnly):
    list_display = (
        "keyspace", "process", "lookups", "hits", "misses", "coalesced", "oversize",
        "evicted_bytes", "builds", "build_seconds", "entries", "bytes", "at",
    )  # fmt: skip
    list_filter = ("keyspace",)


@admin.register(BodyCacheControl)
class BodyCacheControlAdmin(ReadOnly):
    list_display = ("scope", "generation", "is_off", "changed_at")


class WorkerTokenForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic when it runs
    def clean(self) -> dict[str, Any] | None:
        given = super().clean() or {}
        if bool(given.get("clusters")) == bool(given.get("all_clusters")):
            raise forms.ValidationError("Choose either clusters or all of them.")
        return given


@admin.register(WorkerToken)
class WorkerTokenAdmin(ModelAdmin):
    list_display = ("name", "lookup", "all_clusters", "created_at", "revoked_at")
    form = WorkerTokenForm
    fields = ("name", "all_clusters", "clusters", "revoked_at")
    actions = ("revoke_selected",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ("revoked_at",) if obj is None else self.fields

    def save_model(self, request: HttpRequest, obj: WorkerToken, form: Any, change: bool) -> None:
        if change:
            return
        chosen = list(form.cleaned_data["clusters"])
        made, token = workers.issue_token(obj.name, "all" if obj.all_clusters else chosen)
        obj.pk, obj.lookup = made.pk, made.lookup
        self.message_user(
            request,
            format_html("Copy the token now, it is not shown again: <code>{}</code>", token),
            messages.WARNING,
        )

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """The domain has stored the clusters."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """It would take its workers along: revoke instead."""
        return False

    @admin.action(description="Revoke selected tokens", permissions=["change"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[WorkerToken]) -> None:
        count = queryset.filter(revoked_at=None).update(revoked_at=Now())
        self.message_user(request, f"{count} tokens are revoked.")


@admin.register(UserToken)
class UserTokenAdmin(ReadOnly):
    """Revoked here; issued over the API and by manage.py create_token."""

    list_display = ("key", "user", "role", "created_at", "expires_at", "last_used_at")
    search_fields = ("=key", "=user__username")
    list_select_related = ("user",)
    fields = ("key", "user", "role", "is_login", "created_at", "expires_at", "last_used_at")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return ModelAdmin.has_delete_permission(self, request, obj)


def _bar(done: int, total: int) -> str:
    """Nothing to do is done."""
    percent = 100 * done // total if total else 100
    return format_html(
        '<progress max="{}" value="{}"></progress> {} %',
        total or 1,
        done if total else 1,
        percent,
    )


def _code(expression: Any) -> str:
    return format_html("<code>{}</code>", expression.text) if expression else "-"
