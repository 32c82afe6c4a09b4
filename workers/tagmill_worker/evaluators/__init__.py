"""The child process that evaluates, and the evaluators that it can use.

- `base`: the protocol of evaluators, and which of them are there.
- `process`: the child process as the worker sees it; `child_process` has its options.
- `passes`: what it is asked, and its answers.
- `saved`: images of pages in files.
"""

__all__ = ["base", "child_process", "passes", "process", "saved"]
