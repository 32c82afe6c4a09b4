from __future__ import annotations

import math
from random import Random

import pytest
import tagmill_kernel
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lxml import etree

from fixtures.generate import PROFILES, generate
from tagmill_expressions import documents
from tagmill_expressions.errors import DocumentError
from tests.kernel import grammar
from tests.kernel.reference import parse, parser

PIECES = [
    *"<>/&;'\"=! ?[]-:#x1a\t\n\r\x01é",
    "&amp;", "&lt", "&#0;", "&#x41;", "&#65", "&#xD;", "&foo;", "]]>", "<![CDATA[", "<!--", "-->",
    "--", "<?xml version='1.0'?>", "<?xml", "<?x y?>", "?>", "<!DOCTYPE a>", "<!DOCTYPE a []>",
    "<!DOCTYPE a SYSTEM 'b'>", "<!DOCTYPE a PUBLIC 'b' \"c\" >", "</a>", "<a>", "<a/>",
    " a='1'", " p:a='1'", " xmlns=''", " xmlns:p='urn:p'", " xmlns:p=''", " xmlns:r='urn:p'",
    " xmlns:xml='x'", " xml:id='1'", " xml:lang='en'", "<p:a/>", "<p:a:b/>", "\ufffe", "\ufeff",
]  # fmt: skip


def lxml_accepts(document: bytes) -> bool:
    strict = parser()
    try:
        tree = etree.ElementTree(etree.fromstring(document, strict))
    except (etree.XMLSyntaxError, ValueError):
        return False
    # lxml asks about the last error only, and forgives one that a mere warning follows.
    if any(entry.level >= etree.ErrorLevels.ERROR for entry in strict.error_log):
        return False
    if tree.docinfo.internalDTD is not None and not normalises(document):
        return False
    return not any(node.tag is etree.Entity for node in tree.iter())


def normalises(document: bytes) -> bool:
    """Upload takes it: the one DOCTYPE that both accept declares nothing, and lxml cannot tell."""
    try:
        documents.normalise(document, documents.Limits(bytes=1 << 20, depth=255))
    except DocumentError:
        return False
    return True


def kernel_accepts(document: bytes, seen_before: str) -> bool:
    image = tagmill_kernel.PartitionImage()
    for _ in range(3):
        image.put(0, {"lshw": seen_before})
    try:
        image.put(0, {"lshw": document})
    except tagmill_kernel.DocumentRefused:
        return False
    return True


def assert_parses_where_sure(document: bytes) -> None:
    """What the kernel is sure of, upload would accept if lxml were asked."""
    for depth in (3, 255):
        limits = documents.Limits(bytes=1 << 24, depth=depth)
        try:
            found = documents.unparsed(document, limits)
        except DocumentError:
            return
        if tagmill_kernel.are_plain([found.kept()], depth) == [True]:
            found.check()


