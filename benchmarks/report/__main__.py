"""Write the tables and plots of the documentation from the published results: ``python -m benchmarks.report``.

``--json=FILE`` takes them from another file, such as ``.benchmarks/latest.json``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import results
from benchmarks.commands import CHECKOUT
from benchmarks.report import blocks
from benchmarks.report.figures import Figures
from benchmarks.report.plots import PLOTS, drawn

FOLDER = CHECKOUT / "docs" / "_static" / "benchmarks"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--json", type=Path, default=results.PUBLISHED, metavar="FILE")
    measured = results.read(parser.parse_args(arguments).json)
    figures = Figures(measured)
    for page in blocks.write_pages(figures):
        print(f"wrote {page.relative_to(CHECKOUT)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in PLOTS:
        path = FOLDER / f"{name}.svg"
        path.write_text(drawn(name, figures), encoding="utf-8")
        print(f"wrote {path.relative_to(CHECKOUT)}")
    for name, each in measured.items():
        for reason in each.preliminary:
            print(f"warning: {name} is preliminary: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
