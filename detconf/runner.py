"""`python -m detconf.runner FILE FUNCTION`: one run of a function in a process of its own, for the verifier.

The function finds what a script would: `sys.argv[0]` is FILE and `sys.path[0]` its folder. A profile, where
DETCONF_PROFILE names one, is in force before FILE is loaded. What the function returns goes to the folder that
DETCONF_PUBLISH names.
"""

from __future__ import annotations

import os
import sys


def main(file: str, function: str) -> None:
    """Run `function` of `file` and record what it returns."""
    sys.argv = [file]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(file))  # in place of the working folder, which `-m` put there
    if os.environ.get("DETCONF_PROFILE"):
        from detconf.session import apply

        apply()
    from detconf.targets import ROWS, call, load_function  # inspect and importlib load after the profile is in force

    count = os.environ.pop(ROWS, "")  # for this function, not for what it starts
    call(load_function(f"{file}:{function}"), slice(0, int(count)) if count else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