def assert_same_document(document: bytes, seen_before: str = "<a/>") -> None:
    """Both refuse it, or both read the same numbers of nodes and the same text."""
    assert_parses_where_sure(document)
    assert kernel_accepts(document, seen_before) == lxml_accepts(document), document
    if not kernel_accepts(document, seen_before):
        return
    tree = parse(document)
    image = tagmill_kernel.PartitionImage()
    # Markup that an image has seen twice is recalled instead of parsed.
    for _ in range(3):
        image.put(0, {"lshw": seen_before})
    image.put(0, {"lshw": document})
    for counted in (
        "count(//*)",
        "count(//@*)",
        "count(//text())",
        "count(/node())",
        "count(//comment())",
        "count(//processing-instruction())",
        "string-length(/)",
        "string-length(normalize-space(/))",
        "sum(//*[position() = 2]/@*)",
        "string-length(//@*[last()])",
    ):
        value = tree.xpath(counted)
        wanted = f"{counted} = {value!r}" if not math.isnan(value) else f"{counted} != {counted}"
        assert image.evaluate([tagmill_kernel.Expression(wanted)]) == [b"\x01"], wanted


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(min_value=0, max_value=2**63))
@example(2)
def test_a_damaged_document_is_refused_exactly_when_lxml_refuses_it(seed: int) -> None:
    rng = Random(seed)
    document = original = grammar.document(rng)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(document) + 1)
        cut = rng.choice([0, 0, 1, 2])
        document = document[:at] + rng.choice(PIECES) + document[at + cut :]
    assert_same_document(document.encode(), original)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b" ",
        b"<a",
        b"<a/> \n",
        b"<a/>x",
        b" <a/>",
        b" <?xml version='1.0'?><a/>",
        b"<?xml version='1.1'?><a/>",
        b"<?xml version='2.0'?><a/>",
        b"<?xml version='1.0' standalone='maybe'?><a/>",
        b"<?xml version='1.0' encoding='UTF-8' standalone='yes'?><a/>",
        b"<?xml version='1.0' standalone='yes' encoding='UTF-8'?><a/>",
        b"<?xml encoding='UTF-8'?><a/>",
        b"<?xml version='1.0' encoding='iso-8859-1'?><a>\xe9</a>",
        b"<?xml version='1.0' encoding='ascii'?><a>\xc3\xa9</a>",
        b"<?xml version='1.0' encoding='bogus'?><a/>",
        b"\xef\xbb\xbf<a>\xc3\xa9</a>",
        "<?xml version='1.0' encoding='utf-16'?><a>é</a>".encode("utf-16"),
        b"<a>\xe9</a>",
        b"<a>\xed\xa0\x80</a>",
        b"<a>\xef\xbf\xbf</a>",
        b"<a>\x01</a>",
        b"<a>\r\n\r&#13;\n</a>",
        b"<a b='\r\n\t&#10; x'/>",
        b"<a><![CDATA[]]></a>",
        b"<a>x<![CDATA[y]]>z<b/><![CDATA[]]></a>",
        b"<a>]]></a>",
        b"<a b=']]>'/>",
        b"<a b='<'/>",
        b"<a b='1' b='2'/>",
        b"<a xmlns:p='u' xmlns:q='u' p:b='1' q:b='2'/>",
        b"<a xmlns='u' b='1'/>",
        b"<a xmlns:p='a b'/>",
        b"<a xmlns='%'/>",
        b"<a xmlns='rel/path?q#f'/>",
        b"<a xmlns='#a#b'/>",
        b"<a xmlns='http://[::1]:80/'/>",
        b"<a xmlns='1:b'/>",
        b"<a xmlns='http://www.w3.org/2000/xmlns/'/>",
        b"<a xmlns='http://www.w3.org/XML/1998/namespace'/>",
        b"<a xmlns:xml='http://www.w3.org/XML/1998/namespace' xml:lang='en'/>",
        b"<a xmlns:xmlns='u'/>",
        b"<a xml:id='x'/>",
        b"<a xml:id='1'/>",
        b"<xml:a/>",
        b"<?xml-stylesheet x?><a/>",
        b"<?XmL x?><a/>",
        b"<?a:b x?><a/>",
        b"<a><!-- a -- b --></a>",
        b"<a><!-- a ---></a>",
        b"<a><?p?><?p  d ?></a>",
        b"<!DOCTYPE a><a/>",
        b"<?xml version='1.0'?>\n<!--c--><!DOCTYPE a SYSTEM 'a.dtd'><?p?>\n<a>x</a>",
        b"<!DOCTYPE a PUBLIC '-//a//EN' \"<>'\"\n><a/>",
        b"<!DOCTYPE a:b SYSTEM ''><a/>",
        b"<!DOCTYPE a:b:c><a/>",
        b"<!DOCTYPE 1><a/>",
        b"<!DOCTYPE a []><a/>",
        b"<!DOCTYPE a [<!-- c -->]><a/>",
        b"<!DOCTYPE a SYSTEM 'b' [<!ENTITY x 'y'>]><a/>",
        b"<!DOCTYPE a SYSTEM 'b'><a>&x;</a>",
        b"<!DOCTYPE a SYSTEM 'b'><a b='&x;'/>",
        b"<!DOCTYPE a SYSTEM 'b'><!DOCTYPE a><a/>",
        b"<a/><!DOCTYPE a>",
        b"<a><!DOCTYPE a></a>",
        b"<!DOCTYPE a SYSTEM'b'><a/>",
        b"<!DOCTYPE a PUBLIC 'b''c'><a/>",
        b"<!DOCTYPE a PUBLIC '{' 'c'><a/>",
        b"<!DOCTYPE a PUBLIC '\t' 'c'><a/>",
        b"<!DOCTYPE a PUBLIC 'b'><a/>",
        b"<!DOCTYPE a NDATA 'b'><a/>",
        b"<!DOCTYPE\xc2\xa0a><a/>",
        b"<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
        b"<a>&#xD800;</a>",
        b"<a>&#1114112;</a>",
        b"<a>&#00000000000065;</a>",
        b"<a>&#99999999999999999999;</a>",
        b"<a>&#x;&#;</a>",
        b"<a" + b" x='1'" * 2 + b"/>",
        b"<a>" * 256 + b"</a>" * 256,
        b"<a>" * 257 + b"</a>" * 257,
    ],
)
def test_a_document_at_the_edge_is_read_as_lxml_reads_it(document: bytes) -> None:
    assert_same_document(document)


