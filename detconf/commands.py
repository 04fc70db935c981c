"""The commands of the command line, a function each: arguments in, exit code out."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import redirect_stdout

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
    """show a profile, a knob or a recording"""
    if args.what.endswith(".det") or args.ops or is_recording_file(args.what):
        return _show_recording(args)
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


def is_recording_file(path: str) -> bool:
    """Is there a file of that name, and is it a recording?"""
    if not os.path.isfile(path) or not os.path.getsize(path):
        return False
    from detconf.recording.file import is_recording

    return is_recording(path)


def _show_recording(args: argparse.Namespace) -> int:
    from detconf.recording.reading import Recording
    from detconf.report.recording import as_json_lines, as_text

    with Recording(args.what) as found:
        for line in as_json_lines(found, ops=args.ops) if args.json else as_text(found, ops=args.ops):
            print(line)
    return AGREES


def record(args: argparse.Namespace) -> int:
    """run a command and record every operation of its Python processes, each in a file of its own"""
    from detconf.recording.launching import run as start

    if not args.command:
        print("detconf: no command was given. Write: detconf record -o run.det -- python train.py", file=sys.stderr)
        return OWN_FAILURE
    try:
        return start(
            args.output,
            args.command,
            profile=args.profile,
            level=args.level,
            values=args.values or "",
            sources=args.sources,
            against=args.against,
            stop=args.stop,
        )
    except DetconfError as error:
        print(f"detconf: {error}", file=sys.stderr)
        return OWN_FAILURE


def plan(args: argparse.Namespace) -> int:
    """dry run: what would be set in a fresh process here, why, and what cannot be"""
    from detconf.report import as_json, text
    from detconf.request import planned
    from detconf.session import inspect

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
    """what a profile would meet in a fresh process of this interpreter, or what the reports in a folder say"""
    from detconf.inspection import gather
    from detconf.report import as_json, text
    from detconf.session import inspect as look

    if not (args.json or args.target):
        print("this speaks of a fresh process; call detconf.inspect() in the process in question\n", file=sys.stderr)
    found = gather(args.target) if args.target else look(args.profile)
    print(as_json(found) if args.json else text(found, verbose=args.verbose))
    return AGREES if found.ok else DIFFERS


def compare(args: argparse.Namespace) -> int:
    """where two recordings, files of arrays, or folders of either first part"""
    from detconf.comparing.entry import compare as compared
    from detconf.report import as_json, text

    if sys.stderr.isatty():
        print("comparing ...", file=sys.stderr)
    found = compared(args.a, args.b)
    print(as_json(found) if args.json else text(found, verbose=args.verbose))
    return AGREES if found.equal else DIFFERS


def doctor(args: argparse.Namespace) -> int:
    """what this machine and its builds are and can guarantee, fit for a bug report"""
    from detconf.doctor import diagnose
    from detconf.report import as_json, text

    if not args.no_import and sys.stderr.isatty():
        print("importing each framework in a process of its own ...", file=sys.stderr)
    found = diagnose(imports=not args.no_import)
    print(as_json(found) if args.json else text(found, verbose=args.verbose))
    return AGREES


def environment(args: argparse.Namespace) -> int:
    """print the variables that configure another process"""
    from detconf.launch import printable_environment, untried
    from detconf.report.environment import CAN_COMMENT, CAN_UNSET, apart

    form = "json" if args.json else args.format
    own, absent = printable_environment(args.profile, args.hardware)
    unsure = sorted(untried() & {*own, *absent}) if args.hardware else []
    print("\n".join(apart(form, own, absent, unsure)))
    if unsure and form not in CAN_COMMENT:
        print(f"detconf: never tried here, taken from public documentation: {', '.join(unsure)}", file=sys.stderr)
    for name in absent:
        if name in os.environ and form not in CAN_UNSET:
            print(f"detconf: {name} is set here and must not be, which this format cannot say: remove it there", file=sys.stderr)
    return AGREES


def run(args: argparse.Namespace) -> int:
    """start a command with a profile in force from its first instruction"""
    from detconf.launch import report_to
    from detconf.launch import run as start

    if not args.command:
        print("detconf: no command was given. Write: detconf run PROFILE -- python train.py", file=sys.stderr)
        return OWN_FAILURE
    try:
        report_to(args.report)
        return start(args.profile, args.command)
    except DetconfError as error:
        print(f"detconf: {error}", file=sys.stderr)
        return OWN_FAILURE


def verify(args: argparse.Namespace) -> int:
    """run a function or script again and again and compare every bit"""
    from detconf.launch import report_to
    from detconf.report import as_json, text
    from detconf.rerun import verify as rerun

    if bool(args.command) == bool(args.target):
        msg = "one thing to run is needed. Write: detconf verify FILE.py:function, or detconf verify -- python script.py"
        raise DetconfError(msg)
    report_to(args.report)
    target = args.command or args.target
    with redirect_stdout(sys.stderr):  # what the target prints is no result of ours
        found = rerun(
            target,
            runs=args.runs,
            until=args.until,
            most_runs=args.most_runs,
            fresh=args.fresh or bool(args.command),
            vary=tuple(filter(None, args.vary.split(","))),
            profile=args.profile,
            timeout=args.timeout,
            outputs=tuple(args.output),
            steps=args.steps,
            resume_with=args.resume_with,
            stop_at=args.stop_at,
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


def audit(args: argparse.Namespace) -> int:
    """say why two functions, sets of arrays, graph modes of a model, or the operands of a failing test differ, with a proof made here"""
    from detconf.auditing.entry import audit as audited
    from detconf.report import as_json, text

    sides = [each for each in (args.a, args.b) if each is not None]
    if bool(args.command) == bool(sides) or (args.modes and len(sides) != 1):
        msg = (
            "two sides, one model, or a test command, are needed. Write: detconf audit FILE.py:reference FILE.py:candidate, "
            "detconf audit FILE.py:model --modes eager,inductor --inputs FILE.py:inputs, or detconf audit -- python -m pytest test_x.py::test"
        )
        raise DetconfError(msg)
    if sys.stderr.isatty():
        print("running both sides, then under study ...", file=sys.stderr)
    modes = [word for word in (args.modes or "").split(",") if word] or None
    with redirect_stdout(sys.stderr):  # what the sides print is no result of ours
        options = {"modes": modes, "inputs": args.inputs, "python_a": args.python_a, "python_b": args.python_b}
        found = audited(args.command) if args.command else audited(args.a, args.b, **options)
    print(as_json(found) if args.json else text(found, verbose=args.verbose))
    return AGREES if found.equal else DIFFERS
