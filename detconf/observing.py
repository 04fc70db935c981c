"""What an unmodified training shows without its help: its state at the end of every optimizer step.

A recording of level "state" is made of each run, by detconf's sitecustomize. Digests first; where runs part, runs are
made again that keep the array at hand, or that are recorded operation by operation.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from detconf.arrays import Array, Place, Sealed
from detconf.launch import INJECT
from detconf.recording.event import Event, Flag
from detconf.recording.launching import LEVEL, SOURCES, VALUES, VARIABLE
from detconf.recording.names import siblings
from detconf.recording.reading import Recording

_NAME = "state.det"
OPERATIONS = "operations.det"


def environment(
    base: Mapping[str, str], folder: str, keep: bool | range = False, level: Literal["state", "operations"] = "state"
) -> dict[str, str]:
    """`base` with the variables that make a child record its state into `folder`, or its operations with their places.

    Args:
        base: an environment.
        folder: of this run.
        keep: indexes of the events whose arrays are kept; False for digests only, True for all.
        level: of the recording.
    """
    others = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", INJECT)]
    values = f"{keep.start}:{keep.stop}" if isinstance(keep, range) else "all" if keep else ""
    return {
        **base,
        "PYTHONPATH": os.pathsep.join([INJECT, *others]),
        VARIABLE: os.path.join(folder, _NAME if level == "state" else OPERATIONS),
        LEVEL: level,
        VALUES: values,
        SOURCES: "" if level == "state" else "1",
    }


def recordings(folder: str) -> list[str]:
    """The files that a run left whose operations were recorded."""
    return siblings(os.path.join(folder, OPERATIONS))


def states(folder: str) -> dict[Place, Array]:
    """The digests of every recorded state of one run, step by step; within one as recorded, the ranks side by side."""
    found: dict[Place, Array] = {}
    order: dict[Place, tuple[int, int]] = {}
    seen: Counter[Place] = Counter()
    for path in siblings(os.path.join(folder, _NAME)):
        with Recording(path) as recording:
            rank = recording.about.get("rank")
            for event in recording.events():
                if event.flags & Flag.STATE:
                    place = Place(event.name, event.step, 0, "" if rank is None else str(rank), "state")
                    counted = place._replace(occurrence=seen[place])
                    found[counted], order[counted] = _sealed(event), (event.step, event.index)
                    seen[place] += 1
    return {place: found[place] for place in sorted(found, key=order.__getitem__)}


def _sealed(event: Event) -> Sealed:
    (output,) = event.outputs
    return Sealed(output.dtype, output.shape, b"", output.digest.hex(), event.index)


def kept(folder: str, index: int) -> Array | None:
    """The array that a run with `keep` kept; None where it did not get so far, or several processes recorded."""
    paths = siblings(os.path.join(folder, _NAME))
    if len(paths) != 1:
        return None
    with Recording(paths[0]) as recording:
        return recording.values(index).get(("output", 0))
