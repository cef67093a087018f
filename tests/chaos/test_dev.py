"""`outlast dev`: one at a time, whole or not at all, and with nothing left over."""

import asyncio
import json
import re
import signal
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest
from temporalio.client import Client

from activities.search_attributes import missing
from cli.services.ports import listen
from cli.services.temporal import TemporalServer, temporal_binary
from tests.chaos.processes import Dev, Programs, alive, at_home, chat, gone, ready
from tests.chaos.stand import until
from tests.ports import free_port
from tests.provider import Provider, says


async def test_dev_starts_everything_and_a_clean_stop_leaves_nothing(programs: Programs, folder: Path) -> None:
    dev = Dev(programs, folder / "data")
    await dev.ready()
    for part in ("temporal", "postgres", "schema", "worker", "api"):
        assert re.search(rf"^  {part} +ready +\d+\.\d\d s", dev.program.output, re.MULTILINE)
    record = dev.record
    assert record["api"] == dev.url
    assert record["pids"]["dev"] == dev.program.pid
    for place in (dev.url, f"{dev.url}/docs", record["temporal_ui"]):
        assert place in dev.program.output
        assert httpx.get(place if place != dev.url else f"{place}/health", timeout=60).status_code == 200
    pids = [child.pid for child in dev.program.children()]
    assert {record["pids"]["temporal"], record["pids"]["postgres"]} <= set(pids)
    assert await dev.program.stop() == 0
    assert dev.program.output.splitlines()[-1] == "stopped"
    assert not [pid for pid in pids if alive(pid)]
    assert at_home(folder) == []
    assert not (folder / "data" / "dev.json").exists()


async def test_dev_prints_a_line_that_can_be_pasted(programs: Programs, folder: Path) -> None:
    dev = Dev(programs, folder / "data")
    await dev.ready()
    line = next(line for line in dev.program.output.splitlines() if line.strip().startswith("curl "))
    done = await asyncio.to_thread(subprocess.run, line, shell=True, capture_output=True, text=True, timeout=60)
    assert "event: host_action.pending" in done.stdout
    assert "event: turn.completed" in done.stdout


async def test_s60_dev_makes_a_signing_key_that_every_api_on_its_folder_uses(programs: Programs, folder: Path) -> None:
    lasting = {"OUTLAST_STREAM_TICKET_TTL_SECONDS": "600"}
    dev = Dev(programs, folder / "data", env=lasting)
    await dev.ready()
    file = Path(dev.record["secrets"])
    assert (file.parent, file.stat().st_mode & 0o777) == (folder / "data", 0o600)
    kept = file.read_text()
    await chat(dev.url, "Hello", session_id="s1")
    port = free_port()
    second = programs.start("api", env={"OUTLAST_DATA_DIR": str(dev.data), "OUTLAST_API__PORT": str(port)})
    await second.says("api ready")
    ticket = httpx.post(f"{dev.url}/api/sessions/s1/stream-ticket", timeout=60).json()["ticket"]
    read = httpx.get(f"http://127.0.0.1:{port}/api/sessions/s1/events", params={"until": "turn", "ticket": ticket}, timeout=60)
    assert "event: turn.completed" in read.text
    await dev.program.stop()
    file.chmod(0o644)
    dev.program.start()
    await dev.ready(starts=2)
    assert (file.read_text(), file.stat().st_mode & 0o777) == (kept, 0o600)
    assert httpx.get(f"{dev.url}/api/sessions/s1/events", params={"until": "turn", "ticket": ticket}, timeout=60).status_code == 200
    assert ticket not in dev.program.output + second.output
    (key,) = json.loads(kept)["signing_keys"]
    assert key.partition(":")[2] not in dev.program.output + second.output


async def test_dev_encrypts_from_the_day_it_is_asked_to_and_the_temporal_cli_reads_it_through_the_api(
    programs: Programs, folder: Path
) -> None:
    dev = Dev(programs, folder / "data", "--encrypted")
    await dev.ready()
    await chat(dev.url, "Hello walrus", session_id="s1")

    def shown(*options: str) -> str:
        command = [temporal_binary(), "workflow", "show", "--address", dev.record["temporal"], "--workflow-id", "session/default/s1"]
        return subprocess.run([*command, "--detailed", *options], capture_output=True, text=True, timeout=60, check=True).stdout

    assert "walrus" not in shown()
    assert "walrus" in shown("--codec-endpoint", f"{dev.url}/codec")
    await dev.program.stop()
    dev = Dev(programs, folder / "data")
    await dev.ready()
    await chat(dev.url, "Hello petrel", session_id="s1")
    assert "petrel" not in shown() and "petrel" in shown("--codec-endpoint", f"{dev.url}/codec")


