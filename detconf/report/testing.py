"""What the pytest plugin says, in the manner of `torch.testing.assert_close`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from detconf.agreement import Mismatch, Reruns, Verdict
from detconf.comparing.result import Comparison, Finding
from detconf.comparison import Kind
from detconf.report.comparison import comparison
from detconf.samples import Furthest

_SHOWN = 12
UPDATE = "pytest --detconf-update"


def reruns(result: Reruns, profile: str | None) -> str:
    """Why reruns of a test do not agree."""
    evidence, under = result.evidence, f" under {profile}" if profile else ""
    head = f"NOT repeatable{under}: {evidence.distinct} distinct results in {result.finished} runs of this test in one process"
    head += f", the last {len(result.labels)} with {', '.join(result.labels)}" if result.labels else ""
    if result.first is None:
        return head
    first, (one, other) = result.first, result.between
    origin = result.first.found.origin if result.first.found else ""
    lines = [
        head,
        "",
        f"first difference: {origin} {_array(first)}, run {one} (expected) against run {other}{_label(result, other)}",
        *_numbers(first),
    ]
    names = {place for place in evidence.places if len({digests.get(place) for digests in evidence.digests}) > 1}
    if len(names) > 1:
        lines.append(f"{len(names)} of {len(evidence.places)} results differ; this is the first in the order of recording")
    return "\n".join(lines)


def _label(result: Reruns, run: int) -> str:
    label = result.label(run)
    return f" ({label})" if label else ""


def nothing(profile: str | None) -> str:
    """Why a test without results fails."""
    under = f" under {profile}" if profile else ""
    return f"nothing was compared{under}: the test returned and published not a single byte. Return arrays, or call detconf.publish(name, value)."


def golden(name: str, test: str, file: str, verdict: Verdict) -> str:
    """Why a value does not agree with its golden."""
    lines = [f"golden {name!r} of {test} does not agree with {file}"]
    lines += [
        f"{word}: {', '.join(names)}"
        for word, names in (("recorded, and not here", verdict.missing), ("not recorded", verdict.extra))
        if names
    ]
    if verdict.first:
        lines += ["", f"first difference: {_array(verdict.first)}", *_numbers(verdict.first, verdict.bound), *_reach(verdict.first)]
    lines += ["", *_why(verdict)]
    if verdict.profiles[0] != verdict.profiles[1]:
        recorded, here = (f"under {each}" if each else "without a profile" for each in verdict.profiles)
        lines.append(f"It was recorded {recorded}, and this run is {here}.")
    return "\n".join([*lines, f"If the new value is the right one: {UPDATE}"])


def recording(name: str, test: str, file: str, result: Comparison) -> str:
    """Why what a test computed does not agree with its recording."""
    head = f"recording {name!r} of {test} does not agree with {file}"
    first = result.first
    said = "" if first is None else f"first operation: {first.divergence.name}{_where(first)}"
    return "\n".join([*filter(None, [head, said]), "", comparison(result, False), f"If the new one is right: {UPDATE}"])


def _where(first: Finding) -> str:
    found = first.divergence
    what = "" if found.step is None else f", step {found.step}"
    place = " ".join(filter(None, (found.scope, found.source)))
    return f"{what}, {first.verdict}{place and ': ' + place}"


def absent(name: str, test: str, file: str, kind: str = "golden") -> str:
    """Why there is nothing to compare a value with."""
    return f"there is no {kind} {name!r} of {test} in {file}. Record it: {UPDATE}"


def _why(verdict: Verdict) -> Iterator[str]:
    if not verdict.unlike:
        yield "Compared bit for bit: it was recorded on this class of machine."
        return
    facts = "; ".join(f"{name}: {recorded} recorded, {here} here" for name, (recorded, here) in verdict.unlike.items())
    yield f"It was recorded on another class of machine ({facts})."
    if verdict.bound:
        yield f"There a bound holds, on the recorded sample: rtol {verdict.bound.rtol:g}, atol {verdict.bound.atol:g}."
    else:
        yield "The bits may differ there, and no bound is stated: golden(name, value, rtol=…, atol=…) states one, and --detconf-update records it."


def _reach(first: Mismatch) -> Iterator[str]:
    """What the numbers above do not speak of."""
    rest = first.elements - first.compared
    if first.found is None and first.compared:
        yield f"The {first.compared} recorded values agree, and the digest of all {first.elements:,} elements does not."
    elif first.found is None:
        yield "The digest differs; of this type no values are recorded."
    elif rest and first.compared:
        yield f"Of the other {rest:,} elements only a digest is recorded: how far they are off is not known."


def _array(first: Mismatch) -> str:
    step = first.found.step if first.found else None
    return f"{first.name!r}{'' if step is None else f' (step {step})'}, {first.dtype}{list(first.shape)}"


def _numbers(first: Mismatch, bound: Any = None) -> Iterator[str]:
    found = first.found
    if found is None:
        return
    if found.kind is not Kind.BITS:
        yield from _kinds(first)
        return
    if found.scope or found.source:
        yield f"First operation: {found.scope} {found.source}".rstrip()
    if found.differing is not None and first.compared:
        share, of = found.differing / first.compared, "" if first.compared == first.elements else " sampled"
        yield f"Mismatched elements: {found.differing:,} / {first.compared:,}{of} ({share:.1%})"
    limits = (f" (up to {bound.atol:g} allowed)", f" (up to {bound.rtol:g} allowed)") if bound else ("", "")
    for word, greatest, limit in zip(("absolute", "relative"), (first.absolute, first.relative), limits, strict=True):
        if greatest:
            yield _greatest(word, greatest, limit)
    if found.max_ulp is not None:
        yield f"Greatest difference in representable numbers: {found.max_ulp:,} ULP"
    if found.values:
        yield f"First mismatched element: {found.values[0]} expected, {found.values[1]} found at index {found.index}"


def _greatest(word: str, greatest: Furthest, limit: str) -> str:
    return f"Greatest {word} difference: {greatest.value} at index {greatest.index}{limit}"


def _kinds(first: Mismatch) -> Iterator[str]:
    found = first.found
    if found and found.values:
        yield f"The {found.kind} differs: {found.values[0]} expected, {found.values[1]} found"
    elif found:
        yield {Kind.MISSING: "The second run did not give it", Kind.EXTRA: "Only the second run gave it"}[found.kind]


def summary(reports: Sequence[Mapping[str, Any]], workers: bool) -> list[str]:
    """One line for what was in force in all processes, and what has to be said beside it."""
    lines = []
    heads = Counter(report["headline"] for report in reports if report["headline"])
    for head, count in heads.items():
        where = (
            f" ({count} of {len(reports)} workers)" if workers and len(heads) > 1 else f" (in each of {count} workers)" if workers else ""
        )
        lines.append(head + where)
    for word, key in (("drifted", "drifted"), ("not in force", "bad")):
        rows = dict.fromkeys(row for report in reports for row in report[key])
        lines += [f"  {word}: {row}" for row in rows]
    written, sampled = ([row for report in reports for row in report[key]] for key in ("written", "sampled"))
    lines += [f"goldens recorded: {count} in {file}" for file, count in sorted(Counter(written).items())]
    if sampled:
        shown = ", ".join(sampled[:_SHOWN]) + (f" and {len(sampled) - _SHOWN} more" if len(sampled) > _SHOWN else "")
        lines.append(f"compared on a sample only, within the stated bound (another class of machine): {shown}")
    return lines
