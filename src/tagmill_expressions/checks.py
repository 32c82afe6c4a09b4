"""What the grammar leaves open: functions, their arguments, node-sets, prefixes.

libxml2 finds these errors only when it evaluates, and only in the parts that it gets to.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from tagmill_expressions.errors import DefinitionError
from tagmill_expressions.functions import FUNCTIONS
from tagmill_expressions.lexer import ILLEGAL, NCNAME, Token
from tagmill_expressions.syntax import Signature, SyntaxTree

XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
_XMLNS_NAMESPACE = "http://www.w3.org/2000/xmlns/"


def suggest(word: str, known: Iterable[str]) -> str:
    """ " (did you mean ...?)", or nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def function(name: Token, *, in_predicate: bool) -> Signature:
    signature = FUNCTIONS.get(name.text)
    column = name.start + 1
    if signature is None:
        hint = suggest(name.text, FUNCTIONS) or ": XPath 1.0 has " + ", ".join(sorted(FUNCTIONS))
        raise DefinitionError(f"unknown function {name.text}(){hint}", column)
    if name.text in {"position", "last"} and not in_predicate:
        # libxml2 has no position outside, and calls it an error.
        message = f"{name.text}() has a meaning in a predicate only: write it inside [...]"
        raise DefinitionError(message, column)
    return signature


def arguments(name: Token, signature: Signature, given: Sequence[SyntaxTree]) -> None:
    least, most = signature.least, signature.most
    if len(given) < least or (most is not None and len(given) > most):
        raise DefinitionError(
            f"{name.text}() takes {_count(least, most)}, not {len(given)}", name.start + 1
        )
    for wanted, argument in zip(signature.arguments, given, strict=False):
        if wanted == "node-set":
            require_nodes(argument, f"{name.text}() needs a node-set")


def require_nodes(expression: SyntaxTree, why: str) -> None:
    if expression.type != "node-set":
        found = expression.type
        message = f"{why}, and this is a {found}: write a path, such as //node/size"
        raise DefinitionError(message, expression.start + 1)


def namespaces(declared: Mapping[str, str]) -> None:
    """Raises DefinitionError, without a column, for a prefix or URI that cannot be declared."""
    for prefix, uri in declared.items():
        if not NCNAME.fullmatch(prefix):
            raise DefinitionError(f"{prefix!r} cannot be a prefix: use letters and digits", None)
        if not uri or ILLEGAL.search(uri):
            raise DefinitionError(
                f"the URI of the prefix {prefix} is empty or has an illegal character", None
            )
        if prefix == "xmlns" or uri == _XMLNS_NAMESPACE:
            raise DefinitionError("xmlns cannot be declared: remove it", None)
        if (prefix == "xml") != (uri == XML_NAMESPACE):
            raise DefinitionError(f"the prefix xml is bound to {XML_NAMESPACE} alone", None)


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} arguments or more"
    if least != most:
        return f"{least} to {most} arguments"
    return {0: "no arguments", 1: "1 argument"}.get(least, f"{least} arguments")
