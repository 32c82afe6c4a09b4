"""Bytes of an uploaded XML document to text, by XML 1.0's appendix F.

A byte order mark wins over the declaration: tools that transcode a file leave its declaration as
it was.
"""

from __future__ import annotations

import codecs
import re
from typing import NoReturn

from tagmill_expressions.errors import DocumentError

# Longest first: UTF-32's mark begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MARK = "\ufeff"
# How `<?` begins without a mark.
_WIDE = ((b"<\x00?\x00", "utf-16-le"), (b"\x00<\x00?", "utf-16-be"))
# Python also has codecs that are no character sets (zlib, idna, unicode_escape): these are.
_NAMES = ("utf-8", "ascii", "koi8-r", "koi8-u", "gbk", "gb18030", "big5", "euc-jp", "euc-kr")
_WINDOWS = tuple(f"cp{page}" for page in range(1250, 1259))
_ISO_8859 = tuple(f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17)))
_SUPPORTED = frozenset(
    codecs.lookup(name).name for name in (*_NAMES, "shift_jis", *_WINDOWS, *_ISO_8859)
)

_QUOTED = r"""(?:"([^"<>&]*)"|'([^'<>&]*)')"""
# XML's white space; `\s` has more.
_S = r"[ \t\r\n]"
_DECLARATION = re.compile(
    rf"<\?xml{_S}+version{_S}*={_S}*{_QUOTED}(?:{_S}+encoding{_S}*={_S}*{_QUOTED})?"
    rf"(?:{_S}+standalone{_S}*={_S}*{_QUOTED})?{_S}*\?>{_S}*"
)
# A declaration is some 60 characters; more than this is none.
_DECLARATION_MAX = 400


def decode(data: bytes) -> tuple[str, int]:
    """The text without its mark, and where it begins after the declaration and white space.

    Raises DocumentError for an encoding that is unknown or that the bytes do not follow, and for
    characters that no database stores.
    """
    text = _decode(data)
    if text.startswith(_MARK):
        # libxml2 would skip it, and whoever looks at what comes first would not.
        refuse("a second byte order mark: remove it", text, 0)
    nul = text.find("\0")
    if nul >= 0:
        refuse("a NUL character is not allowed in XML: remove it", text, nul)
    if not text.startswith("<?xml") or text[5:6] not in {" ", "\t", "\r", "\n"}:
        return text, 0
    declaration = _DECLARATION.match(text)
    if declaration is None:
        refuse('the XML declaration is malformed: write <?xml version="1.0"?>', text, 0)
    return text, declaration.end()


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def refuse(message: str, text: str, offset: int) -> NoReturn:
    raise DocumentError(message, *position(text, offset))


def _decode(data: bytes) -> str:
    for mark, name in _MARKS:
        if data.startswith(mark):
            data, encoding = data[len(mark) :], name
            break
    else:
        encoding = _declared(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, "replace")
        shown = data[error.start : error.end].hex(" ")
        hint = "save the document as UTF-8, or declare the encoding that it has"
        refuse(f"the bytes {shown} are not {encoding.upper()}: {hint}", before, len(before))


def _declared(data: bytes) -> str:
    for beginning, name in _WIDE:
        if data.startswith(beginning):
            return name
    declaration = _DECLARATION.match(data[:_DECLARATION_MAX].decode("latin-1"))
    declared = declaration and (declaration[3] or declaration[4])
    if not declared:
        return "utf-8"
    try:
        name = codecs.lookup(declared).name
    except (LookupError, ValueError):
        name = ""
    if name not in _SUPPORTED:
        # UTF-16 gets here too: bytes in which the declaration reads as ASCII are not UTF-16.
        raise DocumentError(
            f"the encoding {declared!r} is unknown or not what the bytes are in: save the document "
            "as UTF-8",
            1,
            1,
        )
    return name
