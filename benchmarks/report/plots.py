"""The plots of the documentation. Each takes its data from the recorded results, and draws with matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.report import svg
from benchmarks.report.figures import Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Data = dict[str, Any]
WORKS = {
    "orm": "Two ORM queries and an update",
    "http": "HTTP call of 20 ms, sync, 200 at once",
    "http_async": "HTTP call of 20 ms, async, 200 at once",
    "cpu": "20 ms of computing",
}
DRAINS = {
    "this package": ("ours, silent", "ours, with its log"),
    "graphile-worker\nat its best": ("node at its best, silent", "node at its best, with its log"),
    "graphile-worker,\ndefaults": ("node, defaults, silent", "node, defaults, with its log"),
}


def drain_data(figures: Figures) -> Data:
    return {
        f"{processes} process{'es' if processes > 1 else ''}": {
            label: [_median(figures, "drain", f"drain_{processes}", row, "rate") for row in rows]
            for label, rows in DRAINS.items()
        }
        for processes in (1, 2)
    }


def draw_drain(figure: Figure, data: Data) -> None:
    panels = figure.subplots(1, len(data), sharey=True, sharex=True)
    for axes, (title, groups) in zip(panels, data.items(), strict=True):
        for place, values in enumerate(groups.values()):
            colours = (svg.OURS, svg.OURS_LIGHT) if place == 0 else (svg.OTHER, svg.OTHER_LIGHT)
            for shift, value, colour, words in zip((-0.2, 0.2), values, colours, ("silent", "with log"), strict=True):
                _bar(axes, place + shift, value / 1000, 0.36, colour, f"{value / 1000:.1f} {words}")
        _rows(axes, list(groups), title, "thousand trivial jobs a second", margin=0.34)


def latency_data(figures: Figures) -> Data:
    labels = {
        "this package, with its log": "ours, with its log",
        "graphile-worker, defaults, with its log": "node, defaults, with its log",
    }
    found = {label: figures.row("latency", "latency", row) for label, row in labels.items()}
    return {label: sorted(row.samples["all"]) for label, row in found.items() if row}


def draw_latency(figure: Figure, data: Data) -> None:
    axes = figure.subplots()
    for colour, (label, values) in zip((svg.OURS, svg.ACCENT), data.items(), strict=False):
        axes.ecdf(values, color=colour, label=label, linewidth=1.8)
    axes.set_xlabel("milliseconds from add_job to the first line of the task")
    axes.set_ylabel("share of jobs")
    most = max((values[int(len(values) * 0.99)] for values in data.values()), default=1)
    axes.set_xlim(0, most * 1.3)
    axes.grid(True)
    axes.legend(loc="lower right")


def real_data(figures: Figures) -> Data:
    return {
        title: {row.key: row.median("rate") for row in figures.rows("real_jobs", work)}
        for work, title in WORKS.items()
        if figures.rows("real_jobs", work)
    }


def draw_real(figure: Figure, data: Data) -> None:
    panels = list(figure.subplots((len(data) + 1) // 2, 2, squeeze=False).flat)
    for axes in panels[len(data) :]:
        axes.set_axis_off()
    for axes, (title, rates) in zip(panels, data.items(), strict=False):
        for place, (label, rate) in enumerate(rates.items()):
            colour = {"ours": svg.OURS, "a bare loop": svg.ACCENT}.get(label, svg.OTHER)
            _bar(axes, place, rate, 0.7, colour, f"{rate:,.0f}")
        _rows(axes, [{"ours": "this package"}.get(label, label) for label in rates], title, "jobs a second")


def capacity_data(figures: Figures) -> Data:
    rows = figures.rows("capacity", "processes")
    return {
        "efficiency": [[int(row.key), row.median("efficiency")] for row in rows],
        "measured": max((row.median("rate") for row in rows), default=0),
        "predicted": [[int(row.key), row.median("rate")] for row in figures.rows("capacity", "predictions")],
    }


def draw_capacity(figure: Figure, data: Data) -> None:
    left, right = figure.subplots(1, 2)
    numbers, values = zip(*data["efficiency"], strict=True)
    left.plot(numbers, [value / 1000 for value in values], color=svg.OURS, marker="o")
    left.set(title="Measured on two cores", xlabel="worker processes", ylabel="thousand jobs for each CPU second")
    left.set_xticks(numbers, [str(number) for number in numbers])
    left.set_ylim(0)
    cores, rates = zip(*data["predicted"], strict=True)
    right.plot(cores, [rate / 1000 for rate in rates], color=svg.OTHER, marker="o", linestyle="--", label="predicted")
    right.plot([2], [data["measured"] / 1000], color=svg.OURS, marker="o", linestyle="none", label="measured")
    right.set_xscale("log", base=2)
    right.set_xticks(cores, [str(number) for number in cores])
    right.set(title="Predicted for more cores", xlabel="cores", ylabel="thousand jobs a second")
    right.set_ylim(0)
    right.legend(loc="upper left")
    for axes in (left, right):
        axes.grid(True)


def _median(figures: Figures, measure: str, table: str, row: str, metric: str) -> float:
    found = figures.row(measure, table, row)
    return found.median(metric) if found else 0.0


def _bar(axes: Axes, place: float, value: float, height: float, colour: str, text: str) -> None:
    bars = axes.barh([place], [value], height=height, color=colour)
    axes.bar_label(bars, [text], padding=3, fontsize=9)


def _rows(axes: Axes, labels: list[str], title: str, unit: str, margin: float = 0.18) -> None:
    """Label the bars, the first at the top, and leave room for the texts behind them."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set(title=title, xlabel=unit)
    axes.margins(x=margin)
    axes.grid(True, axis="x")
    axes.tick_params(left=False)


class Plot(NamedTuple):
    """A plot: its title, the benchmark that it shows, its data, how it is drawn, and its size in inches."""

    title: str
    measure: str
    data_of: Callable[[Figures], Data]
    draw: Callable[[Figure, Data], None]
    size: tuple[float, float]


# By the name of the file.
PLOTS = {
    "drain": Plot("Trivial jobs a second", "drain", drain_data, draw_drain, (9, 3.6)),
    "latency": Plot("Time to start", "latency", latency_data, draw_latency, (7, 3.6)),
    "real-jobs": Plot("Jobs as people write them", "real_jobs", real_data, draw_real, (10, 6.4)),
    "capacity": Plot("Capacity", "capacity", capacity_data, draw_capacity, (9, 3.6)),
}


def data_of(name: str, figures: Figures) -> Data:
    """Return all that a plot depends on."""
    plot = PLOTS[name]
    return {"shown": plot.data_of(figures), "preliminary": bool(figures.preliminary(plot.measure))}


def _is_empty(data: Any) -> bool:
    """Return whether there is no figure in the data of a plot."""
    if isinstance(data, dict | list):
        return all(_is_empty(value) for value in (data.values() if isinstance(data, dict) else data))
    return not data


def drawn(name: str, figures: Figures) -> str:
    """Return the SVG text of a plot."""
    # Late import: matplotlib is needed only to draw.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    plot, data = PLOTS[name], data_of(name, figures)
    with rc_context(svg.SETTINGS):
        figure = Figure(figsize=plot.size, layout="constrained")
        if data["preliminary"]:
            figure.suptitle("preliminary figures, of a machine with other work", fontsize=9, style="italic")
        if _is_empty(data["shown"]):
            figure.text(0.5, 0.5, "not measured yet", ha="center")
        else:
            plot.draw(figure, data["shown"])
        return svg.text_of(figure, data, plot.title)
