"""Documents: what upload refuses and where, what it keeps, and how probes become one document."""

from __future__ import annotations

import codecs
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from fixtures.generate import generate
from tagmill_expressions import documents
from tagmill_expressions.documents import Limits, compose, compose_xml, normalise, parse
from tagmill_expressions.errors import DocumentError, DocumentTooLarge

LIMITS = Limits(bytes=1 << 20, depth=128)


DAMAGED = [
    b"<?xml version='1.0' encoding='UTF8'?>\n<!-- c --><list><a b='1'/>\n<p:c xmlns:p='u'/></list>",
    b"<?xml version='1.0' encoding='iso-8859-1'?><a xmlns='u'>\xe9<![CDATA[x]]><b xmlns=''/></a>",
    codecs.BOM_UTF8 + b"<a><?pi d?>&lt;&#65;</a><!-- after -->",
    "\ufeff<?xml version='1.0'?><a><b/></a>".encode("utf-16-le"),
]
PIECES = [
    *[b"", b"<", b">", b"</a>", b"<!DOCTYPE a>", b"<!-- ", b"-->", b"&x;", b"&#0;", b"]]>", b"\0"],
    *[b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b" xmlns=''", b" xmlns='v'", b"<?xml ", b"?>"],
    *[b" \n", b"\x0b", b"\xc2\x85", b"\xe2\x80\xa8", b"\xef\xbf\xbe", b"'", b'"', b"<q:b/>"],
]


def refusal(data: bytes, limits: Limits = LIMITS) -> tuple[str, int | None, int | None]:
    with pytest.raises(DocumentError) as caught:
        normalise(data, limits)
    with pytest.raises(DocumentError):
        parse(data, limits)
    return caught.value.message, caught.value.line, caught.value.column


# -- refused ---------------------------------------------------------------------------------------

