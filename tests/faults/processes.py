"""Starts real worker processes, sends them signals, and waits for their output and their end."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

CHECKOUT = Path(__file__).resolve().parent.parent.parent
MANAGE = str(CHECKOUT / "testproject" / "manage.py")

WaitUntil = Callable[..., None]


class Wait(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = ...) -> None: ...


# Seconds to wait for an event that must happen, on a slow machine; see tests/conftest.py.
WAIT_TIMEOUT = 60.0


class Zygote:
    """The process that forks workers, one for each test session."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(CHECKOUT / "tests" / "faults" / "zygote.py")],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.worker_settings"},
            text=True,
        )

    def start(self, argv: list[str], environment: Mapping[str, str], log: Path, exit_file: Path) -> int:
        order = {"argv": argv, "environment": dict(environment), "log": str(log), "exit_file": str(exit_file)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class WorkerProcess:
    """A process of ``manage.py runworker``."""

    def __init__(self, pid: int, log: Path, exit_code: Callable[[], int | None], wait_until: Wait) -> None:
        self.pid = pid
        self.log = log
        self._exit_code = exit_code
        self._wait_until = wait_until

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self, timeout: float = WAIT_TIMEOUT) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.wait()

    @property
    def exit_code(self) -> int | None:
        """None while the process runs. Negative if a signal killed it, as in subprocess."""
        return self._exit_code()

    @property
    def is_alive(self) -> bool:
        return self.exit_code is None

    def wait(self, timeout: float = WAIT_TIMEOUT) -> int:
        try:
            self._wait_until(lambda: self.exit_code is not None, timeout=timeout)
        except BaseException:
            print(self.output())  # noqa: T201 - pytest shows it with the failure
            raise
        code = self.exit_code
        assert code is not None
        return code

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def has_written(self, pattern: str) -> bool:
        return re.search(pattern, self.output()) is not None

    def count_in_output(self, pattern: str) -> int:
        return len(re.findall(pattern, self.output()))

    def wait_for(self, pattern: str, timeout: float = WAIT_TIMEOUT) -> None:
        """Wait until the output contains the pattern."""
        try:
            self._wait_until(lambda: self.has_written(pattern) or not self.is_alive, timeout=timeout)
        finally:
            if not self.has_written(pattern):
                print(self.output())  # noqa: T201
        assert self.has_written(pattern), f"ended with {self.exit_code} before it wrote {pattern!r}:\n{self.output()}"

    def worker_ids(self) -> list[str]:
        """Return the worker ids that this process has had, in order."""
        return re.findall(r"worker (django-worker-\w+) started", self.output()) + re.findall(
            r"continues as (django-worker-\w+)", self.output()
        )

    def children(self) -> list[psutil.Process]:
        """Return the worker processes of a supervisor, without the helper process of multiprocessing."""
        return [child for child in psutil.Process(self.pid).children() if _is_worker(child)]


def _is_worker(child: psutil.Process) -> bool:
    # It may have ended.
    with contextlib.suppress(psutil.NoSuchProcess):
        return any("spawn_main" in part for part in child.cmdline())
    return False


def is_alive(process: psutil.Process) -> bool:
    """Return whether the process runs. After its end it stays in the table of processes until its parent waits."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


class Fleet:
    """The workers of a test. Workers that still run at its end are killed."""

    def __init__(
        self,
        zygote: Zygote,
        directory: Path,
        environment: Mapping[str, str],
        wait_until: Wait,
        *,
        checkout: Path = CHECKOUT,
    ) -> None:
        """``checkout`` has the code of workers that are not forked."""
        self._checkout = checkout
        self._zygote = zygote
        self._directory = directory
        self.environment = dict(environment)
        # A command that runs the command of the worker, for example in another network namespace.
        self.prefix: tuple[str, ...] = ()
        self._wait_until = wait_until
        self._numbers = itertools.count(1)
        self._popen: list[subprocess.Popen[bytes]] = []
        self.workers: list[WorkerProcess] = []

    def start(
        self,
        *options: str,
        settings: Mapping[str, Any] | None = None,
        constants: Mapping[str, float] | None = None,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = ("runworker",),
        is_forked: bool = True,
        is_ready: bool = True,
    ) -> WorkerProcess:
        """Start a worker, and by default wait until its output says that it has started.

        ``constants`` has other values for constants of the package, by their dotted paths in it.
        """
        variables = self.environment | dict(environment or {})
        if settings:
            variables["FAULT_WORKER_SETTINGS"] = json.dumps(
                json.loads(variables.get("FAULT_WORKER_SETTINGS", "{}")) | dict(settings)
            )
        if constants:
            variables["FAULT_CONSTANTS"] = json.dumps(constants)
        arguments = [*command, "-v", "3", "--no-color", *options]
        worker = (self._fork if is_forked else self._execute)(arguments, variables)
        self.workers.append(worker)
        if is_ready and "--once" not in options:
            worker.wait_for(r"worker django-worker-\w+ started")
        return worker

    def close(self) -> None:
        for worker in self.workers:
            if worker.is_alive:
                kill_tree(worker.pid)
                worker.wait()
            # pytest shows it with a failure.
            print(f"Worker {worker.pid}:", worker.output()[-5000:], sep="\n")  # noqa: T201
        for process in self._popen:
            process.wait()

    def _fork(self, arguments: list[str], variables: Mapping[str, str]) -> WorkerProcess:
        log, exit_file = self._paths()
        pid = self._zygote.start(["manage.py", *arguments], variables, log, exit_file)

        def exit_code() -> int | None:
            return int(exit_file.read_text()) if exit_file.exists() else None

        return WorkerProcess(pid, log, exit_code, self._wait_until)

    def _execute(self, arguments: list[str], variables: Mapping[str, str]) -> WorkerProcess:
        log, _ = self._paths()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, str(self._checkout / "testproject" / "manage.py"), *arguments],
                cwd=self._checkout,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=restore_signals,
            )
        self._popen.append(process)
        return WorkerProcess(process.pid, log, process.poll, self._wait_until)

    def _paths(self) -> tuple[Path, Path]:
        number = next(self._numbers)
        return self._directory / f"worker-{number}.log", self._directory / f"worker-{number}.exit"


def restore_signals() -> None:
    """Reset signals that a shell ignores for background jobs: child processes inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def kill_tree(pid: int) -> None:
    """Kill a process and the processes that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def pause(seconds: float) -> None:
    """Let time pass where the time itself is part of the fault, as between two kills."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        select.select([], [], [], left)
