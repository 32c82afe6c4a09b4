"""Why a definition is true or false of one document."""

from __future__ import annotations

from tagmill_expressions.explain.explainer import explain
from tagmill_expressions.explain.model import Explanation, Hit, Missing

__all__ = ["Explanation", "Hit", "Missing", "explain"]
