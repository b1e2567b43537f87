"""Forked processes: what they do with a signal that arrives at once."""

from __future__ import annotations

import signal
import subprocess
import sys

# The first handler that runs in the new process sends the signal, while the worker's handlers are still installed.
FORKED = """
import os, signal, sys
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), number))
from django_graphile_worker.worker.process.signal_handlers import handled_signals
from django_graphile_worker.worker.stop_request import WorkerStop
# Even if the tests run with nohup.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
request = WorkerStop()
with handled_signals(request):
    for number in map(int, sys.argv[1:]):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), request.is_made, signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_signal__that_arrives_during_a_fork_ends_the_new_process() -> None:
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1]
    command = [sys.executable, "-c", FORKED, *(str(int(number)) for number in numbers)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [f"{-number} False set()" for number in numbers], ended.stderr
