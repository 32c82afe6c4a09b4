"""Where workers' shared images are: a directory, or an S3 bucket."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from tagmill.config import Config
from tagmill.errors import ConfigurationError

DIRECTORY = "images"
# The whole of an image at most, so that reading it again needs no second request.
SPOOLED_BYTES = 1024 * 1024
# An answer that takes longer is given up: workers read the documents.
ANSWER_SECONDS = 20


def django_settings(config: Config) -> dict[str, Any]:
    """Django's STORAGES entry. Raises ConfigurationError."""
    place = config.image_store
    if "://" not in place:
        return {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {
                "location": place or config.var / DIRECTORY,
                "file_permissions_mode": 0o600,
                "directory_permissions_mode": 0o700,
            },
        }
    url = urlsplit(place)
    if url.scheme != "s3" or not url.hostname or url.username is not None or url.query:
        raise ConfigurationError(
            "TAGMILL_IMAGE_STORE must be a directory, or s3://bucket/prefix; keys and address are"
            " in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL_S3"
        )
    if find_spec("storages") is None or find_spec("boto3") is None:
        raise ConfigurationError(
            "TAGMILL_IMAGE_STORE needs a library: run `pip install 'django-storages[s3]'`, or name"
            " a directory that all servers share"
        )
    from botocore.config import Config as Client

    return {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": url.netloc,
            "location": url.path.strip("/"),
            "default_acl": None,
            "file_overwrite": False,
            "querystring_auth": False,
            "max_memory_size": SPOOLED_BYTES,
            "client_config": Client(
                connect_timeout=ANSWER_SECONDS,
                read_timeout=ANSWER_SECONDS,
                retries={"max_attempts": 2, "mode": "standard"},
            ),
        },
    }
