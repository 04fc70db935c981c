"""Commands: what the options of a Python command switch off, and this process becoming another command."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?w?(\.exe)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Invocation:
    """How Python was called.

    Attributes:
        options: the letters of its options, in order; `c` or `m` where one of these names the program.
        program: the words from the script's name on; empty where `-c` or `-m` names the program, and without one.
    """

    options: str
    program: tuple[str, ...] = ()


def invocation(words: Sequence[str]) -> Invocation:
    """Read the words of a Python command, its interpreter first, as the interpreter does."""
    options, at = "", 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        word = words[at]
        at += 1 + (word == "--check-hash-based-pycs")
        for place, letter in enumerate("" if word.startswith("--") else word[1:], 2):
            options += letter
            if letter in "cm":
                return Invocation(options)
            if letter in "WX":
                at += place == len(word)  # its value is the next word
                break
    return Invocation(options, tuple(words[at + (words[at : at + 1] == ["--"]) :]))


def is_python(word: str) -> bool:
    """Is that a Python interpreter, by its name?"""
    return _PYTHON.fullmatch(os.path.basename(word)) is not None


def switched_off(command: Sequence[str]) -> str:
    """What in a command keeps Python from running a sitecustomize of PYTHONPATH, in words; empty where nothing is seen.

    Looks at the first interpreter among the words, and at the first line of a script that is started by its own name.
    """
    at = next((place for place, word in enumerate(command) if _PYTHON.fullmatch(os.path.basename(word))), None)
    words = list(command[at:]) if at is not None else _first_line(command[0])
    found = [letter for letter in dict.fromkeys(invocation(words).options) if letter in "SEI"]
    if not found:
        return ""
    shown = " and ".join(f"-{letter}" for letter in found)
    lost = "" if found == ["S"] else " but PYTHONHASHSEED, which it ignores"
    where = "the command" if at is not None else f"the first line of {command[0]}"
    return (
        f"{shown} in {where} keeps detconf out of that Python: it gets the environment variables{lost} and none of the other settings. "
        f"Leave {shown} out, or call detconf.apply() in the program."
    )


def _first_line(name: str) -> list[str]:
    """The words of a script's `#!` line; empty for another file."""
    try:
        with open(shutil.which(name) or name, "rb") as file:
            line = file.readline(256)
        return shlex.split(os.fsdecode(line[2:])) if line.startswith(b"#!") else []
    except (OSError, ValueError):
        return []


def become(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command in place of this process, which hands on its terminal, its input and its signals.

    Returns only on Windows, where no process can become another: the command's exit code.

    Raises:
        OSError: the command cannot be started.
        ValueError: a word or a variable cannot be passed on (it holds a NUL).
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if os.name != "nt":
        os.execvpe(words[0], list(words), dict(environment))  # noqa: S606  # starting the command is what this is for
    return attend(words, environment)


def attend(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start a command, pass signals on and wait: for a system where no process can become another."""
    process = subprocess.Popen(words, env=dict(environment))  # noqa: S603  # as in `become`
    forwarded = [signal.SIGTERM, *filter(None, (getattr(signal, "SIGHUP", None),))]
    before = {each: signal.signal(each, lambda number, _: process.send_signal(number)) for each in forwarded}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the command by itself
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def refusal(command: str, error: OSError | ValueError) -> str:
    """Why a command could not be started, in words, and what to do."""
    if isinstance(error, ValueError):
        return f"{command!r} cannot be started: {error}. Accepted: words without a NUL."
    path = shutil.which(command, mode=os.F_OK) or command
    hints = {
        errno.ENOENT: "Accepted: a program on PATH, or its path." if not os.path.isfile(path) else f"{path} is there, so the interpreter that its first line names is not.",
        errno.EACCES: f"{path} is a folder." if os.path.isdir(path) else f"Make it executable (chmod +x {path}), or start it by its interpreter: python {path}.",
        errno.ENOEXEC: f"{path} is no program, and its first line names no interpreter. Write: python {path}, or sh {path}.",
    }  # fmt: skip
    return f"{command} cannot be started: {error.strerror}. {hints.get(error.errno or 0, '')}".rstrip()
