"""How many servers and workers a fleet needs.

- `costs`: unit costs.
- `capacity`: the formula and the plan.
- `simulation`: a simulation that checks the formula.
"""

__all__ = ["capacity", "costs", "simulation"]
