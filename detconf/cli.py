"""The command line: one function per command, a table of commands.

Results go to stdout, notices to stderr. Exit 0: agrees, in force. 1: differs, not in force. 2: could not run, or
nothing to compare. `run` returns the command's own code, 125 for a failure of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from detconf import commands
from detconf.commands import COULD_NOT, OWN_FAILURE
from detconf.errors import DetconfError


@dataclass(frozen=True)
class Command:
    """One command: its function, and the arguments that it takes beside --json."""

    function: Callable[[argparse.Namespace], int]
    arguments: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = ()
    takes_command: bool = False


_PROFILE = (("profile",), {"nargs": "?", "metavar": "PROFILE", "help": "name or path; default: DETCONF_PROFILE, else strict"})
_DASH_P = (("-p", "--profile"), {"metavar": "PROFILE", "help": "name or path of a profile"})
_REPORT = (("--report",), {"metavar": "DIR", "help": "every process writes there what became of the profile; see `detconf inspect DIR`"})
_VERBOSE = (("-v", "--verbose"), {"action": "store_true", "help": "also what does not apply here"})

COMMANDS = {
    "profiles": Command(commands.profiles),
    "show": Command(
        commands.show,
        (
            (("what",), {"metavar": "PROFILE|KNOB|FILE.det"}),
            (("--ops",), {"action": "store_true", "help": "every operation of a recording"}),
        ),
    ),
    "record": Command(
        commands.record,
        (
            (("-o", "--output"), {"default": "run.det", "metavar": "FILE.det", "help": "default: run.det"}),
            _DASH_P,
            (("--level",), {"choices": ("operations", "state"), "default": "operations"}),
            (
                ("--values",),
                {"nargs": "?", "const": "all", "metavar": "FIRST:LAST", "help": "keep the arrays of all operations, or of a range"},
            ),
            (("--sources",), {"action": "store_true", "help": "note the module and the line of each operation"}),
            (
                ("--against",),
                {"metavar": "FILE.det", "help": "compare with an earlier recording while running; the first difference goes to stderr"},
            ),
            (("--stop",), {"action": "store_true", "help": "with --against: end there, with exit status 1"}),
        ),
        takes_command=True,
    ),
    "plan": Command(commands.plan, (_PROFILE,)),
    "env": Command(
        commands.environment,
        (
            _PROFILE,
            (("--format",), {"choices": ("sh", "github", "dotenv", "powershell", "json"), "default": "sh"}),
            (("--hardware",), {"choices": ("cpu", "cuda", "rocm"), "help": "only what such a machine needs"}),
        ),
    ),
    "run": Command(commands.run, (_PROFILE, _REPORT), takes_command=True),
    "inspect": Command(
        commands.inspect, ((("target",), {"nargs": "?", "metavar": "DIR", "help": "a folder of reports"}), _DASH_P, _VERBOSE)
    ),
    "verify": Command(
        commands.verify,
        (
            (("target",), {"nargs": "?", "metavar": "FILE.py:function"}),
            _DASH_P,
            _REPORT,
            (("--runs",), {"type": int, "default": 3, "metavar": "N"}),
            (
                ("--until",),
                {"type": float, "metavar": "SHARE", "help": "go on until what differs in this share of reruns would have shown with 95 %%"},
            ),
            (("--most-runs",), {"type": int, "default": 1000, "metavar": "N", "help": "the end of --until in any case; default: 1000"}),
            (("--vary",), {"default": "", "metavar": "AXES", "help": "axes to vary one by one, joined by commas, or all"}),
            (("--fresh",), {"action": "store_true", "help": "each run in a fresh process (always so for a command)"}),
            (("--timeout",), {"type": float, "metavar": "SECONDS", "help": "end a run in its own process after this time"}),
            (("--steps",), {"type": int, "metavar": "N", "help": "end every process cleanly after N optimizer steps"}),
            (
                ("--resume-with",),
                {"default": "", "metavar": "'CMD2'", "help": "also stop CMD, go on with CMD2, and compare with CMD in one go"},
            ),
            (("--stop-at",), {"type": int, "metavar": "K", "help": "optimizer steps after which CMD is stopped for that"}),
            (
                ("--output",),
                {"action": "append", "default": [], "metavar": "GLOB", "help": "a file that the command writes; may be repeated"},
            ),
            _VERBOSE,
        ),
        takes_command=True,
    ),
    "compare": Command(commands.compare, ((("a",), {"metavar": "A"}), (("b",), {"metavar": "B"}), _VERBOSE)),
    "audit": Command(
        commands.audit,
        (
            (
                ("a",),
                {
                    "nargs": "?",
                    "metavar": "REFERENCE",
                    "help": "FILE.py:function, a file of arrays, or a recording with values (alone: of a failing test)",
                },
            ),
            (("b",), {"nargs": "?", "metavar": "CANDIDATE", "help": "the same"}),
            (
                ("--inputs",),
                {"metavar": "x=FILE:ARRAY,...", "help": "arguments of the functions, from files of arrays; of a model: FILE.py:function"},
            ),
            (
                ("--modes",),
                {"metavar": "MODES", "help": "graph modes of one model, joined by commas; without a candidate: all of its framework"},
            ),
            (("--python-a",), {"metavar": "PYTHON", "help": "interpreter of the reference, where the two cannot live together"}),
            (("--python-b",), {"metavar": "PYTHON", "help": "interpreter of the candidate"}),
            _VERBOSE,
        ),
        takes_command=True,
    ),
    "knobs": Command(commands.knobs, ((("--markdown",), {"action": "store_true", "help": "as docs/knobs.md"}),)),
    "schema": Command(commands.schema),
    "doctor": Command(
        commands.doctor, ((("--no-import",), {"action": "store_true", "help": "start no process: no guarantees, no libraries"}), _VERBOSE)
    ),
}


_STARTERS = ("run", "record")
"""Commands that return the code of the command they start, and 125 for their own failures."""


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; a command to start stands behind `--`."""
    from detconf import __version__

    top = argparse.ArgumentParser(prog="detconf", description="Make deep-learning runs repeatable, with proof.")
    top.add_argument("--version", action="version", version=f"detconf {__version__}")
    subparsers = top.add_subparsers(dest="name", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        usage = "%(prog)s [options] -- CMD ..." if command.takes_command else None
        own = subparsers.add_parser(name, help=command.function.__doc__, description=command.function.__doc__, epilog=usage)
        own.add_argument("--json", action="store_true", help="print the result as JSON")
        for flags, options in command.arguments:
            own.add_argument(*flags, **options)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    try:
        args = parser().parse_args(words[:split])
    except SystemExit as leaving:
        if leaving.code and words[0] in _STARTERS:
            return OWN_FAILURE
        raise
    command = words[split + 1 :]
    if command and not COMMANDS[args.name].takes_command:
        print(f"detconf: {args.name} takes no command behind --", file=sys.stderr)
        return COULD_NOT
    args.command = command
    try:
        return COMMANDS[args.name].function(args)
    except DetconfError as error:
        print(f"detconf: {error}", file=sys.stderr)
        return COULD_NOT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COULD_NOT
    except KeyboardInterrupt:
        return 130
