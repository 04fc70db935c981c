"""NumPy's controls that are no knobs, each with the reason."""

from __future__ import annotations

from detconf.frameworks.base import Refused

REFUSED = (
    Refused(("numpy.seterr", "numpy.errstate"), "warnings; no value changes"),
    Refused(("numpy.random.default_rng",), "a generator of the program's own; no global seed reaches it"),
    Refused(
        ("threadpoolctl.threadpool_limits",),
        "writes the thread counts of OpenBLAS and OpenMP, which are knobs; does not reach Paddle's MKL",
    ),
)
