"""What people and their tokens may do: a role is a set of rights.

| role | may |
|---|---|
| viewer | read |
| uploader | create and change nodes and their documents, and nothing else, not even read |
| operator | both, and change and delete tags, nodes and assignments, rebuild |
| admin | also change clusters, roles, worker tokens and users' tokens |

A superuser is an admin. What a token may do is what its role and its user's role have in common.
"""

from __future__ import annotations

import enum


class Role(enum.Flag):
    """`needed in role` says whether a role has the rights of another; `&` is what two share."""

    NONE = 0
    VIEWER = 1
    UPLOADER = 2
    OPERATOR = 7
    ADMIN = 15

    @property
    def label(self) -> str:
        """`viewer`; `viewer+uploader` for somebody who is in both groups."""
        return (self.name or Role.NONE.name or "").lower().replace("|", "+")

    @classmethod
    def parse(cls, label: str) -> Role:
        """The inverse of `label`. Raises KeyError."""
        found = cls.NONE
        for name in label.split("+"):
            found |= cls[name.upper()]
        return found


# A role is membership in the Django group of its name.
GROUPS: dict[str, Role] = {
    role.label: role for role in (Role.VIEWER, Role.UPLOADER, Role.OPERATOR, Role.ADMIN)
}
# A user may have one of these in some clusters alone; what an admin does concerns all of them.
IN_CLUSTERS = (Role.VIEWER.label, Role.UPLOADER.label, Role.OPERATOR.label)
