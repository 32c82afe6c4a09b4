"""Every disagreement with lxml that a random run found, by name."""

from __future__ import annotations

import pytest
import tagmill_kernel
from lxml import etree

from tests.kernel.grammar import NAMESPACES
from tests.kernel.reference import disagreements


@pytest.mark.parametrize(
    ("document", "expression"),
    [
        pytest.param(
            "<b><x-y/></b><?a?>",
            "//preceding::b",
            id="preceding leaves out a first child of the document that has children",
        ),
        pytest.param(
            "<!--c--><b><x-y/></b><?a?>",
            "//preceding::b",
            id="preceding keeps a root that a comment precedes",
        ),
        pytest.param("<b/><?a?>", "//preceding::b", id="preceding keeps a root without children"),
        pytest.param(
            "<a b='1'><c/></a>",
            "//@b/following::c",
            id="the children of its element do not follow an attribute",
        ),
        pytest.param("<a id='svm'/>", "@id = 'svm'", id="the context node is the root element"),
        pytest.param(
            "<a><![CDATA[]]></a>", "count(/a/text()) = 1", id="an empty CDATA section is a text"
        ),
        pytest.param("<a>1e1</a>", ". = 10", id="numbers have exponents"),
        pytest.param(
            "<a>1</a>",
            "string(12345678901.5) = '1.23456789015e+10'",
            id="large numbers print with exponents",
        ),
        pytest.param(
            "<a><a><b>1</b></a><b>2</b></a>",
            "string(//a/b) = '1'",
            id="the first child of nested elements may be the inner one's",
        ),
        pytest.param(
            "<a><b>.1</b><b>.2</b><b>.3</b></a>",
            "sum(//b) = .1 + .2 + .3",
            id="fractions add up in document order",
        ),
    ],
)
def test_the_kernel_agrees_with_lxml(document: str, expression: str) -> None:
    assert disagreements([document], [expression], NAMESPACES) == []


def test_a_position_outside_of_a_predicate_is_an_error_in_both() -> None:
    with pytest.raises(etree.XPathEvalError):
        etree.XPath("position() = 1")(etree.fromstring("<a/>"))
    with pytest.raises(tagmill_kernel.KernelRefused):
        tagmill_kernel.Expression("position() = 1")
