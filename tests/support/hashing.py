"""A way to store passwords that takes no time, in the form that servers store them in."""

from __future__ import annotations

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class Quick(PBKDF2PasswordHasher):
    iterations = 1
