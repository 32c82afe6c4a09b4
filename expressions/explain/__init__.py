"""Why a definition is true or false of one document."""

from __future__ import annotations

from expressions.explain.explainer import explain
from expressions.explain.model import Explanation, Hit, Missing

__all__ = ["Explanation", "Hit", "Missing", "explain"]
