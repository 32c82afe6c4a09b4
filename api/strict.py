"""What a request asks for beyond its body: refused where it is not understood, never ignored. For
Django's views and the native endpoints alike."""

from __future__ import annotations

from collections.abc import Container, Iterable

from api.problems import ConditionNotSupported, NotAcceptable, UnknownField, UnsupportedMedia

# If-Modified-Since and If-None-Match of a GET may be passed over: answering in full is right.
READING = ("If-Match", "If-Unmodified-Since")
WRITING = ("If-Match", "If-None-Match", "If-Unmodified-Since")
UNDERSTOOD = frozenset({"If-Match", "If-None-Match"})


def refuse_unknown(given: Iterable[str], known: Iterable[str], kind: str) -> None:
    """Raises UnknownField."""
    allowed = sorted(known)
    for name in given:
        if name not in allowed:
            names = ", ".join(allowed) or "none"
            raise UnknownField(f"unknown {kind} {name!r}; known: {names}", field=name)


def refuse_conditions(method: str, headers: Container[str], *, understood: bool) -> None:
    """A condition that nobody checks must not look as if it held. `understood`: the method checks
    If-Match and If-None-Match here. Raises ConditionNotSupported."""
    checked = UNDERSTOOD if understood else frozenset()
    for name in READING if method in {"GET", "HEAD", "OPTIONS"} else WRITING:
        if name in headers and name not in checked:
            raise ConditionNotSupported(
                f"{name} is not understood with {method} at this address: docs/api.md says where "
                "it is"
            )


def refuse_encoding(coding: str | None, *understood: str) -> None:
    """Raises UnsupportedMedia."""
    if coding is not None and coding.strip().lower() not in {"", "identity", *understood}:
        named = " or ".join((*understood, "as it is"))
        raise UnsupportedMedia(f"Content-Encoding {coding!r} is not understood: send it {named}")


def refuse_accept(accept: str | None, *offered: str) -> None:
    """`accept`: the Accept header, without weights. Raises NotAcceptable."""
    taken = {item.partition(";")[0].strip() for item in (accept or "").lower().split(",")} - {""}
    ranges = {"*/*", *offered, *(f"{each.partition('/')[0]}/*" for each in offered)}
    if taken and not taken & ranges:
        names = " or ".join(offered)
        raise NotAcceptable(f"this address does not offer what Accept asks for: it has {names}")


def refuse_type(content_type: str | None, *wanted: str) -> None:
    """Raises UnsupportedMedia."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type not in wanted:
        names = " or ".join(wanted)
        raise UnsupportedMedia(f"Content-Type is {media_type or 'missing'!r}: send {names}")
