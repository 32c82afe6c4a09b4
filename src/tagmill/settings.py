"""Django's settings, derived from `tagmill.config`. Set nothing here: set a TAGMILL_ variable."""

from __future__ import annotations

from tagmill import caches, config, database, extras, image_store, secret

CONFIG = config.load()

SECRET_KEY = secret.key(CONFIG)
DEBUG = False
ALLOWED_HOSTS = [host for host in CONFIG.allowed_hosts.split(",") if host]
CSRF_TRUSTED_ORIGINS = [origin for origin in CONFIG.csrf_trusted_origins.split(",") if origin]
CSRF_FAILURE_VIEW = "api.handlers.csrf_failure"
SESSION_COOKIE_HTTPONLY = True
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
# Without a proxy that sets the header, every client could claim what it likes.
if CONFIG.trusted_proxies:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = CONFIG.trusted_proxies > 0

INSTALLED_APPS = [
    "api",
    "api.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "procrastinate.contrib.django",
    "tagmill.audit",
    "tagmill.fleet",
    "tagmill.matches",
    "tagmill.work",
    "tagmill.tags",
    "tagmill.flows",
    "fixtures",
]
if extras.has_loadtest():
    INSTALLED_APPS.append("loadtest.demo")
    if not extras.missing():
        INSTALLED_APPS.append("loadtest")

MIDDLEWARE = [
    # Around the one that adds a length to everything.
    "api.middleware.describe_no_body",
    "api.packing.packed",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "api.acting.ActingMiddleware",
]

ROOT_URLCONF = "api.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": database.django_settings(CONFIG)}
CACHES = caches.django_settings(CONFIG)
STORAGES = {
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    "images": image_store.django_settings(CONFIG),
}
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    *(["api.oidc.Backend"] if CONFIG.oidc_issuer else []),
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False

LOGIN_URL = "login"

STATIC_URL = "static/"
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    # The workbench's, whose addresses have a digest: a browser may keep them.
    "api.web.files.Finder",
]
WHITENOISE_IMMUTABLE_FILE_TEST = r"^/static/workbench-[0-9a-f]{16}/"
# The admin's and the API page's files are served from where they are installed: no collect step.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

# Bounds the admin's forms; the API's parsers have a bound for each route (api/limits.py).
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * config.KIB
# structlog writes the log; Django's own configuration would print twice.
LOGGING_CONFIG = None

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "api.authentication.UserTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["api.permissions.RolePermission"],
    "DEFAULT_RENDERER_CLASSES": ["api.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["api.parsers.JSONParser"],
    # It would describe the serializers of answers as what may be sent.
    "DEFAULT_METADATA_CLASS": None,
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "api.handlers.exception_handler",
    # Who is throttled: unset, it would be the whole of X-Forwarded-For, whatever a client sends.
    "NUM_PROXIES": CONFIG.trusted_proxies,
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Tagmill",
    "DESCRIPTION": "Tags for machine fleets: XPath expressions over hardware inventory.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "api.server.described.add_native",
    ],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "RebuildState": "tagmill.tags.models.Rebuild.State",
        "TagState": ["ready", "building", "failed"],
        "RebuildReason": "tagmill.tags.models.Rebuild.Reason",
        "WaitReason": "tagmill.tags.waiting.REASONS",
        "TagKind": ["automatic", "manual"],
        "AuditKind": "tagmill.audit.models.Event.Kind",
        "AuditAction": "tagmill.audit.models.Event.Action",
        "AuditVia": "tagmill.audit.models.Event.Via",
        "PreviewState": ["evaluating", "complete", "failed"],
        "WordKind": ["element", "attribute", "value"],
        "RoleName": "api.roles.GROUPS",
        "WarningCode": "api.rest.tags.WARNING_CODES",
    },
}

PROCRASTINATE_AUTODISCOVER_MODULE_NAME = "leases"
PROCRASTINATE_IMPORT_PATHS = ["tagmill.work.leases", "tagmill.flows.maintenance"]
