"""What a definition means: XPath 1.0 over a node's documents. Imports no Django.

- `definition`: a definition is parsed, checked and compiled.
- `documents`: documents are checked at upload and composed for evaluation.
- `evaluation`: the reference evaluation, by lxml.
- `vocabulary`, `words`: the names and values that documents contain, and those to choose from.
- `lint`, `explain`: warnings about a definition, and why it is true or false of one document.
- `syntax`: the tree that a definition is parsed to, and the words of the grammar.
- `errors`: what all of these raise.
"""

__all__ = [
    "definition",
    "documents",
    "errors",
    "evaluation",
    "explain",
    "lint",
    "syntax",
    "vocabulary",
    "words",
]
