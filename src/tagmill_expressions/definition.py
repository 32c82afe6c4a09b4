"""A definition, checked: its syntax tree, its type, and the text that libxml2 evaluates.

A prefix that is not declared stands for the namespace of the same name: `lldp:chassis` reaches what
the `lldp` probe told. `lshw:` not declared stands for no namespace, where the `lshw` probe is, and
is taken out of the text for libxml2, as XPath 1.0 knows no prefix for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lxml import etree

from tagmill_expressions import checks, parser
from tagmill_expressions.documents import MAIN_PROBE
from tagmill_expressions.errors import DefinitionError
from tagmill_expressions.lexer import ILLEGAL
from tagmill_expressions.syntax import NameTest, Part, SyntaxTree, Type, children

MAX_LENGTH = 16_384
"""The length of a definition in characters. The longest that people wrote has 700."""

_NO_NAMESPACE = "[namespace-uri()='']"


@dataclass(frozen=True)
class Checked:
    text: str
    namespaces: dict[str, str]
    """The namespaces that were declared, by prefix."""
    ast: SyntaxTree
    type: Type
    libxml2_text: str
    libxml2_namespaces: dict[str, str]
    """The namespaces of all prefixes that `libxml2_text` uses, declared or not."""


def check(text: str, namespaces: Mapping[str, str] = {}) -> Checked:
    """Raises DefinitionError unless the definition evaluates on every document.

    What passes here is accepted by libxml2 as well; it fails in evaluation only by what it costs.
    Takes time in proportion to the text: nothing is evaluated.
    """
    checks.namespaces(namespaces)
    if len(text) > MAX_LENGTH:
        message = (
            f"the definition has {len(text):,} characters, more than the {MAX_LENGTH:,} allowed"
        )
        raise DefinitionError(message, MAX_LENGTH + 1)
    illegal = ILLEGAL.search(text)
    if illegal:
        message = f"the character {illegal[0]!r} is not allowed in XML: remove it"
        raise DefinitionError(message, illegal.start() + 1)
    ast = _parsed(text)
    tests = list(_name_tests(ast))
    checked = Checked(
        text=text,
        namespaces=dict(namespaces),
        ast=ast,
        type=ast.type,
        libxml2_text=_rewrite(text, tests, namespaces),
        libxml2_namespaces=_prefixes(tests, namespaces),
    )
    _accept_by_libxml2(checked)
    return checked


def _parsed(text: str) -> SyntaxTree:
    try:
        return parser.parse(text)
    except DefinitionError as error:
        if error.rewrite is not None and not _parses(error.rewrite):
            error.rewrite = None
        raise


def _parses(text: str) -> bool:
    try:
        parser.parse(text)
    except DefinitionError:
        return False
    return True


def _name_tests(part: Part) -> Iterator[NameTest]:
    """The name tests with a prefix, in the order of the text."""
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if isinstance(part, NameTest) and part.prefix is not None:
            yield part
        waiting.extend(reversed(children(part)))


def _is_main(test: NameTest, namespaces: Mapping[str, str]) -> bool:
    return test.prefix == MAIN_PROBE and MAIN_PROBE not in namespaces


def _prefixes(tests: list[NameTest], namespaces: Mapping[str, str]) -> dict[str, str]:
    used: dict[str, str] = {}
    for test in tests:
        prefix = test.prefix or ""
        if prefix == "xmlns":
            raise DefinitionError("xmlns is no prefix of names: remove it", test.start + 1)
        if prefix != "xml" and not _is_main(test, namespaces):
            used[prefix] = namespaces.get(prefix, prefix)
    return used


def _rewrite(text: str, tests: list[NameTest], namespaces: Mapping[str, str]) -> str:
    """Takes out `lshw:`; predicates keep counting only what is in no namespace."""
    pieces, at = [], 0
    for test in tests:
        if _is_main(test, namespaces):
            pieces += [text[at : test.start], test.local]
            if test.local == "*":
                pieces.append(_NO_NAMESPACE)
            at = test.end
    return "".join([*pieces, text[at:]])


def _accept_by_libxml2(checked: Checked) -> None:
    """The second gate: nothing is stored that the reference cannot compile.

    It refuses names with letters that XML 1.0 took in with its fifth edition. Nothing is evaluated
    here, in a server: a definition can cost 2^32 steps on a document of one element, and libxml2
    cannot be interrupted. What evaluation alone would refuse, our parser and `checks` have refused.
    """
    text = checked.text
    try:
        etree.XPath(text, regexp=False)
        compile_libxml2(checked)
    except etree.XPathError as error:
        # libxml2 compiled the text as it is, so its column is an offset in bytes.
        at = error.error_log[-1].column if len(error.error_log) else 0
        column = min(len(text.encode()[:at].decode(errors="ignore")), len(text) - 1) + 1
        message = f"libxml2 refuses the definition ({error}): use names of plainer letters"
        raise DefinitionError(message, column) from None


def compile_libxml2(checked: Checked) -> etree.XPath:
    """`boolean()` of a definition. Our parser found its brackets balanced: the wrapping is safe."""
    return etree.XPath(
        f"boolean({checked.libxml2_text})",
        namespaces=checked.libxml2_namespaces or None,
        regexp=False,
        smart_strings=False,
    )
