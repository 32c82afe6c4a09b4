"""The tree of errors that definitions and documents raise.

ExpressionError
├── DefinitionError    a definition is wrong, with its column
├── EvaluationError    a right definition cannot be evaluated on a document
├── DocumentError      a document is refused, with its line and column
└── DocumentTooLarge   a document has more bytes than the limit

Lines and columns count from 1, columns in characters. Messages are sentences without a full stop
that name what is wrong and what to do next; they do not repeat the position.
"""

from __future__ import annotations


class ExpressionError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class DefinitionError(ExpressionError):
    """`column` is that of the definition's own text; None when a namespace is at fault.

    `rewrite` is the whole definition as it was meant, where that is sure.
    """

    def __init__(self, message: str, column: int | None, rewrite: str | None = None) -> None:
        super().__init__(message)
        self.column = column
        self.rewrite = rewrite


class EvaluationError(ExpressionError):
    pass


class DocumentError(ExpressionError):
    """`line` and `column` are those of the document as it was uploaded, declaration included."""

    def __init__(self, message: str, line: int | None, column: int | None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class DocumentTooLarge(ExpressionError):
    """`limit` is in bytes."""

    def __init__(self, message: str, limit: int) -> None:
        super().__init__(message)
        self.limit = limit
