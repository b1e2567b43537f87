"""The tests' own ground: databases of a run, connections, cleaning up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from django.db import connection

from django_graphile_worker.models import Job
from testproject import databases, embedded_account
from tests.faults.cluster import Cluster
from tests.faults.processes import MANAGE, Zygote, is_alive
from tests.support import versioned_servers
from tests.support.factories import make_job

Connect = Callable[..., psycopg.Connection[tuple[Any, ...]]]


def test_raw_connection__reaches_the_database_of_the_test(raw_connection: Connect) -> None:
    name = raw_connection().execute("select current_database()").fetchone()
    assert name == (connection.settings_dict["NAME"],)


def test_raw_connection__commits_at_once(raw_connection: Connect) -> None:
    assert raw_connection().autocommit


def test_fresh_databases__are_empty_and_apart(fresh_database: Callable[[], str]) -> None:
    first, second = fresh_database(), fresh_database()
    with psycopg.connect(first) as one, psycopg.connect(second) as two:
        one.execute("create table public.only_here ()")
        assert two.execute("select to_regclass('public.only_here')").fetchone() == (None,)
        assert two.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone() == (0,)


def test_fresh_database__is_dropped__when_somebody_is_still_connected(
    database_server: Any, raw_connection: Connect
) -> None:
    name = database_server.create_database()
    with psycopg.connect(database_server.url(name)):
        database_server.drop_database(name)
    found = raw_connection().execute("select 1 from pg_database where datname = %s", [name]).fetchone()
    assert found is None


def test_wait_until__fails__when_the_condition_never_holds(wait_until: Callable[..., None]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"within 0\.05 seconds"):
        wait_until(lambda: False, timeout=0.05)


def test_subprocess__works_on_the_test_database(subprocess_environment: dict[str, str]) -> None:
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "import psycopg, os; print(psycopg.connect(os.environ['DATABASE_URL']).info.dbname)",
        ],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == connection.settings_dict["NAME"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:p%40ss%2Fword@db.example.com:6432/shop?sslmode=require",
        "postgresql://app@/shop?host=/var/run/postgresql",
    ],
)
def test_database_url__survives_the_way_through_django_settings(url: str) -> None:
    entry = databases.from_url(url)
    assert databases.from_url(databases.to_url(entry)) == entry


def test_database_url__is_split_into_django_names() -> None:
    entry = databases.from_url("postgresql://app:secret@db.example.com:6432/shop?sslmode=require")
    assert entry == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "shop",
        "USER": "app",
        "PASSWORD": "secret",
        "HOST": "db.example.com",
        "PORT": "6432",
        "OPTIONS": {"sslmode": "require"},
    }


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("turn", [1, 2])
def test_committed_jobs__are_gone_before_the_next_test(turn: int) -> None:
    assert not Job.objects.exists()
    make_job("left_behind", {"turn": turn}, queue_name="left", locked_by="somebody", flags={"big": True})
    assert Job.objects.get().task.identifier == "left_behind"


def test_versioned_database__is_migrated_and_of_its_version(
    server_version: int, versioned_connection: psycopg.Connection[tuple[Any, ...]], worker_schema: str
) -> None:
    version = versioned_connection.execute("select current_setting('server_version_num')::int / 10000").fetchone()
    jobs = versioned_connection.execute("select to_regclass(%s)", [f'"{worker_schema}"._private_jobs']).fetchone()
    assert version == (server_version,)
    assert jobs != (None,)


@pytest.mark.parametrize("turn", [1, 2])
def test_versioned_databases__are_apart(versioned_database: str, turn: int) -> None:
    with psycopg.connect(versioned_database) as connection:
        connection.execute("create table public.only_here ()")


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which all temporary files of the test are. Its path is short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="dgw-"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def dead_run(temporary_folder: Path) -> Path:
    """The folder of the servers of a run that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    folder = temporary_folder / f"{versioned_servers.PREFIX}{process.pid}"
    folder.mkdir()
    return folder


def test_servers_of_a_dead_run__are_stopped__when_their_programs_have_been_removed(
    dead_run: Path, temporary_folder: Path
) -> None:
    cluster = Cluster(dead_run / "18")
    cluster.initialise()
    cluster.start()
    (dead_run / "18.ready").write_text(str(temporary_folder / "removed"))
    with psycopg.connect(cluster.url()) as session:
        versioned_servers.stop_servers_of_dead_runs()
        with pytest.raises(psycopg.OperationalError):
            session.execute("select 1")
    assert not dead_run.exists()


def test_process_id_of_a_dead_server__is_of_another_program_now(dead_run: Path) -> None:
    embedded_account.open_path_to(dead_run)
    embedded_account.make_private_directory(dead_run / "18")
    # Without this file pg_ctl stops nothing.
    (dead_run / "18" / "PG_VERSION").write_text("18\n")
    with subprocess.Popen(["sleep", "600"], **embedded_account.subprocess_options()) as other:
        (dead_run / "18" / "postmaster.pid").write_text(f"{other.pid}\n{dead_run / '18'}\n")
        versioned_servers.stop_servers_of_dead_runs()
        assert other.poll() is None
        other.kill()
    assert not dead_run.exists()


@pytest.mark.parametrize("text", ["", "none", "0", "-1", str(2**70)])
def test_servers_of_a_dead_run__have_a_damaged_process_file(dead_run: Path, text: str) -> None:
    (dead_run / "18").mkdir()
    (dead_run / "18" / "postmaster.pid").write_text(text)
    versioned_servers.stop_servers_of_dead_runs()
    assert not dead_run.exists()


def test_servers_of_a_run_that_lives__are_left_alone(temporary_folder: Path) -> None:
    folder = temporary_folder / f"{versioned_servers.PREFIX}{os.getppid()}"
    folder.mkdir()
    versioned_servers.stop_servers_of_dead_runs()
    assert folder.exists()


def test_files_with_the_process_id_of_the_run_that_begins__are_removed(temporary_folder: Path) -> None:
    folder = temporary_folder / f"{versioned_servers.PREFIX}{os.getpid()}"
    folder.mkdir()
    (folder / "18.ready").touch()
    versioned_servers.stop_servers_of_dead_runs()
    assert not folder.exists()


def test_workers_of_a_test_run__end_with_it(
    tmp_path: Path, subprocess_environment: dict[str, str], wait_until: Callable[..., None]
) -> None:
    zygote, log = Zygote(), tmp_path / "log"
    code = "import os, signal; os.fork(); print('runs', flush=True); signal.pause()"
    argv = [MANAGE, "shell", "--no-imports", "-c", code]
    worker = psutil.Process(zygote.start(argv, subprocess_environment, log, tmp_path / "exit"))
    wait_until(lambda: log.exists() and log.read_text().count("runs") == 2)
    processes = [worker, *worker.children()]
    zygote.close()
    wait_until(lambda: not any(map(is_alive, processes)))
    assert len(processes) == 2
