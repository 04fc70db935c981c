"""The command line: one function per command, a table of commands.

Results go to stdout, notices to stderr. Exit 0: agrees, in force. 1: differs, not in force. 2: could not run, or
nothing to compare. `run` returns the command's own code, 125 for a failure of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detconf.errors import DetconfError

OWN_FAILURE = 125
AGREES, DIFFERS, COULD_NOT = 0, 1, 2


def profiles(args: argparse.Namespace) -> int:
    """list the profiles that can be named here"""
    from detconf.profile import available
    from detconf.report.text import table

    rows = available()
    if args.json:
        print(json.dumps([{"name": name, "source": source, "summary": summary} for name, source, summary in rows], indent=2))
    else:
        print(table(("profile", "defined in", "summary"), rows))
    return AGREES


def show(args: argparse.Namespace) -> int:
    """show a profile or a knob"""
    from detconf.frameworks import catalogue
    from detconf.profile import load
    from detconf.report import knobs
    from detconf.report.text import table
    from detconf.values import show as word

    knob = catalogue().get(args.what)
    if knob:
        print(json.dumps(knobs.as_dict(knob), indent=2) if args.json else knobs.describe(knob))
        return AGREES
    profile = load(args.what)
    if args.json:
        print(json.dumps(profile.to_dict(), indent=2))
        return AGREES
    print(f"{profile.name}: {profile.summary}")
    print(f"extends {' -> '.join(profile.parents)}\n" if profile.parents else "")
    lines = [*profile.policies.items(), *profile.knobs.items()]
    print(table(("line", "value", "source"), [(name, word(line.value), line.source) for name, line in lines]))
    return AGREES


def plan(args: argparse.Namespace) -> int:
    """dry run: what would be set in a fresh process here, why, and what cannot be"""
    from detconf.report import as_json, text
    from detconf.session import inspect, planned

    wanted = planned(args.profile)
    if args.json:
        print(as_json(wanted))
        return AGREES
    cannot = [entry for entry in inspect(args.profile).entries if entry.outcome.value in ("unsupported", "invalid", "too-late")]
    print(text(wanted))
    if cannot:
        print("\ncannot be set in a process that is already running:")
        for entry in cannot:
            print(f"  {entry.knob}: {entry.outcome}: {entry.note.partition('; restore:')[0]}")
    return AGREES


def inspect(args: argparse.Namespace) -> int:
    """what a profile would meet in a fresh process of this interpreter, changing nothing"""
    from detconf.report import as_json, text
    from detconf.session import inspect as look

    if not args.json:
        print("this speaks of a fresh process; call detconf.inspect() in the process in question\n", file=sys.stderr)
    found = look(args.profile)
    print(as_json(found) if args.json else text(found, verbose=args.verbose))
    return AGREES if found.ok else DIFFERS


def environment(args: argparse.Namespace) -> int:
    """print the variables that configure another process"""
    from detconf.launch import child_environment

    print(FORMATS[args.format](child_environment(args.profile, {})))
    return AGREES


FORMATS: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "sh": lambda own: "\n".join(f"export {key}={shlex.quote(value)}" for key, value in own.items()),
    "github": lambda own: "\n".join(f"{key}={value}" for key, value in own.items()),
    "dotenv": lambda own: "\n".join(f"{key}={json.dumps(value)}" for key, value in own.items()),
    "powershell": lambda own: "\n".join(f"$env:{key} = '{value.replace(chr(39), chr(39) * 2)}'" for key, value in own.items()),
    "json": lambda own: json.dumps(dict(own), indent=2),
}


def run(args: argparse.Namespace) -> int:
    """start a command with a profile in force from its first instruction"""
    from detconf.launch import child_environment

    if not args.command:
        print("detconf: no command was given. Write: detconf run PROFILE -- python train.py", file=sys.stderr)
        return OWN_FAILURE
    try:
        own = child_environment(args.profile, os.environ)
        sys.stdout.flush()
        os.execvpe(args.command[0], args.command, own)  # noqa: S606  # starting the user's command is what this is for
    except OSError as error:
        print(f"detconf: {args.command[0]}: {error.strerror}", file=sys.stderr)
    except DetconfError as error:
        print(f"detconf: {error}", file=sys.stderr)
    return OWN_FAILURE


def verify(args: argparse.Namespace) -> int:
    """run a function or script again and again and compare every bit"""
    from detconf.report import as_json, text
    from detconf.rerun import verify as rerun

    if bool(args.command) == bool(args.target):
        msg = "one thing to run is needed. Write: detconf verify FILE.py:function, or detconf verify -- python script.py"
        raise DetconfError(msg)
    target = args.command or args.target
    found = rerun(
        target,
        runs=args.runs,
        fresh=args.fresh or bool(args.command),
        profile=args.profile,
        timeout=args.timeout,
        outputs=tuple(args.output),
    )
    print(as_json(found) if args.json else text(found, verbose=args.verbose))
    return AGREES if found.stable else DIFFERS


def knobs(args: argparse.Namespace) -> int:
    """list the catalogue of knobs"""
    from detconf.frameworks import catalogue
    from detconf.report import knobs as formats
    from detconf.report.text import table

    if args.json:
        print(json.dumps([formats.as_dict(knob) for knob in catalogue().values()], indent=2))
    elif args.markdown:
        print(formats.markdown(), end="")
    else:
        print(
            table(
                ("knob", "accepts", "governs", "summary"),
                [(knob.name, knob.accepted, knob.governs, knob.summary) for knob in catalogue().values()],
            )
        )
    return AGREES


def schema(_args: argparse.Namespace) -> int:
    """print a JSON Schema of profiles, for editors"""
    from detconf.report.schema import schema as document

    print(json.dumps(document(), indent=2))
    return AGREES


@dataclass(frozen=True)
class Command:
    """One command: its function, and the arguments that it takes beside --json."""

    function: Callable[[argparse.Namespace], int]
    arguments: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = ()
    takes_command: bool = False


_PROFILE = (("profile",), {"nargs": "?", "metavar": "PROFILE", "help": "name or path; default: DETCONF_PROFILE, else strict"})
_DASH_P = (("-p", "--profile"), {"metavar": "PROFILE", "help": "name or path of a profile"})
_VERBOSE = (("-v", "--verbose"), {"action": "store_true", "help": "also what does not apply here"})

COMMANDS = {
    "profiles": Command(profiles),
    "show": Command(show, ((("what",), {"metavar": "PROFILE|KNOB"}),)),
    "plan": Command(plan, (_PROFILE,)),
    "env": Command(environment, (_PROFILE, (("--format",), {"choices": tuple(FORMATS), "default": "sh"}))),
    "run": Command(run, (_PROFILE,), takes_command=True),
    "inspect": Command(inspect, (_DASH_P, _VERBOSE)),
    "verify": Command(
        verify,
        (
            (("target",), {"nargs": "?", "metavar": "FILE.py:function"}),
            _DASH_P,
            (("--runs",), {"type": int, "default": 3, "metavar": "N"}),
            (("--fresh",), {"action": "store_true", "help": "each run in a fresh process (always so for a command)"}),
            (("--timeout",), {"type": float, "metavar": "SECONDS", "help": "end a run in its own process after this time"}),
            (
                ("--output",),
                {"action": "append", "default": [], "metavar": "GLOB", "help": "a file that the command writes; may be repeated"},
            ),
            _VERBOSE,
        ),
        takes_command=True,
    ),
    "knobs": Command(knobs, ((("--markdown",), {"action": "store_true", "help": "as docs/knobs.md"}),)),
    "schema": Command(schema),
}


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; a command to start stands behind `--`."""
    from detconf import __version__

    top = argparse.ArgumentParser(prog="detconf", description="Make deep-learning runs repeatable, with proof.")
    top.add_argument("--version", action="version", version=f"detconf {__version__}")
    commands = top.add_subparsers(dest="name", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        usage = "%(prog)s [options] -- CMD ..." if command.takes_command else None
        own = commands.add_parser(name, help=command.function.__doc__, description=command.function.__doc__, epilog=usage)
        own.add_argument("--json", action="store_true", help="print the result as JSON")
        for flags, options in command.arguments:
            own.add_argument(*flags, **options)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    args = parser().parse_args(words[:split])
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
