"""A recording as columns of numbers: a million events in some tens of megabytes, none of them an object."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from detconf.comparing.alignment import Tokens
from detconf.digests import SIZE, Flag
from detconf.errors import DetconfError
from detconf.recording.event import Layout, Output
from detconf.recording.file import Site
from detconf.recording.reading import Recording

WORDS = SIZE // 4
"""A digest in words of 32 bits: what packed events consist of."""
_ODD = 0x9E3779B97F4A7C15
_CHUNK = 1 << 15
_MOST = 1 << 24


@dataclass(frozen=True, slots=True)
class SiteTable:
    """What an event is beside its bytes, by number of its site; each a NumPy array."""

    key: Any
    name: Any
    random: Any
    inputs: Any
    outputs: Any
    flags: Any
    thread: Any

    @property
    def parts(self) -> Any:
        """How many digests an event has."""
        return self.random + self.inputs + self.outputs


class Columns:
    """The events of a recording.

    Attributes:
        recording: the file.
        words: all packed events.
        at: where in `words` each event starts.
        site: number of its site.
        step: steps that had ended.
        table: the sites.
    """

    def __init__(self, recording: Recording) -> None:
        import numpy as np

        self.recording = recording
        self.table = _table(recording)
        data, at, ends = _packed(recording, (self.table.parts * WORDS + 1).tolist())
        self.words = np.frombuffer(data, "<u4")
        self.at = np.frombuffer(at, "int64") if at else np.empty(0, "int64")
        self.site = self.words[self.at].astype("int64")
        self.step: Any = np.searchsorted(np.array(ends, "int64"), np.arange(len(self.at)), "right").astype("int32")

    def __len__(self) -> int:
        return len(self.at)

    @property
    def flags(self) -> Any:
        """Flags of every event."""
        return self.table.flags[self.site]

    def gathered(self, events: Any, first: int, count: int) -> Any:
        """`count` digests of each event, from its `first` on: an array (events, count, 4) of words."""
        import numpy as np

        places = self.at[events][:, None] + np.arange(1 + first * WORDS, 1 + (first + count) * WORDS)
        return self.words[places].reshape(len(events), count, WORDS)

    def tokens(self) -> tuple[Any, Tokens]:
        """(the events in the order of the tokens, the tokens)."""
        import numpy as np

        thread = self.table.thread[self.site]
        order = np.argsort(thread, kind="stable")
        threads, starts, sizes = np.unique(thread[order], return_index=True, return_counts=True)
        bounds = {name: (start, start + size) for name, start, size in np.stack([threads, starts, sizes], axis=1).tolist()}
        key, name = self.table.key[self.site], self.table.name[self.site]
        return order, Tokens(self._written(key)[order], key[order], name[order], self.step[order], bounds)

    def _written(self, key: Any) -> Any:
        """A number per event that depends on its kind and on every digest that it wrote."""
        full = key.copy()
        for events, (random, inputs, outputs) in self.groups():
            for place in range(outputs):
                pair = self.gathered(events, random + inputs + place, 1)[:, 0, :2]
                full[events] += (pair[:, 0].astype("uint64") | pair[:, 1].astype("uint64") << 32) * ((_ODD * (2 * place + 3)) % 2**64 | 1)
        return full

    def groups(self, events: Any = None) -> Iterator[tuple[Any, tuple[int, int, int]]]:
        """Events of one form together, some ten thousands at a time, with their numbers of states, inputs and outputs."""
        import numpy as np

        chosen = np.arange(len(self)) if events is None else events
        forms = np.stack([self.table.random, self.table.inputs, self.table.outputs], axis=1)
        kinds, number = np.unique(forms, axis=0, return_inverse=True)
        number = number.reshape(-1)[self.site[chosen]]
        for kind in np.unique(number).tolist():
            found = chosen[number == kind]
            form = tuple(kinds[kind].tolist())
            size = max(1, _CHUNK // max(1, sum(form)))
            yield from ((found[start : start + size], form) for start in range(0, len(found), size))

    def described(self, event: int) -> Site:
        """The site of an event, in words."""
        return next(self.recording.sites(int(self.site[event])))[1]

    def outputs(self, event: int) -> tuple[Output, ...]:
        """What an event wrote."""
        layouts = layouts_of(self.described(event).layouts)
        site = int(self.site[event])
        digests = self.gathered([event], int(self.table.random[site] + self.table.inputs[site]), len(layouts))
        return tuple(Output(digests[0, place].tobytes(), *layout) for place, layout in enumerate(layouts))


def layouts_of(text: str) -> Sequence[Layout]:
    """The layouts that a site's text says."""
    return [(str(dtype), tuple(map(int, shape))) for dtype, shape in json.loads(text)]


def _table(recording: Recording) -> SiteTable:
    import numpy as np
    from xxhash import xxh3_64_intdigest

    rows: list[tuple[int, ...]] = [(0,) * 7]
    known: dict[str, int] = {}
    for number, site in recording.sites():
        if number != len(rows):
            msg = f"{recording.path} is damaged: operation {number} follows operation {len(rows) - 1}. Record again, or use another copy."
            raise DetconfError(msg)
        outputs = _count(recording, number, site, known)
        random = int(bool(site.flags & Flag.RANDOM))
        key = xxh3_64_intdigest(f"{site.name}\0{site.layouts}\0{site.inputs}\0{random}".encode())
        rows.append((key, xxh3_64_intdigest(site.name.encode()), random, site.inputs, outputs, site.flags, site.thread))
    columns = list(zip(*rows, strict=True))
    hashes = (np.array(column, "uint64") for column in columns[:2])
    return SiteTable(*hashes, *(np.array(column, "int64") for column in columns[2:]))


def _count(recording: Recording, number: int, site: Site, known: dict[str, int]) -> int:
    """How many outputs a site has."""
    try:
        _check_range(site)
        if site.layouts not in known:
            known[site.layouts] = len(layouts_of(site.layouts))
        return known[site.layouts]
    except (TypeError, ValueError) as error:
        msg = f"{recording.path} is damaged: operation {number} is not described. Record again, or use another copy."
        raise DetconfError(msg) from error


def _check_range(site: Site) -> None:
    if not all(0 <= each < _MOST for each in (site.inputs, site.flags, site.thread)):
        raise ValueError("a number out of range")


def _packed(recording: Recording, sizes: list[int]) -> tuple[bytearray, array[int], list[int]]:
    """(all packed events, where each starts, how many there were at the end of each step)."""
    data, at = bytearray(), array("q")
    ends: list[int] = []
    for first, _, batch in recording.batches():
        if first != len(at) or len(batch) % 4:
            msg = f"{recording.path} is damaged: events between {len(at)} and {first} are missing. Record again, or use another copy."
            raise DetconfError(msg)
        if not _unpack(batch, len(data) // 4, sizes, (at, ends)):
            msg = f"{recording.path} is damaged: an event after {first} is cut off or not described. Record again, or use another copy."
            raise DetconfError(msg)
        data += batch
    return data, at, ends


def _unpack(batch: bytes, base: int, sizes: list[int], found: tuple[array[int], list[int]]) -> bool:
    """Add the starts of a batch's events, and the ends of its steps; false where it is damaged."""
    words = array("I", batch)
    if sys.byteorder == "big":
        words.byteswap()
    at, ends = found
    place, end, append = 0, len(words), at.append
    try:
        while place < end:
            number = words[place]
            if number:
                append(base + place)
                place += sizes[number]
            else:
                ends.append(len(at))
                place += 1
    except IndexError:
        return False
    return place == end
