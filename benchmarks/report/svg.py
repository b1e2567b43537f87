"""Plots as SVG that follow the light or dark scheme of the reader, with a digest of the data that they show."""

from __future__ import annotations

import hashlib
import io
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours of matplotlib that become variables of the style sheet: (in the light scheme, in the dark scheme).
INK, PAPER, GRID = "#1a1b1c", "#fdfeff", "#d0d1d2"
SCHEMES = {INK: ("#1f2328", "#e6e7e9"), PAPER: ("#ffffff", "#17191c"), GRID: ("#d8dade", "#3a3d42")}
NAMES = {INK: "--ink", PAPER: "--paper", GRID: "--grid"}
# Colours that both schemes can show.
OURS, OURS_LIGHT, OTHER, OTHER_LIGHT, ACCENT = "#2f7ed8", "#7fb2ec", "#8a8f98", "#b9bdc4", "#e07b39"

SETTINGS: Any = {
    "svg.hashsalt": "benchmarks",
    "svg.fonttype": "path",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": PAPER,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "grid.color": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.1,
}


def digest(data: Any) -> str:
    """Return a digest of the data of a plot."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def digest_in(svg: str) -> str:
    """Return the digest that a plot contains."""
    found = re.search(r"<!-- data sha256 ([0-9a-f]{64}) -->", svg)
    return found[1] if found else ""


def version_in(svg: str) -> str:
    """Return the version of matplotlib that drew a plot."""
    found = re.search(r"Matplotlib v([0-9.]+)", svg)
    return found[1] if found else ""


def text_of(figure: Figure, data: Any, title: str) -> str:
    """Return the SVG text of a figure: the same for the same data and version of matplotlib."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": title})
    text = re.sub(r" +$", "", buffer.getvalue(), flags=re.MULTILINE)
    for colour, name in NAMES.items():
        text = text.replace(colour, f"var({name})")
    head, end, rest = text.partition("</style>")
    return f"{head}{_style()}{end}{rest}".replace("<metadata>", f"<!-- data sha256 {digest(data)} -->\n <metadata>", 1)


def _style() -> str:
    light, dark = (
        "".join(f"{NAMES[colour]}:{schemes[number]};" for colour, schemes in SCHEMES.items()) for number in (0, 1)
    )
    return f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"
