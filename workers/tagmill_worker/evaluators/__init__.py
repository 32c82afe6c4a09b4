"""The child process that evaluates, and the evaluators that it can use.

- `base`: the protocol of evaluators, and which of them are there.
- `process`: the child process as the worker sees it.
"""

__all__ = ["base", "process"]
