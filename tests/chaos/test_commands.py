"""`outlast api`, `worker`, `migrate`, `doctor`: what they need, what they say, how they end."""

import asyncio
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from activities.db.migrate import head_revision
from cli.services.ports import listen
from cli.services.postgres import PostgresServer
from cli.services.temporal import TemporalServer
from tests.chaos.processes import ROOT, SIGNING, Programs, chat, environment, ready
from tests.ports import free_port
from tests.services import as_runtime
from workflows.contracts.search_attributes import SEARCH_ATTRIBUTES


def one_line(output: str) -> str:
    """The only line of what a command said; never a traceback."""
    lines = output.splitlines()
    assert len(lines) == 1, output
    return lines[0]


@pytest.mark.parametrize("command", ["api", "worker"])
async def test_r01_without_postgres_nothing_starts(programs: Programs, temporal_address: str, command: str) -> None:
    env = {
        "OUTLAST_DATABASE__URL": f"postgresql://x@127.0.0.1:{free_port()}/x",
        "OUTLAST_API__PORT": "0",
        "TEMPORAL_ADDRESS": temporal_address,
    }
    code, output = await programs.run(command, env=env)
    assert code == 1
    assert one_line(output).startswith("outlast: DatabaseUnavailableError: database unreachable: ")


async def test_r06_a_missing_database_is_not_made(programs: Programs, postgres: PostgresServer) -> None:
    code, output = await programs.run("api", env={"OUTLAST_DATABASE__URL": postgres.url("nobody_made_it"), "OUTLAST_API__PORT": "0"})
    assert code == 1
    assert one_line(output).startswith("outlast: DatabaseUnavailableError: database database missing") or "database missing" in one_line(
        output
    )
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(postgres.url("nobody_made_it"))


async def test_a_worker_without_temporal_ends_in_one_line(programs: Programs, database_url: str) -> None:
    env = {"OUTLAST_DATABASE__URL": as_runtime(database_url), "TEMPORAL_ADDRESS": f"127.0.0.1:{free_port()}"}
    code, output = await programs.run("worker", env=env)
    assert code == 1
    assert one_line(output).startswith("outlast: Temporal does not answer at 127.0.0.1:") and output.endswith(": Connection refused\n")


async def test_without_a_database_of_any_kind_the_line_says_what_to_do(programs: Programs, folder: Path) -> None:
    code, output = await programs.run("worker", env={"OUTLAST_DATA_DIR": str(folder / "none")})
    assert code == 1
    assert "set OUTLAST_DATABASE__URL, or start `outlast dev`" in one_line(output)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"OUTLAST_MODLE": "x"}, "unknown setting OUTLAST_MODLE: did you mean OUTLAST_MODEL?"),
        ({"OUTLAST_MAX_STEPS": "many"}, "OUTLAST_MAX_STEPS: "),
        ({"OUTLAST_TASK_QUEUE": "it's"}, "OUTLAST_TASK_QUEUE: must have no quote and no backslash"),
        ({"OUTLAST_PROFILE": "nobody"}, "OUTLAST_PROFILE: there is no profile 'nobody'"),
        ({"OUTLAST_SIGNING__KEYS": "a:c2hvcnQ="}, "OUTLAST_SIGNING__KEYS: key a has 5 bytes, at least 32 are needed"),
        ({"OUTLAST_API__HOST": "0.0.0.0"}, "in access mode `local` whoever reaches the API is admin"),
    ],
)
async def test_a_wrong_setting_is_one_line(programs: Programs, database_url: str, env: dict[str, str], says: str) -> None:
    code, output = await programs.run("api", env={"OUTLAST_DATABASE__URL": as_runtime(database_url), "OUTLAST_API__PORT": "0", **env})
    assert code == 1
    assert says in one_line(output)


async def test_s60_without_a_signing_key_no_api_starts(programs: Programs, database_url: str, temporal_address: str) -> None:
    env = {"OUTLAST_DATABASE__URL": database_url, "TEMPORAL_ADDRESS": temporal_address, "OUTLAST_API__PORT": "0"}
    code, output = await programs.run("api", env=env)
    assert code == 1
    assert one_line(output).startswith("outlast: no signing key: make one with `openssl rand -base64 32`")
    worker = programs.start("worker", env=env)
    await worker.says("worker ready")


async def test_a_command_line_that_does_not_fit_is_one_line(programs: Programs) -> None:
    for command in (["nonsense"], ["dev", "--nonsense"]):
        code, output = await programs.run(*command)
        assert code == 2
        assert "nonsense" in one_line(output)
    code, output = await programs.run("stuck", "--waiting", "1e300")
    assert code == 2 and "'--waiting'" in one_line(output)


def test_a_closed_output_is_no_traceback(folder: Path) -> None:
    command = f"exec {sys.executable} -m cli.main doctor --data-dir {folder} >&-"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")


async def test_a_port_that_was_asked_for_and_is_taken_is_an_error(programs: Programs, database_url: str) -> None:
    port = free_port()
    with listen("127.0.0.1", port):
        code, output = await programs.run("api", env={"OUTLAST_DATABASE__URL": as_runtime(database_url), "OUTLAST_API__PORT": str(port)})
    assert code == 1
    assert f"can't listen on 127.0.0.1:{port}" in one_line(output)


