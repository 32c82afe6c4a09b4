"""How many servers and workers a fleet needs.

- `costs`: unit costs.
- `demand`: what is asked of a plan.
- `fitting`: unit costs from measurements.
- `tiers`: those of images, from `bench tiers`.
- `capacity`: the formula.
- `plan`: the plan, and what it assumes.
- `simulation`: a simulation that checks the formula.
"""

__all__ = ["capacity", "costs", "demand", "fitting", "plan", "simulation", "tiers"]
