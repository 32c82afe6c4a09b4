"""Tags: what people define, and what they see of it.

- `models`: tags, manual assignments, previews and rebuilds.
- `tags`, `conversion`, `assignments`: tags are made, changed, converted and assigned by hand.
- `rebuilds`, `previews`: evaluations that somebody asked for, and their progress.
- `publishing`, `partial`: a pending expression takes the place of the published one.
- `ending`: what results publish and end.
- `failures`: failed evaluations, and which of them count.
- `freshness`, `waiting`: the state of a tag, and what it waits for.
- `members`, `places`, `changes`: the nodes of a tag, and those that it gained and lost.
- `sizes`: how many nodes a tag had over time.
- `linting`, `explaining`: warnings about a definition, and why a node matches it.
"""

__all__ = [
    "assignments",
    "changes",
    "conversion",
    "ending",
    "explaining",
    "failures",
    "freshness",
    "linting",
    "members",
    "models",
    "partial",
    "places",
    "previews",
    "publishing",
    "rebuilds",
    "revisions",
    "sizes",
    "tags",
    "waiting",
]
