"""The vocabulary that the kernel collected, as tagmill_expressions.vocabulary has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tagmill_expressions.vocabulary import Element, State, Values, Vocabulary

if TYPE_CHECKING:
    from tagmill_kernel import _Place, _Values


def build(documents: int, places: list[_Place]) -> Vocabulary:
    """What `tagmill_kernel.PartitionImage.vocabulary` answers, within the bounds."""
    states = [State(place[0], place[1]) for place in places]
    whole = Vocabulary()
    whole.documents = documents
    for state, place in zip(states, places, strict=True):
        _, _, count, roots, children, attributes, text, opaque = place
        if roots:
            whole.roots[state] = roots
        if not count:
            continue
        whole.elements[state] = Element(
            documents=count,
            children={states[child] for child in children},
            attributes={name: _values(values) for name, values in attributes},
            text=_values(text, opaque=opaque),
        )
    bounded = Vocabulary()
    bounded.merge(whole)
    return bounded


def _values(found: _Values, *, opaque: bool = False) -> Values:
    kept, has_long, has_number, has_text = found
    return Values(dict(kept), 0, has_long, has_number, has_text, opaque)
