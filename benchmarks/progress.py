"""A progress bar on a terminal. Elsewhere nothing is drawn: the tables are the output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Step = Callable[[str], None]


@contextmanager
def steps(title: str, total: int) -> Iterator[Step]:
    """Yield a function that is called before each of ``total`` steps, with the name of the step."""
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    try:
        # Late import: only a terminal needs the package, which is optional.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield lambda name: print(f"{title}: {name}", file=sys.stderr, flush=True)
        return
    columns = (TextColumn("{task.description:<48}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        begun = False

        def step(name: str) -> None:
            nonlocal begun
            progress.update(task, description=f"{title}: {name}", advance=1 if begun else 0)
            begun = True

        yield step
