"""A vocabulary about as large as one is kept, in which every element may stand in every other."""

from __future__ import annotations

from random import Random

from tagmill_expressions.vocabulary import MAX_KEPT, Element, State, Values, Vocabulary


def large() -> Vocabulary:
    rng = Random(1)

    def words(count: int) -> dict[str, int]:
        return {"".join(rng.choices("abcdefghij", k=rng.randrange(3, 90))): 1 for _ in range(count)}

    vocabulary = Vocabulary()
    vocabulary.documents = 1000
    names = [*words(92), "node", "list", "a", "b", "c", "x"]
    states = [State(name, nested) for name in names for nested in (False, True)]
    for state in states:
        attributes = {name: Values(words(3), has_text=True) for name in ("id", "class", "a")}
        vocabulary.elements[state] = Element(10, set(states), attributes)
    for state in (State("node", True), State("a", False), State("b", False)):
        for name in ("id", "serial"):
            values = vocabulary.elements[state].attributes
            values[name] = Values({f"{'w' * 80}{word[:15]}": 1 for word in words(500)})
    vocabulary.roots = {State("list", False): 500, State("node", False): 500}
    vocabulary.documents = 1000
    # As the fleet's is: merged of what was learnt, within its bound.
    merged = Vocabulary.load(vocabulary.dump())
    kept = sum(len(element.children) for element in merged.elements.values())
    assert MAX_KEPT // 2 < kept < MAX_KEPT
    return merged
