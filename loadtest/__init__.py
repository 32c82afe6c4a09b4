"""Benches, the capacity planner, and the demo.

A room here imports only the rooms after it: `benches`, `report`, `planner`, `references`, `rig`.
`bench` is what every bench is made of. `demo` is an app of its own, for it needs neither simpy nor
matplotlib (`requirements-bench.txt`), without which the others are not installed.
"""

__all__ = ["bench", "benches", "demo", "planner", "references", "report", "rig"]
