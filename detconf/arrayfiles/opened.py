"""`open_arrays`: any file of arrays, told by its first bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from detconf.arrayfiles.checkpoints import checkpoint, is_checkpoint, parameters
from detconf.arrayfiles.mapped import damaged, mapped, members
from detconf.arrayfiles.npy import MAGIC, npy, npz
from detconf.arrayfiles.rebuilt import Loader
from detconf.arrayfiles.safetensors import is_safetensors, safetensors
from detconf.arrays import Array
from detconf.errors import DetconfError
from detconf.results import BARE

SUFFIXES = (".npy", ".npz", ".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pdparams", ".pdopt")
"""Files that are taken for arrays in a folder."""
KINDS = ".npy, .npz, .safetensors, torch.save, paddle.save, what reprod_log writes"


class Arrays(Mapping[str, Array]):
    """Arrays by name, each read when it is asked for."""

    def __init__(self, loaders: Mapping[str, Loader]) -> None:
        self._loaders = loaders

    def __getitem__(self, name: str) -> Array:
        return self._loaders[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)

    def __contains__(self, name: object) -> bool:
        return name in self._loaders  # without reading it


def open_arrays(path: str) -> Arrays:
    """The arrays of a file: .npy, .npz, .safetensors, torch.save, paddle.save.

    Raises:
        DetconfError: it is none of these, is damaged, or holds more than arrays and plain data.
    """
    data = mapped(path)
    try:
        found = _by_content(path, data)
    except (ValueError, TypeError, OverflowError) as error:  # of a file that is made to mislead
        raise damaged(path, error) from error
    return Arrays(found if isinstance(found, Mapping) else {BARE: found})


def _by_content(path: str, data: memoryview) -> Mapping[str, Loader] | Loader:
    start = bytes(data[:6])
    if start == MAGIC:
        return npy(path, data)
    if start[:2] == b"PK":
        return (checkpoint if is_checkpoint(members(path, data)) else npz)(path, data)
    if start[:1] == b"\x80" and start[1:2] <= b"\5":
        return parameters(path, data)
    if is_safetensors(data):
        return safetensors(path, data)
    msg = f"{path} is not a file of arrays. Accepted: {KINDS}."
    raise DetconfError(msg)
