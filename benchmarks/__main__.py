"""Run all benchmarks, or those of the given names: ``python -m benchmarks [name ...]``.

Each is also a program of its own: ``python -m benchmarks.bench_<name>``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    known = {path.stem.removeprefix("bench_"): path for path in sorted(Path(__file__).parent.glob("bench_*.py"))}
    names = [argument for argument in arguments if not argument.startswith("-")] or list(known)
    options = [argument for argument in arguments if argument.startswith("-")]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"Expected some of {', '.join(known)}, got {', '.join(unknown)}.")
        return 2
    for name in names:
        print(f"\n== {name}", flush=True)
        code = subprocess.call([sys.executable, "-m", f"benchmarks.bench_{name}", *options])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
