"""Benches, the capacity planner, and the demo.

A room here imports only the rooms after it: `benches`, `report`, `planner`, `references`, `rig`.
`bench` is what every bench is made of; `demo` keeps what the demo needs between runs.
"""

__all__ = ["bench", "benches", "demo", "planner", "references", "report", "rig"]
