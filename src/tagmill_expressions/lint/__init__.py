"""Warnings about definitions that are right, and say something else than their author meant."""

from __future__ import annotations

from tagmill_expressions.lint.findings import CODES, Warning, caret
from tagmill_expressions.lint.linter import lint

__all__ = ["CODES", "Warning", "caret", "lint"]
