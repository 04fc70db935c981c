"""NumPy's knobs. Its BLAS stands in `native`."""

from __future__ import annotations

from detconf.access import Env, Rng
from detconf.frameworks.base import Framework
from detconf.frameworks.numpy.controls import disable_above
from detconf.knob import Knob, Pattern, Span, Timing
from detconf.late import Imported

_HERE = "detconf.frameworks.numpy.controls"
_SIMD = "https://numpy.org/doc/stable/reference/simd/build-options.html#runtime-dispatch"
_NAMES = Pattern(r"[A-Z0-9_]+([ ,]+[A-Z0-9_]+)*", "names of CPU features, separated by spaces")

FRAMEWORK = Framework(
    name="numpy",
    module="numpy",
    knobs=(
        Knob(
            name="env.NPY_DISABLE_CPU_FEATURES",
            framework="numpy",
            access=Env("NPY_DISABLE_CPU_FEATURES", effective=f"{_HERE}:disabled_features"),
            accepts=_NAMES,
            serves={"cpu_dispatch": disable_above},
            timing=Timing.BEFORE_IMPORT,
            late=Imported("numpy"),
            governs="x86",
            summary="Instruction sets that NumPy's kernels must not use.",
            docs=_SIMD,
            undo="NumPy keeps what it read",
            note="Groups since NumPy 2.4 (X86_V4), single sets before (AVX512F); an unknown name is ignored, a baseline name fails the import.",
        ),
        Knob(
            name="env.NPY_ENABLE_CPU_FEATURES",
            framework="numpy",
            access=Env("NPY_ENABLE_CPU_FEATURES"),
            accepts=_NAMES,
            serves={"cpu_dispatch": {"x86-64-v3": None}},
            timing=Timing.BEFORE_IMPORT,
            late=Imported("numpy"),
            governs="x86",
            summary="The only instruction sets that NumPy's kernels may use; cannot stand beside NPY_DISABLE_CPU_FEATURES.",
            docs=_SIMD,
            undo="NumPy keeps what it read",
        ),
        Knob(
            name="numpy.random.seed",
            framework="numpy",
            access=Rng(f"{_HERE}:GENERATOR", "numpy"),
            accepts=Span(0, 4294967295),
            serves={"seed": int},
            summary="NumPy's legacy global generator.",
            docs="https://numpy.org/doc/stable/reference/random/generated/numpy.random.seed.html",
            watched=False,
            note="Generators from default_rng() are never reached by a global seed.",
        ),
    ),
    refused="detconf.frameworks.numpy.refused",
    seeds="detconf.frameworks.numpy.seeds:fixed",
    tensors="detconf.frameworks.numpy.tensors",
    machine=f"{_HERE}:machine",
    tracer="detconf.frameworks.numpy.trace",
    shadow="detconf.frameworks.numpy.shadow",
    widening="detconf.frameworks.numpy.widening:widening",
    sums="detconf.frameworks.numpy.sums",
)
