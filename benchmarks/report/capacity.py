"""The tables of the page on capacity."""

from __future__ import annotations

from benchmarks.report.figures import Figures, Place, rounded
from benchmarks.report.markdown import table


def parts(figures: Figures) -> str:
    """Return what was measured for the formulas."""
    notes = {
        "r": ("jobs a second of one process, alone on the machine", Place("capacity", "processes", "1", "rate"), ""),
        "w": ("CPU of the worker for a job", Place("capacity", "processes", "1", "worker_cpu"), " µs"),
        "s(1)": ("CPU of the server for a job, one process", Place("capacity", "processes", "1", "server_cpu"), " µs"),
        "s(16)": ("the same with 16 processes", Place("capacity", "processes", "16", "server_cpu"), " µs"),
        "b": ("write-ahead log for a job", Place("capacity", "processes", "1", "written"), " bytes"),
        "k": ("connections of a process", Place("capacity", "processes", "1", "connections"), ""),
        "disk": ("sequential writes of the disk, flushed", Place("capacity", "disk", "disk", "rate"), " MB/s"),
        "h": (
            "time that a commit with NOTIFY holds its lock, 64 clients",
            Place("capacity", "adders", "64 client(s), NOTIFY", "held_by_commit"),
            " µs",
        ),
    }
    found = [(name, title, figures.get(place), unit) for name, (title, place, unit) in notes.items()]
    rows = [[name, title, f"{rounded(value)}{unit}"] for name, title, value, unit in found if value is not None]
    return table(("part", "meaning", "measured"), rows)


def processes(figures: Figures) -> str:
    metrics = ("rate", "worker_cpu", "server_cpu", "efficiency", "waiting")
    rows = [
        [row.key, *(rounded(row.median(metric)) for metric in metrics)] for row in figures.rows("capacity", "processes")
    ]
    head = (
        "worker processes",
        "jobs a second",
        "µs of worker CPU",
        "µs of server CPU",
        "jobs per CPU second",
        "sessions that wait for a lock",
    )
    return table(head, rows)


def predictions(figures: Figures) -> str:
    rows = [
        [
            row.key,
            rounded(row.median("rate"), 2),
            f"{row.median('processes'):.0f}",
            row.label.partition(": ")[2].removesuffix(" first"),
            *(rounded(row.median(name), 2) for name in ("CPU", "write-ahead log", "connections")),
        ]
        for row in figures.rows("capacity", "predictions")
    ]
    head = (
        "cores",
        "jobs a second, predicted",
        "worker processes",
        "what ends first",
        "limit of the CPU",
        "of the log",
        "of 100 connections",
    )
    return table(head, rows)


def adders(figures: Figures) -> str:
    rows = [
        [row.key, rounded(row.median("rate")), f"{row.median('held'):.0f} %", rounded(row.median("held_by_commit"), 2)]
        for row in figures.rows("capacity", "adders")
    ]
    return table(("clients", "jobs added a second", "time in which the lock is held", "µs for each commit"), rows)


def databases(figures: Figures) -> str:
    rows = [
        [row.key, *(rounded(row.median(metric)) for metric in ("rate", "worker_cpu", "server_cpu"))]
        for row in figures.rows("capacity", "databases")
    ]
    return table(("", "jobs a second", "µs of worker CPU", "µs of server CPU"), rows)
