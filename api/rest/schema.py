"""/api/schema/: the OpenAPI description. It depends on the code alone: each form is made once."""

from __future__ import annotations

import functools
import threading
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

from api import etags
from api.rest.base import with_etag

_making = threading.Lock()


@functools.cache
def _made(renderer: type[Any]) -> tuple[bytes, str]:
    """The description in this form, and its entity tag."""
    generator: Any = SpectacularAPIView.generator_class()
    found = generator.get_schema(request=None, public=True)
    body: bytes = renderer().render(found, renderer_context={})
    return body, etags.make("schema", body)


class Schema(SpectacularAPIView):
    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer: Any = type(request.accepted_renderer)
        # It takes seconds: of those who ask first, one makes it.
        with _making:
            body, etag = _made(renderer)
        kind = f"{renderer.media_type}; charset=utf-8"
        return with_etag(request, etag, lambda: HttpResponse(body, content_type=kind))