@pytest.mark.parametrize(
    "document",
    [
        b"<?xml version='1.0'?><?xml version='1.0'?><a/>",
        b"<?xml version='1.0'?>\xef\xbb\xbf<a/>",
        b"<!DOCTYPE a><?xml version='1.0'?><a/>",
        b"<!DOCTYPE a SYSTEM 'b'><a>&x;</a>",
        b"<a><!--<!DOCTYPE b>--></a>",
        b"<a xml:id='x'><b xml:id='x'/></a>",
        b"<a xml:space='odd' xml:lang='-'/>",
        b"<a xmlns:p='u' p:b='1' xmlns:q='u' q:b='2'/>",
        b"<a p:b='1'/>",
        b"<a " + b"b" * 50_000 + b"='1'/>",
        b"<a " + b"b" * 50_001 + b"='1'/>",
        b"<" + b"b" * 50_001 + b"/>",
        b"<a><?" + b"b" * 50_001 + b" x?></a>",
        b"<a b='" + b"x" * 10_000_001 + b"'/>",
        b"<a>" + b"x" * 10_000_001 + b"</a>",
        b"<a><![CDATA[" + b"x" * 10_000_001 + b"]]></a>",
        b"<a><!--" + b"x" * 10_000_001 + b"--></a>",
        b"<a>" * 4 + b"</a>" * 4,
        "<?xml version='1.0' encoding='utf-16'?><a>\ufffe</a>".encode("utf-16"),
        b"<?xml version='1.0' encoding='cp1252'?><a>\x80\x85</a>",
        "<\u00b7/>".encode(),
        "<a\u00b7 \u0300='1'/>".encode(),
        "<a>\x7f\x85\ud7ff\ue000\U0010ffff</a>".encode(),
    ],
)
def test_the_kernel_is_sure_only_of_what_lxml_accepts(document: bytes) -> None:
    assert_parses_where_sure(document)


def test_the_kernel_is_sure_of_ordinary_documents() -> None:
    kept = [
        xml for profile in PROFILES for node in generate(200, 7, profile) for xml in node.probes.values()
    ]
    assert all(tagmill_kernel.are_plain(kept, 128))
    for xml in kept[::20]:
        assert_parses_where_sure(xml.encode())
    odd = ["<a>" * 3 + "</a>" * 3, "<a>&lt;<![CDATA[<]]></a>\n<!--c--><?p?>", "<a>\u00e9</a>", "", "<a>", "<a/>x"]
    assert tagmill_kernel.are_plain(odd, 3) == [True] * 3 + [False] * 3
    assert tagmill_kernel.are_plain(odd[:1], 2) == [False]
    assert tagmill_kernel.are_plain([], 3) == []


def test_a_refusal_names_the_probe_line_and_column() -> None:
    image = tagmill_kernel.PartitionImage()
    with pytest.raises(tagmill_kernel.DocumentRefused) as caught:
        image.put(0, {"lshw": b"<a>\n <b></c>\n</a>"})
    _, probe, line, column = caught.value.args
    assert (probe, line, column) == ("lshw", 2, 7)
