"""Each deliberate mistake makes a test fail. A test that no mistake makes fail proves nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.faults import mutants
from tests.faults.processes import CHECKOUT

PAGE = (CHECKOUT / "docs" / "explanation" / "promises.md").read_text(encoding="utf-8")
CAUGHT_BY = dict(re.findall(r"^\| (.+) \| `(test_\w+)` \|$", PAGE, flags=re.MULTILINE))


def test_promises_page__names_tests_that_exist_and_every_mutant() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "tests").rglob("test_*.py"))
    assert {name for name in re.findall(r"`(test_\w+)`", PAGE) if f"def {name}(" not in tests} == set()
    assert CAUGHT_BY.keys() == mutants.names()


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", sorted(CAUGHT_BY))
def test_mutant__is_caught(mutant: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TEST_RUN"))}
    test, files = CAUGHT_BY[mutant], (CHECKOUT / "tests" / "faults").glob("test_*.py")
    (path,) = [path for path in files if f"def {test}(" in path.read_text(encoding="utf-8")]
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "-p", "no:cacheprovider", "-m", "", f"{path}::{test}"],
        cwd=CHECKOUT,
        env=environment | {"FAULT_MUTANT": mutant},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1, f"survived:\n{finished.stdout[-3000:]}{finished.stderr[-1000:]}"
    assert "1 failed" in finished.stdout
