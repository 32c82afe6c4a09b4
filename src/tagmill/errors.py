"""The tree of errors that the domain raises.

TagmillError
├── ConfigurationError        a setting is wrong: the process does not start
├── DatabaseUnavailable       503 database_unavailable
│   └── DatabaseBusy          503 database_busy: a statement or a lock took too long
├── DocumentDamaged           500 document_damaged: delete it and upload it again
├── ImagesUnavailable         503 images_unavailable: the image store does not answer
├── CacheUnavailable          503 cache_unavailable: TAGMILL_CACHE_URL does not answer
├── NotFound                  404 not_found
│   ├── UnknownExpressionSet  404 unknown_expression_set: lease again, or name expressions by id
│   ├── ImageMissing          404 image_missing: read the documents
│   └── ImagesOff             404 images_off: read the documents, and share none
├── Conflict                  409
│   ├── AlreadyExists         409 already_exists
│   ├── StillInUse            409 still_in_use
│   ├── AutomaticTag          409 automatic_tag: assigned by its definition, not by hand
│   ├── ManualTag             409 manual_tag: nothing to rebuild
│   ├── NotCancellable        409 not_cancellable
│   ├── KindChange            409 kind_change: manual to automatic, or back, is to be asked for
│   ├── NothingPending        409 nothing_pending: no definition waits to be published
│   ├── NotComplete           409 not_complete: other clusters are not evaluated
│   ├── ProtocolTooOld        409 protocol_too_old: the worker is to be upgraded
│   └── ImageStoreFull        409 image_store_full, with `limit`
├── Invalid                   400 invalid, `field` says where
│   ├── InvalidDefinition     400 invalid_definition, with `column` (1-based) and `caret`
│   └── InvalidDocument       400 invalid_document, with `line` and `column` (1-based)
├── PreconditionFailed        412 precondition_failed: If-Match or If-None-Match does not hold
├── TooLarge                  413 too_large, with `limit`
├── TooExpensive              422 too_expensive: a definition takes too long, or too much memory
├── Busy                      429 busy, with `retry_after` in seconds
├── PreviewGone               410 preview_gone: a newer one took its place, or it was cancelled
├── CursorGone                410 cursor_gone: what a cursor of changes names is not kept any more
└── WorkerGone                410 worker_gone: register again
    └── IncarnationChanged    410 incarnation_changed: drop everything that is held

`status` and `code` are what an HTTP client gets; `extra` holds the members of the problem document.
"""

from __future__ import annotations

from typing import Any


class TagmillError(Exception):
    status: int = 500
    code: str = "internal"

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = {key: value for key, value in extra.items() if value is not None}


class ConfigurationError(TagmillError):
    code = "configuration"


class DatabaseUnavailable(TagmillError):
    status, code = 503, "database_unavailable"


class DatabaseBusy(DatabaseUnavailable):
    code = "database_busy"


class DocumentDamaged(TagmillError):
    code = "document_damaged"


class CacheUnavailable(TagmillError):
    status, code = 503, "cache_unavailable"


class ImagesUnavailable(TagmillError):
    status, code = 503, "images_unavailable"


class NotFound(TagmillError):
    status, code = 404, "not_found"


class UnknownExpressionSet(NotFound):
    code = "unknown_expression_set"


class ImageMissing(NotFound):
    code = "image_missing"


class ImagesOff(NotFound):
    code = "images_off"


class Conflict(TagmillError):
    status, code = 409, "conflict"


class AlreadyExists(Conflict):
    code = "already_exists"


class StillInUse(Conflict):
    code = "still_in_use"


class AutomaticTag(Conflict):
    code = "automatic_tag"


class ManualTag(Conflict):
    code = "manual_tag"


class NotCancellable(Conflict):
    code = "not_cancellable"


class KindChange(Conflict):
    code = "kind_change"


class NothingPending(Conflict):
    code = "nothing_pending"


class NotComplete(Conflict):
    code = "not_complete"


class ImageStoreFull(Conflict):
    code = "image_store_full"


class ProtocolTooOld(Conflict):
    code = "protocol_too_old"


class Invalid(TagmillError):
    status, code = 400, "invalid"


class InvalidDefinition(Invalid):
    code = "invalid_definition"


class InvalidDocument(Invalid):
    code = "invalid_document"


class PreconditionFailed(TagmillError):
    status, code = 412, "precondition_failed"


class TooLarge(TagmillError):
    status, code = 413, "too_large"


class TooExpensive(TagmillError):
    status, code = 422, "too_expensive"


class Busy(TagmillError):
    status, code = 429, "busy"


class PreviewGone(TagmillError):
    status, code = 410, "preview_gone"


class CursorGone(TagmillError):
    status, code = 410, "cursor_gone"


class WorkerGone(TagmillError):
    status, code = 410, "worker_gone"


class IncarnationChanged(WorkerGone):
    code = "incarnation_changed"