async def test_dev_of_a_folder_in_use_refuses_and_names_the_holder(programs: Programs, folder: Path) -> None:
    dev = Dev(programs, folder / "data")
    await dev.ready()
    second = Dev(programs, folder / "data")
    assert await second.program.ended() == 1
    assert len(second.program.output.splitlines()) == 1
    assert f"in use by another `outlast dev`, process {dev.program.pid}" in second.program.output
    await ready(dev.url)


async def test_dev_goes_on_after_kill_9(programs: Programs, folder: Path) -> None:
    dev = Dev(programs, folder / "data")
    await dev.ready()
    first = await chat(dev.url, "Open /orders, please")
    children = [child.pid for child in dev.program.children()]
    dev.program.kill()
    dev.program.start()
    await dev.ready(starts=2)
    await gone(*children)
    answer = {"session_id": first["session_id"], "tool_call_id": first["pending_tool_call"]["call_id"], "tool_result": "shown"}
    async with httpx.AsyncClient(base_url=dev.url, timeout=60) as http:
        second = (await http.post("/api/chat", json=answer)).json()
    assert second["error"] is None
    assert second["message_id"] == first["message_id"]
    assert await dev.program.stop() == 0


async def test_dev_ends_a_temporal_that_was_left_on_its_folder(programs: Programs, folder: Path) -> None:
    """Two servers on one SQLite file don't notice each other. This one is of a release that knew no search attributes."""
    leftover = TemporalServer(folder / "data", ui=False, attributes={})
    leftover.start()
    dev = Dev(programs, folder / "data")
    await dev.ready()
    assert leftover.exit_code == -signal.SIGKILL
    assert not await missing(await Client.connect(dev.record["temporal"]))
    assert await dev.program.stop() == 0


@pytest.mark.parametrize("part", ["temporal", "postgres"])
async def test_dev_starts_a_server_that_died_again(programs: Programs, folder: Path, part: str) -> None:
    dev = Dev(programs, folder / "data")
    await dev.ready()
    first = await chat(dev.url, "Hello")
    died = dev.record["pids"][part]
    psutil.Process(died).kill()
    await dev.program.says(f"{part} is back")
    await ready(dev.url)
    assert dev.record["pids"][part] != died
    second = await chat(dev.url, "Hello again", session_id=first["session_id"])
    assert (second["turn_number"], second["error"]) == (2, None)
    assert await dev.program.stop() == 0


async def test_dev_takes_the_next_port_for_a_default_one(programs: Programs, folder: Path) -> None:
    taken = []
    for port in (7233, 8233, 8080):
        try:
            taken.append(listen("127.0.0.1", port))
        except OSError:  # somebody else holds it: as good
            continue
    program = programs.start("dev", env={"OUTLAST_DATA_DIR": str(folder / "data")})
    await program.says("Ctrl-C stops everything")
    for port in (7233, 8233, 8080):
        assert re.search(rf"^port {port} is taken, .* listens on \d+$", program.output, re.MULTILINE)
    assert await program.stop() == 0
    for sock in taken:
        sock.close()


@pytest.mark.parametrize("key", ["OUTLAST_API__PORT", "OUTLAST_DEV__TEMPORAL_PORT", "OUTLAST_DEV__TEMPORAL_UI_PORT"])
async def test_dev_refuses_a_taken_port_that_was_asked_for(programs: Programs, folder: Path, key: str) -> None:
    port = free_port()
    with listen("127.0.0.1", port):
        dev = Dev(programs, folder / "data", env={key: str(port)})
        assert await dev.program.ended() == 1
    assert key in dev.program.output
    assert str(port) in dev.program.output
    assert "Traceback" not in dev.program.output
    assert at_home(folder) == []


async def test_dev_says_what_is_wrong_with_a_profile_before_it_starts_anything(programs: Programs, folder: Path) -> None:
    (folder / "mine.py").write_text("import nowhere")
    dev = Dev(programs, folder / "data", env={"OUTLAST_PROFILES": str(folder / "mine.py")})
    assert await dev.program.ended() == 1
    assert dev.program.output.count("OUTLAST_PROFILES") == 1 and "No module named 'nowhere'" in dev.program.output
    assert "Traceback" not in dev.program.output and " ready " not in dev.program.output
    assert not {"postgres", "temporal.db"} & {path.name for path in (folder / "data").iterdir()}