LAUGHS = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [
 <!ENTITY lol "lol">
 <!ENTITY lol1 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
 <!ENTITY lol2 "&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;">
]>
<lolz a="&lol2;">&lol2;</lolz>"""


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (LAUGHS, 2, 1),
        (b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', 1, 1),
        (b"<!-- c --><?pi?>\n  <!DOCTYPE a []><a/>", 2, 3),
        (b"\xef\xbb\xbf<!DOCTYPE a [<!ATTLIST a b CDATA 'c'>]><a/>", 1, 1),
        ("<?xml version='1.0'?> <!DOCTYPE a SYSTEM 'a' []><a/>".encode("utf-16"), 1, 23),
        (b"<!DOCTYPE a SYSTEM 'a.dtd'>\n<!DOCTYPE a><a/>", 2, 1),
        (b"<!DOCTYPE><a/>", 1, 1),
        (b"<!DOCTYPE a SYSTEM><a/>", 1, 1),
        (b"<!DOCTYPE a PUBLIC 'p'><a/>", 1, 1),
        (b"<!DOCTYPE a PUBLIC '{' 'a'><a/>", 1, 1),
        (b"<!DOCTYPE a SYSTEM 'a\x01'><a/>", 1, 1),
    ],
)
def test_a_doctype_that_declares_anything_is_refused_where_it_stands(
    data: bytes, line: int, column: int
) -> None:
    message, *where = refusal(data)
    assert "DOCTYPE" in message
    assert where == [line, column]


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<!DOCTYPE a>",
        "<!DOCTYPE  p:a\nSYSTEM\t'http://127.0.0.1:9/\">' >",
        """<!DOCTYPE a PUBLIC "-//It's//EN" 'file:///etc/passwd'>""",
    ],
)
def test_a_doctype_that_only_names_a_file_is_dropped_and_nothing_is_read(doctype: str) -> None:
    text = f"<?xml version='1.0'?>\n<!--c-->\n{doctype}\n<?p?><a>\n<b/></a>"
    assert normalise(text.encode(), LIMITS) == (
        "\n<!--c-->\n" + "\n" * doctype.count("\n") + "\n<?p?><a>\n<b/></a>"
    )
    assert parse(text.encode(), LIMITS)[0].sourceline == text.count("\n") + 1
    # What it might declare stays unknown.
    assert "Entity" in refusal(text.replace("<b/>", "&b;").encode())[0]
    assert refusal(text.replace("<b/>", "<b>").encode())[1] == text.count("\n") + 1


def test_nodes_are_bounded_and_counted_from_above() -> None:
    data = b"<a b='1'>x<b/><!-- c --><b> </b></a>"
    tree = parse(data, LIMITS)
    nodes = len(tree.xpath("/descendant::node()")) + 2 * len(tree.xpath("//@*"))
    counted = documents.count_nodes(data.decode())
    assert nodes <= counted <= nodes + 3
    normalise(data, Limits(bytes=1000, depth=8, nodes=counted))
    with pytest.raises(DocumentTooLarge, match="more than the limit of"):
        normalise(data, Limits(bytes=1000, depth=8, nodes=counted - 1))


@pytest.mark.parametrize(
    ("data", "says", "line", "column"),
    [
        (b"", "empty", 1, 1),
        (b" \n ", "empty", 1, 1),
        (b'<?xml version="1.0"?>\n', "empty", 1, 1),
        (b"<a>\n<b>", "Premature end", 2, 4),
        (b"<a/>\n<b/>", "Extra content", 2, 1),
        (b"<a>\n</b>", "mismatch", 2, 5),
        (b"hello", "Start tag expected", 1, 1),
        (b"<a>&b;</a>", "Entity 'b' not defined", 1, 7),
        (b"<a x='1'\n x='2'/>", "redefined", 2, 7),
        (b"<p:a/>", "prefix p on a is not defined", 1, 5),
        (b"<a>\x01</a>", "invalid Char", 1, 4),
        (b"<a>&#1;</a>", "xmlParseCharRef", 1, 8),
        (b"<a>\n \x00</a>", "NUL", 2, 2),
        (b"<a>\n\xe9</a>", "not UTF-8", 2, 1),
        (b"<a>\xed\xa0\x80</a>", "not UTF-8", 1, 4),
        (b"\xff\xfe<\x00a\x00/\x00>", "not UTF-16-LE", 1, 4),
        (b"\xef\xbb\xbf\xef\xbb\xbf<!DOCTYPE a><a/>", "second byte order mark", 1, 1),
        ("\ufeff\ufeff<a/>".encode("utf-16-le"), "second byte order mark", 1, 1),
        ("\u2003<!DOCTYPE a><a/>".encode(), "Start tag expected", 1, 1),
        (b"<?xml\xe2\x80\x83version='1.0'?><a/>", "", 1, 6),
        (b"<?xml foo?><a/>", "declaration is malformed", 1, 1),
        (b" <?xml version='1.0'?><a/>", "only at the start", 1, 7),
        (b"<?xml version='1.0' encoding='klingon'?><a/>", "'klingon' is unknown", 1, 1),
        (b"<?xml version='1.0' encoding='zlib'?><a/>", "'zlib' is unknown", 1, 1),
        (b"<?xml version='1.0' encoding='unicode_escape'?><a/>", "unknown", 1, 1),
        (b"<?xml version='1.0' encoding='utf-7'?><a/>", "unknown", 1, 1),
        (b"<?xml version='1.0' encoding='utf-16'?><a/>", "not what the bytes are in", 1, 1),
        (b"<?xml version='1.0' encoding='us-ascii'?>\n<a>\xc3\xa9</a>", "not ASCII", 2, 4),
    ],
)
def test_what_is_no_xml_is_refused_with_line_and_column(
    data: bytes, says: str, line: int, column: int
) -> None:
    message, *where = refusal(data)
    assert says in message
    assert where == [line, column]


def test_positions_count_the_declaration_that_is_taken_off() -> None:
    assert refusal(b'<?xml version="1.0"?>\n\n<a>\n</b>')[1:] == (4, 5)
    assert refusal(b'<?xml version="1.0"?><a></b>')[1:] == (1, 29)


def test_a_document_over_the_byte_limit_is_too_large() -> None:
    data = b"<a>" + b"x" * 100 + b"</a>"
    assert normalise(data, Limits(bytes=len(data), depth=8)) == data.decode()
    with pytest.raises(DocumentTooLarge) as caught:
        normalise(data, Limits(bytes=len(data) - 1, depth=8))
    assert caught.value.limit == len(data) - 1


@pytest.mark.parametrize("depth", [1, 8, 255, 256, 1000])
def test_elements_nest_as_deep_as_the_limit_and_no_deeper(depth: int) -> None:
    limits = Limits(bytes=1 << 20, depth=depth)
    deepest = b"<a>\n" * depth + b"</a>" * depth
    assert parse(deepest, limits).tag == "a"
    message, line, _ = refusal(b"<a>\n" * (depth + 1) + b"</a>" * (depth + 1), limits)
    assert message == f"elements are nested deeper than the limit of {depth}"
    assert line == depth + 1


def test_a_million_levels_end_at_libxml2s_own_limit() -> None:
    message, _, _ = refusal(b"<a>" * 300_000, Limits(bytes=1 << 20, depth=255))
    assert message == "elements are nested deeper than the limit of 255"


def test_siblings_do_not_add_to_the_depth() -> None:
    parse(b"<a>" + b"<b><!-- c --><?p?></b>" * 500 + b"</a>", Limits(bytes=1 << 20, depth=2))


def test_a_huge_attribute_is_accepted_within_the_limits_and_composed_again() -> None:
    large = '<a b="' + "x" * 12_000_000 + '"/>'
    kept = normalise(large.encode(), Limits(bytes=16_000_000, depth=8))
    assert len(compose({"lshw": kept}).getroot().get("b", "")) == 12_000_000


def test_a_name_that_the_parser_cannot_hold_is_refused() -> None:
    message, _, _ = refusal(b"<a" + b"b" * 60_000 + b"/>")
    assert "longer than the parser accepts" in message


@settings(derandomize=True, deadline=None, database=None, max_examples=600)
@given(st.data())
def test_damaged_bytes_are_refused_or_kept_for_good(data: st.DataObject) -> None:
    raw = data.draw(st.sampled_from(DAMAGED))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        end = at + data.draw(st.integers(0, 3))
        raw = raw[:at] + data.draw(st.sampled_from(PIECES) | st.binary(max_size=2)) + raw[end:]
    try:
        kept = normalise(raw, LIMITS)
    except DocumentError as error:
        assert error.message
        assert error.line is not None
        assert error.line >= 1
        assert error.column is None or error.column >= 1
        return
    assert normalise(kept.encode(), LIMITS) == kept
    assert "<!DOCTYPE" not in re.sub(
        r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>", "", kept, flags=re.S
    )
    root = parse(raw, LIMITS)
    expanded({"lshw": kept})
    assert content(compose({"lshw": kept}).getroot()) == content(root)
    assert len(expanded({"x": kept})) == len(expanded({"lshw": kept})) + 1


@pytest.mark.parametrize(
    "text",
    [
        "<a/>",
        "<a>\u00e9</a>",
        "\ufeff<a>\u00e9</a>",
        "\ufeff\ufeff<a/>",
        "<?xml version='1.0' encoding='latin-1'?>\n<a>\u00e9</a>",
        "<?xml version='1.0' encoding='ascii'?><a/>",
        "<?xml version='1.0' encoding='utf-16'?><a/>",
        "<?xml-stylesheet x?><a/>",
        "<\0?\0x",
        "<a>\0</a>",
        "<!DOCTYPE a SYSTEM 'b'>\n<a/>",
        "<!DOCTYPE a []><a/>",
        "",
        "<a>" + "x" * 100 + "</a>",
        "<a>" + "\u00e9" * 50 + "</a>",
    ],
)
def test_text_is_taken_as_the_same_document_in_utf8(text: str) -> None:
    def found(data: bytes | str) -> object:
        try:
            return documents.unparsed(data, Limits(bytes=100, depth=8))
        except DocumentTooLarge as error:
            return str(error), error.limit
        except DocumentError as error:
            return str(error), error.line, error.column

    assert found(text) == found(text.encode())


# -- kept ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"<a>\xc3\xa9</a>",
        codecs.BOM_UTF8 + b"<a>\xc3\xa9</a>",
        codecs.BOM_UTF8 + b"<?xml version='1.0' encoding='utf-8'?>\n<a>\xc3\xa9</a>",
        b'<?xml version="1.0" encoding="ISO-8859-1" standalone=\'yes\' ?>\r\n\r\n<a>\xe9</a>',
        b"<?xml version='1.0' encoding='windows-1252'?><a>\xe9</a>",
        "<a>é</a>".encode("utf-16"),
        codecs.BOM_UTF16_BE + "<?xml version='1.0' encoding='utf-16'?><a>é</a>".encode("utf-16-be"),
        "<?xml version='1.0' encoding='UTF-16'?><a>é</a>".encode("utf-16-le"),
        "<a>é</a>".encode("utf-32"),
        # A tool transcoded the bytes and left the declaration: the mark is right.
        codecs.BOM_UTF8 + b"<?xml version='1.0' encoding='latin-1'?><a>\xc3\xa9</a>",
    ],
)
def test_mark_declaration_and_encoding_are_gone_from_what_is_kept(data: bytes) -> None:
    assert normalise(data, LIMITS).lstrip("\n") == "<a>é</a>"
    assert parse(data, LIMITS).text == "é"


def test_everything_else_is_kept_as_it_was_uploaded() -> None:
    text = (
        "\n<!-- before --><?pi x?>\r\n<a  b = '1'><![CDATA[<]]>&amp;&#233;\r\n</a ><!-- after -->\n"
    )
    assert normalise(text.encode(), LIMITS) == text
    assert normalise(b"<?xml version='1.0'?>" + text.encode(), LIMITS) == text


@pytest.mark.parametrize("above", ["", "<?xml version='1.0'?>\r\n", "<?xml\nversion='1.0'\n?>\n\n"])
@pytest.mark.parametrize("doctype", ["", "<!DOCTYPE\na\nSYSTEM 'a.dtd'>\n"])
def test_what_is_kept_has_the_lines_of_what_was_uploaded(above: str, doctype: str) -> None:
    text = f"{above}{doctype}<list>\n<node/></list>"
    composed = documents.compose({"lshw": normalise(text.encode(), LIMITS)})
    assert composed.getroot()[0].sourceline == text.count("\n") + 1


def test_what_the_fleet_generator_makes_is_kept_unchanged() -> None:
    for node in generate(20, seed=3):
        for xml in node.probes.values():
            assert normalise(xml.encode(), LIMITS) == xml


# -- composed --------------------------------------------------------------------------------------


def content(root: etree._Element) -> list[object]:
    return [(e.tag, dict(e.attrib), e.text, e.tail) for e in root.iter("*")]


def expanded(probes: dict[str, str]) -> list[str]:
    """The names of the composed document, which as text says the same."""
    root = compose(probes).getroot()
    assert content(etree.fromstring(compose_xml(probes))) == content(root)
    return [element.tag for element in root.iter("*")]


def test_the_lshw_probe_alone_is_the_document_as_it_is() -> None:
    text = '<!-- c --><list xmlns:p="u"><p:node id="a"/><node xmlns="v"/></list>'
    assert expanded({"lshw": text}) == ["list", "{u}node", "{v}node"]
    assert compose_xml({"lshw": text}) == text


def test_other_probes_follow_by_name_each_in_its_namespace() -> None:
    probes = {"lldp": "<lldp><id t='1'/></lldp>", "lshw": "<node><a/></node>", "ipmi-2": "<a/>"}
    assert expanded(probes) == ["node", "a", "{ipmi-2}a", "{lldp}lldp", "{lldp}id"]
    identifier = compose(probes).find(".//{lldp}id")
    assert identifier is not None
    assert identifier.attrib == {"t": "1"}


def test_a_node_without_lshw_has_an_empty_list_for_a_root() -> None:
    assert expanded({}) == ["list"]
    assert expanded({"lldp": "<a/>"}) == ["list", "{lldp}a"]


def test_elements_of_another_namespace_stay_there() -> None:
    probe = (
        '<q xmlns:p="u"><p:w><e xmlns="" p:k="1" k="2"/></p:w><f xmlns="z"><g xmlns=""/></f></q>'
    )
    names = expanded({"lshw": "<list/>", "x": probe})
    assert names == ["list", "{x}q", "{u}w", "{x}e", "{z}f", "{x}g"]
    moved = compose({"x": probe}).find(".//{x}e")
    assert moved is not None
    assert moved.attrib == {"{u}k": "1", "k": "2"}


def test_a_default_namespace_of_the_lshw_root_does_not_reach_other_probes() -> None:
    probes = {"lshw": '<list xmlns="u"><a/></list>', "x": "<b/>"}
    assert expanded(probes) == ["{u}list", "{u}a", "{x}b"]


@pytest.mark.parametrize(
    "probe",
    [
        "<b/>",
        "<b />",
        "<b\n c='1'/>",
        "<b></b>",
        "<!-- <a> --><?p <a>?> \n<b/><!-- after -->",
        "<b>says xmlns</b>",
    ],
)
def test_the_root_of_a_probe_is_found_however_it_is_written(probe: str) -> None:
    assert expanded({"lshw": "<list>text</list>", "x": probe}) == ["list", "{x}b"]


def test_the_deepest_document_that_is_accepted_can_be_composed() -> None:
    deep = "<a>" * 255 + "</a>" * 255
    limits = Limits(bytes=1 << 20, depth=255)
    probes = {name: normalise(deep.encode(), limits) for name in ("lshw", "lldp")}
    assert compose(probes).xpath("count(//*)") == 510
    assert compose_xml(probes).count("<a") == 510


def test_composition_expands_no_entity_even_in_text_that_was_never_checked() -> None:
    text = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
    root = documents.compose({"lshw": text}).getroot()
    assert "".join(root.itertext(etree.Element)) == ""
