"""Recorded contractions that cannot be computed again as a whole, such as convolutions: held against their terms, on sampled elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from detconf.auditing.recordings.recomputing import Again
from detconf.auditing.sums.orders import NEAR
from detconf.auditing.sums.summing import rms
from detconf.auditing.sums.terms import recipe
from detconf.shadows.formats import ROUNDINGS, unit
from detconf.shadows.study import Operation, Study


def sampled(operation: Operation, study: Study) -> Again | None:
    """The error of an operation, in units of the accumulation of its terms in its own dtype; None where these are not found.

    Args:
        operation: of a recording, whose shadows are its real arrays.
        study: that it is of.
    """
    write = operation.writes[0] if operation.writes else None
    found = recipe(operation, write.shadow, NEAR) if write is not None and write.shadow is not None else None
    terms = found.real(study) if found else None
    if write is None or found is None or terms is None or not unit(write.dtype):
        return None
    real = np.asarray(write.shadow, np.float64).reshape(-1)[found.places]
    size = np.maximum(unit(write.dtype) * np.sqrt(np.sum(np.square(terms.products), axis=0)), 1e-300)

    def left(exact: Any) -> float:
        return rms((real - exact) / size)

    forms = {form: left(terms.rounded(form).exact) for form in ROUNDINGS if form != "float32"}
    form, ratio = min(forms, key=forms.__getitem__), left(terms.exact)
    return Again(ratio, form, rms(real - terms.exact) / (rms(real) or 1.0), forms[form])
