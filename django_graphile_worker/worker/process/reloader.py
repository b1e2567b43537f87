"""``runworker --reload``: a process that watches the worker, and starts it again when code has changed.

Django's own reloader is made for processes that may be ended at any moment, and gives up at the first error in the
code that does not come from runserver. A worker holds jobs: the reloader asks it to stop, once or twice, and waits for
its end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from django.utils import autoreload

from django_graphile_worker.worker.process.plan import RELOADER_PIPE
from django_graphile_worker.worker.process.signal_handlers import STOP_SIGNALS, handled_signals
from django_graphile_worker.worker.stop_request import WorkerStop

# The exit code of a worker that is to start again, the same as Django's.
CHANGED = 3

Snapshot = dict[Path, float]


class Relay(WorkerStop):
    """The stop state of the process that watches: it passes each signal on to the worker, and waits for its end."""

    def __init__(self) -> None:
        super().__init__()
        self.worker: subprocess.Popen[bytes] | None = None
        self.pipe = -1

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        super().handle_signal(number, frame)
        if self.worker is None:
            return
        try:
            os.write(self.pipe, bytes([number]))
        except OSError:
            return
        if len(self.reasons) > 2:
            # The worker hangs where it cannot read the pipe, for example while it loads code.
            self.worker.kill()


def keep_running(say: Callable[[str], None]) -> int:
    """Run the worker in a process of its own, and again after each change; return the exit code of the last process."""
    request = Relay()
    with handled_signals(request):
        while True:
            seen = _snapshot()
            code = _run_worker(request)
            if request.is_made or code == 0:
                return 0 if code == CHANGED else code
            if code != CHANGED:
                say(f"The worker ended with exit code {code}. It starts again when a file changes.")
                if _was_asked_before_a_change(request, seen):
                    return 0


def _run_worker(request: Relay) -> int:
    reader, request.pipe = os.pipe()
    try:
        with _deferred_signals():
            request.worker = subprocess.Popen(
                autoreload.get_child_arguments(),
                env=os.environ | {autoreload.DJANGO_AUTORELOAD_ENV: "true", RELOADER_PIPE: str(reader)},
                pass_fds=[reader],
            )
        os.close(reader)
        code = request.worker.wait()
        # Popen returns minus the number of a signal that ended the process; a shell reports 128 plus the number.
        return 128 - code if code < 0 else code
    finally:
        request.worker = None
        os.close(request.pipe)


@contextmanager
def _deferred_signals() -> Iterator[None]:
    """Block the stop signals, also in the worker, which inherits the mask.

    A terminal signals both processes: the signals of the worker wait until the worker can count them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _was_asked_before_a_change(request: WorkerStop, seen: Snapshot) -> bool:
    """Wait for a stop request or a change of the code; return True for the request."""
    while _snapshot() == seen:
        if request.wait(autoreload.StatReloader.SLEEP_TIME):
            return True
    return False


def _snapshot() -> Snapshot:
    """Return the files that Django would watch, and the files beside the project's own modules.

    A module with an error was not loaded, so Django would not watch it.
    """
    reloader = autoreload.StatReloader()
    for directory in _own_directories():
        for pattern in ("*.py", "*/*.py"):
            reloader.watch_dir(directory, pattern)
    return dict(reloader.snapshot_files())


def _own_directories() -> set[Path]:
    installed = [Path(path) for name, path in sysconfig.get_paths().items() if name in {"stdlib", "purelib", "platlib"}]
    files = {Path(file).absolute() for module in list(sys.modules.values()) if (file := _file_of(module))}
    return {file.parent for file in files if not any(file.is_relative_to(path) for path in installed)}


def _file_of(module: object) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


class WatchedRequest(WorkerStop):
    """The stop state of the worker: requests come from signals, from the process that watches, and from new code.

    A terminal signals both processes, ``kill`` only one of them. The signals that this process receives and the signals
    that the other process reports are the same requests, so the larger of the two counts is the number of requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self._received = 0
        self._reported = 0

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        self._received += _weight(number)
        super().handle_signal(number, frame)

    def report(self, number: int) -> None:
        """Count a signal that the process that watches has received."""
        self._reported += _weight(number)
        self.signal_number = number
        self(signal.Signals(number).name)

    @property
    def is_urgent(self) -> bool:
        return max(self._received, self._reported) > 1

    @property
    def is_for_change(self) -> bool:
        """Was the stop requested only because code has changed?"""
        return self.is_made and not self._received and not self._reported


def _weight(number: int) -> int:
    """Return the number of requests that a signal stands for: SIGQUIT stops at once, as two other signals do."""
    return 2 if number == signal.SIGQUIT else 1


@contextmanager
def watched(request: WatchedRequest, *, with_code: bool) -> Iterator[None]:
    """Have signals, the end of the process that started this one, and changes of the code stop what runs in the block.

    Without ``with_code``, changes of the code stop nothing.
    """
    pipe = int(os.environ.pop(RELOADER_PIPE))
    os.set_inheritable(pipe, False)
    autoreload.ensure_echo_on()
    with handled_signals(request):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        threading.Thread(target=_listen, args=[pipe, request], name="graphile-worker-reloader", daemon=True).start()
        if with_code:
            threading.Thread(target=_watch, args=[request], name="graphile-worker-reloader", daemon=True).start()
        yield


def _listen(pipe: int, request: WatchedRequest) -> None:
    while numbers := os.read(pipe, 64):
        for number in numbers:
            request.report(number)
    request("the process that started the worker is gone")


def _watch(request: WatchedRequest) -> None:
    try:
        try:
            autoreload.get_reloader().run(threading.main_thread())
        except autoreload.WatchmanUnavailable:
            autoreload.StatReloader().run(threading.main_thread())
    except SystemExit:
        request("code has changed")
