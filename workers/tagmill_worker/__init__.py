"""The worker: it leases partitions, evaluates them and sends the results.

- `command`: the program `tagmill-worker`.
- `settings`: its options.
- `evaluators`: the child process that evaluates, and the evaluators that it can use.
- `completer`, `pages`, `runtime`: bounds and formats that simulated workers share; how they plan,
  and what they say: `job`, `sets`, `store`.
- `cache`, `client`, `metrics`: what the bench of tiers measures.
"""

__all__ = [
    "cache",
    "client",
    "command",
    "completer",
    "evaluators",
    "job",
    "metrics",
    "pages",
    "runtime",
    "sets",
    "settings",
    "store",
]
