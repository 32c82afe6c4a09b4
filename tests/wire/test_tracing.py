"""Places in traces: text from outside, and nothing at all while traces are off."""

from __future__ import annotations

import pytest

from tagmill_wire import tracing

PLACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_while_it_is_off_there_are_no_spans() -> None:
    tracing.start("anything", "", 1.0)
    assert not tracing.is_on()
    assert tracing.begin("one", PLACE, is_root=True) is None
    with tracing.at(PLACE), tracing.span("one", tracing.here()) as span:
        assert (span, tracing.here()) == (None, "")
    assert tracing.here() == ""


@pytest.mark.parametrize("place", ["", "00-0-0-01", PLACE[:-1] + "0", PLACE.upper(), PLACE + "\n"])
def test_what_nobody_sees_or_nobody_can_read_is_not_recorded(place: str) -> None:
    assert not tracing.is_recorded(place)
    assert tracing.is_recorded(PLACE)


def test_another_thread_goes_on_where_this_one_is() -> None:
    with tracing.at(PLACE):
        carried = tracing.carrying(tracing.here)
    assert (carried(), tracing.here()) == (PLACE, "")
    assert tracing.carrying(tracing.here) is tracing.here


def test_a_line_of_the_log_says_its_trace() -> None:
    assert tracing.named(None, "", {}) == {}
    with tracing.at(PLACE):
        assert tracing.named(None, "", {"event": "x"})["trace_id"] == PLACE.split("-")[1]
