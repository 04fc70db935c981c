"""The sides draw different numbers, and differ in one thing more: shown with the reference's draws in the candidate's place."""

from __future__ import annotations

from detconf.auditing.attempts.culprits import parted, repaired
from detconf.auditing.attempts.tying import tied
from detconf.auditing.question import Finding, Question
from detconf.auditing.result import Evidence


def besides(question: Question) -> Finding | None:
    """What parts the sides once both have the same draws? Other draws alone do not say so."""
    a, b = question.exact_a, question.exact_b
    if a is None or b is None or not a.study.drawn or not b.study.drawn:
        return None
    same = tied(a, b, question.differing)
    if not same.amendments:
        return None
    other = question.amended(same.amendments)
    found = repaired(other) or (parted(other) if same.whole else None)
    if found is not None:
        words = "the sides draw different numbers as well: the rest was shown with the reference's draws in place of the candidate's"
        found.evidence.append(Evidence(words, len(same.amendments)))
    return found
