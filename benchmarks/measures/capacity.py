"""What more cores would give: the parts of the model, measured here, and what it predicts for 4, 16 and 64 cores.

``--only`` chooses among processes, adders, disk and databases; without the first three there is no prediction.
"""

from __future__ import annotations

from benchmarks.capacity import model
from benchmarks.capacity.adders import measure_adders
from benchmarks.capacity.disk import measure_disk
from benchmarks.capacity.processes import PROCESSES, measure_processes
from benchmarks.capacity.two_databases import measure_two_databases
from benchmarks.results import Metric, Row, Table
from benchmarks.session import Session
from benchmarks.workers import stage

CORES = (2, 4, 16, 64)
# PostgreSQL's default.
MAX_CONNECTIONS = 100
PREDICTED = [
    Metric("rate", "jobs/s"),
    Metric("processes", "processes"),
    Metric("worker processes", "(workers)"),
    Metric("CPU", "(CPU)"),
    Metric("write-ahead log", "(log)"),
    Metric("connections", "(connections)"),
]


def measure(session: Session) -> None:
    only = session.options.only.split(",") if session.options.only else ["processes", "adders", "disk", "databases"]
    with stage(with_node=False) as place:
        processes = measure_processes(session, place) if "processes" in only else None
        adders = measure_adders(session, place.ours) if "adders" in only else None
        disk = measure_disk(session) if "disk" in only else None
        if "databases" in only:
            measure_two_databases(session, place)
    if processes and adders and disk:
        session.add(predictions(parts_of(processes, adders, disk)))


def parts_of(processes: Table, adders: Table, disk: Table) -> model.Parts:
    """Return the parts of the model, as medians of what was measured."""
    one = processes.row("1")
    growth = model.slope([(number, processes.row(str(number)).median("server_cpu")) for number in PROCESSES])
    held = adders.row("64 client(s), NOTIFY").median("held_by_commit")
    return model.Parts(
        process_rate=one.median("rate"),
        worker_cpu=one.median("worker_cpu") / 1e6,
        server_cpu=one.median("server_cpu") / 1e6,
        server_growth=max(0.0, growth) / 1e6,
        written=one.median("written"),
        disk=disk.row("disk").median("rate") * 1e6,
        connections=one.median("connections"),
        max_connections=MAX_CONNECTIONS,
        lock_held=held / 1e6,
    )


def predictions(parts: model.Parts) -> Table:
    rows = []
    for cores in CORES:
        found = model.predict(parts, cores)
        row = Row(str(cores), f"{cores} cores: {found.first} first")
        row.add({"rate": found.rate, "processes": found.processes, **found.limits})
        rows.append(row)
    table = Table(
        "predictions", "Predicted, not measured: jobs a second, and the limit of each resource", PREDICTED, rows
    )
    alone = f"one process {parts.process_rate:,.0f} jobs/s, worker {parts.worker_cpu * 1e6:.1f} µs"
    costs = f"{alone}, server {parts.server_cpu * 1e6:.1f} µs"
    growth = f"{parts.server_growth * 1e6:.2f} µs more for each further process"
    table.notes = [
        f"{costs} and {growth}, {parts.written:,.0f} bytes of log",
        f"transactions that add jobs and notify: {model.added_transactions(parts):,.0f} a second, on any cores",
    ]
    return table