async def test_dev_ephemeral_says_so_everywhere_and_keeps_nothing(programs: Programs, folder: Path) -> None:
    dev = Dev(programs, folder / "data", "--ephemeral")
    await dev.ready()
    assert "EPHEMERAL" in dev.program.output
    health = httpx.get(f"{dev.url}/health", timeout=60)
    assert health.json()["durable"] is False
    assert health.headers["X-Outlast-Durable"] == "false"
    await chat(dev.url, "Hello")
    assert await dev.program.stop() == 0
    assert [path.name for path in (folder / "data").iterdir()] == ["lock"]


async def test_dev_ephemeral_does_not_touch_a_configured_database(programs: Programs, folder: Path) -> None:
    code, output = await programs.run(
        "dev", "--ephemeral", env={"OUTLAST_DATA_DIR": str(folder), "OUTLAST_DATABASE__URL": "postgresql://x@/x"}
    )
    assert code == 1
    assert "--ephemeral" in output.splitlines()[-1]
    assert "Traceback" not in output


async def test_dev_uses_what_is_configured_and_starts_the_rest(
    programs: Programs, folder: Path, database_url: str, temporal_address: str
) -> None:
    queue = {"OUTLAST_TASK_QUEUE": f"configured-{folder.name}"}
    version = {"OUTLAST_WORKER__DEPLOYMENT": "outlast", "OUTLAST_WORKER__BUILD_ID": "1"}  # which would get nothing until it is made current
    servers = {"OUTLAST_DATABASE__URL": database_url, "TEMPORAL_ADDRESS": temporal_address}
    dev = Dev(programs, folder / "data", env={**servers, **queue, **version})
    await dev.ready()
    assert dev.program.children() == []
    assert (dev.record["database_url"], dev.record["temporal"], dev.record["temporal_ui"]) == (database_url, temporal_address, "")
    assert (await chat(dev.url, "Hello"))["error"] is None
    assert await dev.program.stop() == 0


@pytest.mark.parametrize("name", ["with a space, ü and 100%", "deep/" * 8 + "x" * 100])
async def test_dev_works_wherever_its_folder_is(programs: Programs, folder: Path, name: str) -> None:
    dev = Dev(programs, folder / name)
    await dev.ready()
    assert (await chat(dev.url, "Hello"))["error"] is None
    assert await dev.program.stop() == 0


@pytest.mark.parametrize("after", [0.3, 0.8, 1.5])
async def test_dev_stops_cleanly_while_it_starts(programs: Programs, folder: Path, after: float) -> None:
    dev = Dev(programs, folder / "data")
    await dev.program.says("outlast dev, data in")
    await asyncio.sleep(after)
    assert await dev.program.stop(signal.SIGTERM) == 0
    await until(lambda: at_home(folder) == [])
    assert "Traceback" not in dev.program.output


async def test_a_second_api_and_worker_are_one_command_each(programs: Programs, folder: Path) -> None:
    dev = Dev(programs, folder / "data")
    await dev.ready()
    worker = programs.start("worker", env={"OUTLAST_DATA_DIR": str(dev.data)})
    api = programs.start("api", "--data-dir", str(dev.data))
    await worker.says("worker ready")
    await api.says("api ready, ")
    url = api.output.split("api ready, ")[1].split()[0]
    assert url != dev.url
    first = await chat(dev.url, "Hello")
    assert (await chat(url, "Hello again", session_id=first["session_id"]))["turn_number"] == 2
    assert [await api.stop(), await worker.stop(signal.SIGTERM)] == [0, 0]
    assert await dev.program.stop() == 0


async def test_dev_leaves_out_what_libraries_say_of_every_request(programs: Programs, folder: Path) -> None:
    async with Provider([says("Hello.")]) as provider:
        env = {"OUTLAST_MODEL": "openai-chat:scripted", "OPENAI_BASE_URL": provider.url}
        dev = Dev(programs, folder / "data", env=env)
        await dev.ready()
        assert (await chat(dev.url, "Hi", profile="default"))["content"] == "Hello."
        await dev.program.says("turn answered")
        banner, own = dev.program.output.splitlines()[-2:]
        assert banner == "Ctrl-C stops everything." and "temporalio.workflow: turn answered" in own
        assert await dev.program.stop() == 0
