"""A clock that a test shifts for a running server or worker."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import prerequisites

SOURCE = Path(__file__).parent / "clock.c"
COMPILER = prerequisites.find_compiler()
IS_POSSIBLE = sys.platform == "linux" and COMPILER is not None


class ShiftedClock:
    """The clock of the processes that are started with its environment."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "shift"
        self._library = directory / "clock.so"
        self._shift = 0
        self._monotonic_shift = 0
        self._write()

    @classmethod
    @contextmanager
    def create(cls) -> Iterator[ShiftedClock]:
        # The account that runs the server must be able to read both files.
        directory = Path(tempfile.mkdtemp(prefix="dgw-clock-"))
        directory.chmod(0o755)
        try:
            clock = cls(directory)
            assert COMPILER is not None
            command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(clock._library), str(SOURCE), "-ldl"]
            subprocess.run(command, check=True, capture_output=True)
            yield clock
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "FAULT_CLOCK": str(self._file)}

    def set(self, *, hours: float) -> None:
        """Set the time of day ahead, or back with a negative number."""
        self._shift += int(hours * 3600)
        self._write()

    def suspend(self, *, seconds: int) -> None:
        """Set the monotonic clock back, as if it had stopped while the machine was suspended."""
        self._monotonic_shift -= seconds
        self._write()

    def _write(self) -> None:
        """Write the file in place, so that processes that have it open see the change."""
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(handle, struct.pack("=qq", self._shift, self._monotonic_shift), 0)
        os.close(handle)
