"""`make demo`: two real trainings that repeat bit for bit under `strict`, and two programs that do not without it.

Every line is printed by the programs themselves; this file only starts them and checks their exit codes.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
VERIFY = ("-m", "detconf", "verify")


def start(title: str, *arguments: str, expect: int = 0) -> None:
    """Run a Python of this environment and insist on its exit code."""
    print(f"\n=== {title}\n$ python {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, *arguments], cwd=HERE.parent, env={**os.environ, "PYTHONWARNINGS": "ignore"}, check=False)  # noqa: S603  # our own examples
    if done.returncode != expect:
        sys.exit(f"demo: that ended with {done.returncode}, not {expect}")


def main() -> None:
    for framework in ("torch", "paddle"):
        script = f"examples/digits_{framework}.py"
        start(f"{framework}: a training under strict, with its attestation", script)
        start(
            f"{framework}: the same training in two fresh processes", *VERIFY, "-p", "strict", "--runs", "2", "--", sys.executable, script
        )
    for race, runs in (("torch_gradient", "20"), ("paddle_program", "60")):
        target = (f"examples/races.py:{race}", "--runs", runs)
        start(f"{race}: without a profile", *VERIFY, *target, expect=1)
        start(f"{race}: under strict", *VERIFY, "-p", "strict", *target)
    print("\ndemo: everything came out as promised")


if __name__ == "__main__":
    main()
