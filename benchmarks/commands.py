"""Processes that are measured: their command lines, and their start and end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Command:
    """A command line with its directory, and the variables that it needs beside those of this process."""

    arguments: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    directory: Path = CHECKOUT

    def start(self, *, output: int | IO[bytes], errors: int | IO[bytes], **more: str) -> subprocess.Popen[str]:
        environment = os.environ | self.environment | more
        # An installed package has byte code.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return subprocess.Popen(
            self.arguments,
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            text=True,
        )


def run(command: Command, **more: str) -> str:
    """Run a command to its end, and return its output."""
    environment = os.environ | command.environment | more
    finished = subprocess.run(command.arguments, cwd=command.directory, env=environment, capture_output=True, text=True)
    if finished.returncode:
        shown = " ".join(command.arguments)
        raise RuntimeError(
            f"Expected {shown} to succeed, got exit code {finished.returncode}:\n{finished.stderr[-2000:]}"
        )
    return finished.stdout


@contextmanager
def running(command: Command, *, errors: int | IO[bytes] = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    """Start a process whose standard output is read, and end it after the block."""
    process = command.start(output=subprocess.PIPE, errors=errors)
    try:
        yield process
    finally:
        end(process)
        assert process.stdout is not None
        process.stdout.close()


def end(process: subprocess.Popen[str]) -> None:
    """Ask a process to stop, and kill what is left of it and of its children after ten seconds."""
    with suppress(psutil.NoSuchProcess):
        tree = [*psutil.Process(process.pid).children(recursive=True)]
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        for each in tree if process.poll() is not None else [*tree, psutil.Process(process.pid)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait()
