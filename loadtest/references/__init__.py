"""What to compare with: lxml's answers, node by node, those of PostgreSQL's `xpath_exists`, and a
plain view."""

__all__ = [
    "answers",
    "documents",
    "libxml_postgres",
    "plain_drf",
    "plain_settings",
    "xpath_exists",
]
