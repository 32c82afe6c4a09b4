"""What is no message is refused, with the place in it."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import orjson
import pytest

from tagmill_wire import messages
from tagmill_wire.messages import (
    Batch,
    BatchNode,
    Completion,
    Definition,
    GiveUp,
    LeaseAnswer,
    LeaseRequest,
    MatchResult,
    Message,
    NotJSON,
    PartitionResult,
    Register,
    UnknownField,
    WireError,
    dump,
    load,
)

RESULT = {
    "lease": "l",
    "partition": 1,
    "rev": 2,
    "matches": [{"expression": 3, "members": "AA=="}],
    "failures": [],
    "documents": 4,
    "seconds": 0.5,
}


def completion(**changed: Any) -> bytes:
    return orjson.dumps({"worker": "w", "incarnation": "i", "results": [{**RESULT, **changed}]})


def test_a_message_survives_the_wire() -> None:
    result = PartitionResult("l", 1, 2, [MatchResult(3, "AA==", base_rev=1)], [], 4, 0.5)
    sent = Completion("w", "i", [result])
    assert load(Completion, dump(sent)) == sent
    answer = LeaseAnswer([], {"7": Definition("//node", {"a": "urn:a"})})
    assert load(LeaseAnswer, dump(answer)) == answer
    batch = Batch(1, 2, [BatchNode(0, 1, None), BatchNode(1, 2, {"lshw": "<a>é</a>"})], None)
    assert load(Batch, dump(batch)) == batch


def test_a_field_with_a_default_may_be_missing() -> None:
    assert load(LeaseRequest, b'{"worker": "w"}') == LeaseRequest("w", 1, [], None)


def test_a_whole_number_is_a_number() -> None:
    found = load(Completion, completion(seconds=2)).results[0].seconds
    assert (found, type(found)) == (2.0, float)


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"rev": "2"}, "results[0].rev"),
        ({"rev": True}, "results[0].rev"),
        ({"rev": 2.0}, "results[0].rev"),
        ({"rev": None}, "results[0].rev"),
        ({"rev": 2**63}, "results[0].rev"),
        ({"rev": -(2**63) - 1}, "results[0].rev"),
        ({"seconds": True}, "results[0].seconds"),
        ({"seconds": "1"}, "results[0].seconds"),
        ({"lease": 1}, "results[0].lease"),
        ({"matches": {}}, "results[0].matches"),
        ({"matches": [{"expression": 1, "members": "", "base_rev": "1"}]}, "results[0].matches[0]"),
        ({"matches": [{"expression": 1}]}, "results[0].matches[0]"),
        ({"failures": [[]]}, "results[0].failures[0]"),
    ],
)
def test_nothing_is_converted(changed: dict[str, Any], path: str) -> None:
    body = b'{"worker":"w","incarnation":"i","results":[%s]}'
    # orjson writes no number beyond 64 bits.
    fields = {**RESULT, **changed}
    text = ",".join(f'"{name}":{_json(value)}' for name, value in fields.items())
    with pytest.raises(WireError) as caught:
        load(Completion, body % f"{{{text}}}".encode())
    assert caught.value.path.startswith(path)
    assert str(caught.value).startswith(path)


def _json(value: Any) -> str:
    return str(value) if type(value) is int else orjson.dumps(value).decode()


@pytest.mark.parametrize("name", ["revs", "a` - at `$.b", "a` - at `$.b`", "", "\n"])
def test_an_unknown_field_is_named_and_so_is_what_it_is_in(name: str) -> None:
    with pytest.raises(UnknownField, match=r"^results\[0\]: ") as caught:
        load(Completion, completion(**{name: 1}))
    assert caught.value.path == "results[0]"
    assert name in caught.value.problem


def test_a_missing_field_is_named() -> None:
    with pytest.raises(WireError, match=r"^message: .*`reason`") as caught:
        load(GiveUp, b'{"worker": "w", "leases": []}')
    assert caught.value.path == ""


def test_the_values_of_an_object_are_checked() -> None:
    body = {"partition": 1, "rev": 2, "nodes": [{"slot": 0, "rev": 1, "probes": {"lshw": 1}}]}
    with pytest.raises(WireError) as caught:
        load(Batch, orjson.dumps({**body, "next": None}))
    assert caught.value.path.startswith("nodes[0].probes")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"worker": "w"} x', b'{"worker": "\xff"}', b'{"worker": "\\ud800"}', b"nonsense"],
)
def test_what_is_no_json_says_so(body: bytes) -> None:
    with pytest.raises(NotJSON, match=r"^message: not JSON"):
        load(LeaseRequest, body)


@pytest.mark.parametrize("body", [b"[]", b"3", b'"x"', b"null"])
def test_a_message_is_an_object(body: bytes) -> None:
    with pytest.raises(WireError) as caught:
        load(LeaseRequest, body)
    assert not isinstance(caught.value, NotJSON)


def test_a_message_is_not_changed() -> None:
    said = Register("w", "lxml", "1")
    with pytest.raises(AttributeError):
        said.name = "x"  # type: ignore[misc]
    assert {said, Register("w", "lxml", "1")} == {said}


def test_every_message_is_strict_and_every_number_bounded() -> None:
    found = [
        kind
        for _, kind in inspect.getmembers(messages, inspect.isclass)
        if issubclass(kind, Message) and kind is not Message
    ]
    assert len(found) > 15
    for kind in found:
        made = msgspec.inspect.type_info(kind)
        assert isinstance(made, msgspec.inspect.StructType)
        assert made.forbid_unknown_fields
        assert kind.__struct_config__.frozen
        for field in made.fields:
            _assert_bounded(field.type)


def _assert_bounded(kind: msgspec.inspect.Type) -> None:
    match kind:
        case msgspec.inspect.IntType():
            assert (kind.ge, kind.le) == (-(2**63), 2**63 - 1)
        case msgspec.inspect.UnionType():
            for arm in kind.types:
                _assert_bounded(arm)
        case msgspec.inspect.ListType():
            _assert_bounded(kind.item_type)
        case msgspec.inspect.DictType():
            _assert_bounded(kind.value_type)
