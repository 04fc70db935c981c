"""Exceptions and warnings.

    DetconfError                 base of everything detconf raises on purpose
    ├── ProfileError             a profile, knob, policy or value that cannot be used
    ├── LateError                apply(on_late="error") and a setting came too late
    └── TargetError              a function, script or result that cannot be verified
    DetconfWarning               base of the warnings

The types are API; their texts are not.
"""

from __future__ import annotations


class DetconfError(Exception):
    """Base of all errors raised on purpose. Its text says what, what was received, what is accepted, what to do."""


class ProfileError(DetconfError):
    """A profile, knob, policy or value cannot be used as given."""


class LateError(DetconfError):
    """A wanted setting came too late and the caller asked for an error; everything has been put back."""


class TargetError(DetconfError):
    """A function, script or result cannot be run or compared."""


class DetconfWarning(UserWarning):
    """Something was asked for and is not in force, or could not be put back."""