async def test_api_and_worker_run_apart_and_end_on_sigterm(programs: Programs, database_url: str, temporal_address: str) -> None:
    env = {
        "OUTLAST_DATABASE__URL": as_runtime(database_url),
        "TEMPORAL_ADDRESS": temporal_address,
        **SIGNING,
        "OUTLAST_TASK_QUEUE": "apart",
        "OUTLAST_API__PORT": str(free_port()),
    }
    url = f"http://127.0.0.1:{env['OUTLAST_API__PORT']}"
    api, worker = programs.start("api", env=env), programs.start("worker", env=env)
    await ready(url)
    assert (await chat(url, "Hello"))["error"] is None
    assert [await api.stop(signal.SIGTERM), await worker.stop(signal.SIGTERM)] == [0, 0]
    assert "Traceback" not in api.output + worker.output


async def test_migrate_says_what_it_did_and_registers_search_attributes(
    programs: Programs, empty_database_url: str, temporal_server: TemporalServer
) -> None:
    env = {"OUTLAST_DATABASE__URL": empty_database_url, "TEMPORAL_ADDRESS": temporal_server.address}
    code, output = await programs.run("migrate", env=env)
    assert code == 0
    head = head_revision()
    assert f"schema: none -> {head}" in output
    assert "search attributes: all there" in output
    code, output = await programs.run("migrate", env=env)
    assert f"schema: {head} -> {head}" in output


async def test_migrate_without_temporal_warns(programs: Programs, empty_database_url: str) -> None:
    env = {"OUTLAST_DATABASE__URL": empty_database_url, "TEMPORAL_ADDRESS": f"127.0.0.1:{free_port()}"}
    code, output = await programs.run("migrate", env=env)
    assert code == 0
    assert "warning: search attributes not registered" in output


async def test_migrate_registers_what_is_missing(programs: Programs, empty_database_url: str, database_url: str, folder: Path) -> None:
    bare = TemporalServer(folder / "bare", ui=False, attributes={})
    bare.start()
    try:
        env = {"OUTLAST_DATABASE__URL": empty_database_url, "TEMPORAL_ADDRESS": bare.address}
        _, found = await programs.run("doctor", env=env)
        assert f"search attributes {', '.join(sorted(SEARCH_ATTRIBUTES))} are missing" in found
        code, output = await programs.run("stuck", env={**env, "OUTLAST_DATABASE__URL": database_url})
        assert code == 1 and one_line(output).startswith("outlast: Temporal refuses a list filter: ") and "OutlastTurn" in output
        code, output = await programs.run("migrate", env=env)
        assert code == 0
        assert f"search attributes: registered {', '.join(sorted(SEARCH_ATTRIBUTES))}" in output
        code, found = await programs.run("doctor", env=env)
        assert (code, "search attributes registered" in found) == (0, True)
    finally:
        bare.stop()


async def test_doctor_is_content_with_a_good_set_up(programs: Programs, database_url: str, temporal_address: str) -> None:
    alone = {"OUTLAST_TASK_QUEUE": f"nobody-{uuid4().hex[:8]}"}  # Temporal remembers workers of other tests for a while
    env = {"OUTLAST_DATABASE__URL": as_runtime(database_url), "TEMPORAL_ADDRESS": temporal_address, **alone}
    code, output = await programs.run("doctor", env=env)
    verdicts = {line.split(": ")[0].split(maxsplit=1)[1]: line.split()[0] for line in output.splitlines()}
    assert verdicts == {
        "python": "ok",
        "settings": "ok",
        "access": "ok",
        "models": "ok",
        "temporal": "ok",
        "workers": "warn",
        "postgres": "ok",
        "signing keys": "warn",
        "payload keys": "warn",
        "payloads": "ok",
    }
    assert code == 0


async def test_doctor_names_each_fault_in_a_line(programs: Programs, empty_database_url: str) -> None:
    env = {
        "OUTLAST_DATABASE__URL": empty_database_url,
        "TEMPORAL_ADDRESS": f"127.0.0.1:{free_port()}",
        "OUTLAST_MODEL": "openai-chat:gpt-5",
    }
    code, output = await programs.run("doctor", env=env)
    assert code == 1
    failed = {line.split(":")[0].split(maxsplit=1)[1]: line for line in output.splitlines() if line.startswith("FAIL")}
    assert set(failed) == {"models", "temporal", "postgres"}
    assert failed["models"] == "FAIL  models: model 'openai-chat:gpt-5': set OPENAI_API_KEY"
    assert "behind" in failed["postgres"]


async def test_an_address_that_is_none_is_named(programs: Programs, database_url: str) -> None:
    env = {"OUTLAST_DATABASE__URL": as_runtime(database_url), "TEMPORAL_ADDRESS": "::::"}
    for command in ("worker", "doctor"):
        code, output = await programs.run(command, env=env)
        assert code == 1
        assert "Temporal's address '::::': " in output


async def test_doctor_does_not_wait_for_servers_that_hang(
    programs: Programs, own_postgres: PostgresServer, own_temporal: TemporalServer
) -> None:
    own_postgres.signal(signal.SIGSTOP)
    own_temporal.signal(signal.SIGSTOP)
    try:
        env = {
            "OUTLAST_DATABASE__URL": as_runtime(own_postgres.url("outlast_template")),
            "OUTLAST_DATABASE__TIMEOUT_SECONDS": "2",
            "TEMPORAL_ADDRESS": own_temporal.address,
        }
        before = asyncio.get_running_loop().time()
        code, output = await programs.run("doctor", env=env)
        assert code == 1
        assert {line.split(":")[0].split()[1] for line in output.splitlines() if line.startswith("FAIL")} == {"temporal", "postgres"}
        assert asyncio.get_running_loop().time() - before < 50
    finally:
        own_postgres.signal(signal.SIGCONT)
        own_temporal.signal(signal.SIGCONT)


async def test_the_release_is_said_where_somebody_asks(programs: Programs) -> None:
    assert await programs.run("--version") == (0, f"outlast {version('outlast')}\n")
