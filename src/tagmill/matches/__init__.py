"""Expressions, and the matches that say on which slots each of them holds.

It knows neither tags nor workers.

- `models`: expressions, matches and their changes.
- `expressions`: the immutable expression that stands for a definition.
- `expression_sets`: what leases and completions name in place of definitions.
- `matches`: results are applied by compare-and-set.
- `comparing`: which stored matches new verdicts change.
- `flips`: members that change, stored and recorded; verdicts on changed slots, all at once.
- `staleness`: the one place that decides which matches are fresh.
- `verdicts`: what the kernel says of single documents, in this process.
"""

__all__ = [
    "comparing",
    "expression_sets",
    "expressions",
    "flips",
    "matches",
    "models",
    "staleness",
    "verdicts",
]
