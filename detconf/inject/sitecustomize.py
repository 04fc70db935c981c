"""Put DETCONF_PROFILE in force before an unmodified script runs, then run the user's own sitecustomize.

This folder stands first on the PYTHONPATH of a command started by detconf. `-S`, `-E` and `-I` switch it off; the
environment variables still hold then.
"""

import os
import sys


def _is_first():
    """Is this the first process of a command, or of one rank of it? Only these are seeded.

    A worker that drew what its parent draws would be a new fault. A rank is another matter: what started it only starts.
    """
    own, mark = str(os.getpid()), os.environ.get("DETCONF_SEEDED", "").split()
    rank = ["rank"] if os.environ.get("RANK") and os.environ.get("WORLD_SIZE") else []
    if mark and mark[0] != own and (not rank or rank[0] in mark):
        return False
    os.environ["DETCONF_SEEDED"] = " ".join([own, *rank])
    return True


def _configure():
    try:
        from detconf.session import start

        start(seeded=_is_first())
    except Exception as error:  # noqa: BLE001  # whatever fails here, the user's program must still start
        sys.stderr.write(f"detconf: the profile could not be put in force: {error}\n")


_DOORS = (
    # variable, module whose start_from_environment() it asks for, what is said where that fails
    ("DETCONF_RECORD", "detconf.recording.launching", "nothing is recorded"),
    ("DETCONF_RECORD_COMPARISONS", "detconf.auditing.assertions.noting", "comparisons of tests are not recorded"),
    ("DETCONF_STEPS", "detconf.stopping", "the program is not stopped early"),
    ("DETCONF_EVALUATE", "detconf.evaluating", "training mode is not overruled"),
    ("DETCONF_RESEED", "detconf.reseeding", "seeds are not fixed"),
    ("DETCONF_AUDIT", "detconf.auditing.assertions.attending", "the program is not audited"),
)


def _start(module, otherwise):
    try:
        from importlib import import_module

        import_module(module).start_from_environment()
    except Exception as error:  # noqa: BLE001  # as above
        sys.stderr.write(f"detconf: {otherwise}: {error}\n")


def _hand_over():
    """Import the sitecustomize that this one stands in front of."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)  # importlib fails where a module takes itself away


if os.environ.get("DETCONF_PROFILE"):
    _configure()
for _variable, _module, _otherwise in _DOORS:
    if os.environ.get(_variable):
        _start(_module, _otherwise)
_hand_over()
