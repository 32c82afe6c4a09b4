"""Answers to compare with: lxml's, node by node, and those of PostgreSQL's `xpath_exists`."""

__all__ = ["answers", "documents", "libxml_postgres", "xpath_exists"]
