"""``runworker --reload``: a process that watches over the worker, and starts it again when code has changed.

Django's own reloader serves processes that may end at any moment, and gives up at the first error in the code
that is not runserver's. A worker holds jobs: it is asked to stop, once or twice, and waited for.
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

from django_graphile_worker.management.plan import RELOADER_PIPE
from django_graphile_worker.worker.process.signal_handlers import STOP_SIGNALS, handled_signals
from django_graphile_worker.worker.stop_request import StopState

# The exit code by which a process asks to be started again; Django's choice.
CHANGED = 3

Snapshot = dict[Path, float]


class Relay(StopState):
    """In the process that watches: passes each signal on to the worker, whose end it waits for."""

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
            # It hangs where it cannot listen, while it loads code, say.
            self.worker.kill()


def keep_running(say: Callable[[str], None]) -> int:
    """Run the worker in a process of its own, again and again; the exit code of the last."""
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
        # As a shell says it.
        return 128 - code if code < 0 else code
    finally:
        request.worker = None
        os.close(request.pipe)


@contextmanager
def _deferred_signals() -> Iterator[None]:
    """A terminal signals both processes: until it can count them, the worker's wait, as it inherits this."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _was_asked_before_a_change(request: StopState, seen: Snapshot) -> bool:
    """Wait for either: a request to stop, or a change of the code."""
    while _snapshot() == seen:
        if request.wait(autoreload.StatReloader.SLEEP_TIME):
            return True
    return False


def _snapshot() -> Snapshot:
    """What Django would watch, and the files beside the project's own modules: the broken one was not loaded."""
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


class WatchedRequest(StopState):
    """In the worker: asked to stop by signals, by the process that watches, and by changes of the code.

    A terminal signals both processes, ``kill`` only one: what the one saw and
    what it is told by the other is the same request.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen = 0
        self._told = 0

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        self._seen += _weight(number)
        super().handle_signal(number, frame)

    def hear(self, number: int) -> None:
        """The process that watches got a signal."""
        self._told += _weight(number)
        self.signal_number = number
        self(signal.Signals(number).name)

    @property
    def is_urgent(self) -> bool:
        return max(self._seen, self._told) > 1

    @property
    def is_for_change(self) -> bool:
        """Only because code has changed."""
        return self.is_made and not self._seen and not self._told


def _weight(number: int) -> int:
    """SIGQUIT stops at once, as two other signals do."""
    return 2 if number == signal.SIGQUIT else 1


def run_watched(run: Callable[[StopState], int]) -> int:
    """In the worker: run until asked to stop, or until code changes; the exit code."""
    pipe = int(os.environ.pop(RELOADER_PIPE))
    os.set_inheritable(pipe, False)
    autoreload.ensure_echo_on()
    request = WatchedRequest()
    with handled_signals(request):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        for target, arguments in ((_listen, (pipe, request)), (_watch, (request,))):
            threading.Thread(target=target, args=arguments, name="graphile-worker-reloader", daemon=True).start()
        code = run(request)
    return CHANGED if request.is_for_change else code


def _listen(pipe: int, request: WatchedRequest) -> None:
    while numbers := os.read(pipe, 64):
        for number in numbers:
            request.hear(number)
    request("the reloader is gone")


def _watch(request: WatchedRequest) -> None:
    try:
        try:
            autoreload.get_reloader().run(threading.main_thread())
        except autoreload.WatchmanUnavailable:
            autoreload.StatReloader().run(threading.main_thread())
    except SystemExit:
        request("code has changed")
