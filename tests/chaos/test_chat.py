"""`outlast chat` against a real API: in a pipe, in a terminal, and over a restart of the API."""

import asyncio
import os
import pty
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.chaos.processes import OUTLAST, SIGNING, Program, Programs, chat, environment, ready
from tests.ports import free_port
from tests.services import as_runtime

LAST = 1000
"""It takes ten seconds to count so far: long enough for a busy machine to interrupt it."""

LONG = "Count to 5000"
"""Its answer takes most of a minute: longer than anything that interrupts it."""


class Running:
    """An API and a worker."""

    def __init__(self, programs: Programs, env: dict[str, str]) -> None:
        self.programs = programs
        self.url = f"http://127.0.0.1:{env['OUTLAST_API__PORT']}"
        self.api = programs.start("api", env=env)
        self.worker = programs.start("worker", env=env)

    def chat(self, *options: str) -> tuple[str, ...]:
        return (*OUTLAST, "chat", "--url", self.url, *options)

    async def piped(self, said: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Runs a chat with `said` as its input, to its end."""
        return await asyncio.to_thread(
            subprocess.run,
            self.chat("--profile", "demo", *options),
            input=said,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(),
            cwd=self.programs.folder,
        )

    async def sessions(self) -> list[str]:
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as http:
            return [session["session_id"] for session in (await http.get("/api/sessions")).json()["sessions"]]


@pytest.fixture
async def running(programs: Programs, database_url: str, temporal_address: str, folder: Path) -> AsyncIterator[Running]:
    """Both, ready."""
    env = {
        "OUTLAST_DATABASE__URL": as_runtime(database_url),
        "TEMPORAL_ADDRESS": temporal_address,
        **SIGNING,
        "OUTLAST_TASK_QUEUE": f"chat-{folder.name}",
        "OUTLAST_API__PORT": str(free_port()),
        "OUTLAST_WORKER_SHUTDOWN_SECONDS": "1",
    }
    running = Running(programs, env)
    await ready(running.url)
    yield running


class Terminal:
    """A chat in a terminal of its own."""

    def __init__(self, command: tuple[str, ...], folder: Path) -> None:
        self._master, slave = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment({"TERM": "xterm"}), cwd=folder, start_new_session=True
        )
        os.close(slave)
        os.set_blocking(self._master, False)

    async def shows(self, text: str, seconds: float = 60.0, *, times: int = 1) -> None:
        """Waits until it has shown a text (so many times)."""
        try:
            async with asyncio.timeout(seconds):
                while self.text.count(text) < times:
                    await asyncio.sleep(0.02)
                    self._read()
        except TimeoutError:
            pytest.fail(f"{text!r} is not shown {times} times in {self.text[-2000:]!r}")

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def ended(self) -> int:
        """Waits until it has ended; its exit code."""
        async with asyncio.timeout(60):
            while (code := self.process.poll()) is None:
                self._read()
                await asyncio.sleep(0.02)
        self._read()
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self) -> None:
        try:
            self.text += os.read(self._master, 65536).decode(errors="replace")
        except (BlockingIOError, OSError):
            return


async def test_chat_in_a_pipe_answers_what_the_host_is_asked(running: Running) -> None:
    done = await running.piped('What time is it? Then open /orders\n{"shown": true}\nHello\n')
    assert done.returncode == 0, done.stderr
    assert "· current_time {}" in done.stdout
    assert 'The assistant asks its host: open_page\n  {\n    "url": "/orders"\n  }' in done.stdout
    assert "Hello! You have sent 2 messages so far" in done.stdout
    assert "> " not in done.stdout
    assert done.stderr == ""


async def test_chat_goes_on_with_an_old_session(running: Running) -> None:
    first = await chat(running.url, "Open /orders")
    done = await running.piped("denied: not now\n", "--session", first["session_id"])
    assert done.returncode == 0, done.stderr
    assert "user: Open /orders" in done.stdout
    assert "The assistant asks its host: open_page" in done.stdout
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as http:
        rows = (await http.get(f"/api/sessions/{first['session_id']}/messages")).json()["messages"]
    tool = next(segment["tools"][0] for segment in rows[-1]["segments"] if segment["kind"] == "tool_group")
    assert (tool["outcome"], tool["output"]) == ("denied", "not now")


async def test_chat_once_prints_the_answer_and_nothing_else(running: Running) -> None:
    done = await running.piped("", "--once", "Hello")
    assert done.returncode == 0
    assert done.stdout.startswith("Hello! You have sent 1 message")
    assert done.stderr == ""
    waits = await running.piped("", "--once", "Open /orders")
    assert waits.returncode == 3
    assert "The assistant asks its host: open_page" in waits.stderr
    named = await running.piped("", "--once", "Hello", "--session", "notes")
    assert (named.returncode, named.stdout[:14]) == (0, "Hello! You hav")
    assert named.stderr == "there is no session notes yet: it begins with the first message\n"
    piped = await running.piped("Hello\n", "--session", "more-notes")
    assert piped.returncode == 0 and "there is no session more-notes yet" in piped.stdout and "Hello! You have sent 1" in piped.stdout
    assert {"notes", "more-notes"} <= set(await running.sessions())
    unknown = await running.piped("", "--once", "Hello", "--profile", "nobody")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("outlast: there is no profile 'nobody'") and "unknown_profile" in unknown.stderr
    assert len(unknown.stderr.splitlines()) == 1


async def test_chat_without_an_api_is_one_line(programs: Programs) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    for said, arguments in (
        ("no API at", ("--url", nowhere, "--session", "x")),
        ("no API at", ("--url", nowhere, "--once", "hello")),
        ("nowhere is no URL of an API", ("--url", "nowhere", "--once", "hello")),
        ("http://[::1 is no URL of an API", ("--url", "http://[::1", "--once", "hello")),
        ("the token has characters that no header takes", ("--url", nowhere, "--once", "hello", "--token", "a\nwalrus")),
    ):
        code, output = await programs.run("chat", *arguments)
        assert code == 1
        assert len(output.splitlines()) == 1
        assert said in output and "walrus" not in output and "ApiLost" not in output


async def test_chat_goes_on_in_mid_answer_when_the_api_restarts(running: Running) -> None:
    chatting = Program(
        running.programs.folder, "once", "chat", "--url", running.url, "--profile", "demo", "--once", f"Count to {LAST}", env={}
    )
    chatting.start()
    try:
        await chatting.says(" 30 ")
        running.api.kill()
        await chatting.says("connection lost, trying again")
        running.api.start()
        assert await chatting.ended() == 0
    finally:
        chatting.finish()
    said = [line for line in chatting.output.splitlines() if not line.startswith("connect")]
    assert "".join(said) == " ".join(str(number) for number in range(1, LAST + 1)) + "."
    assert "connected again" in chatting.output
    assert len(await running.sessions()) == 1


async def test_ctrl_c_cancels_a_turn_and_when_idle_leaves(running: Running) -> None:
    terminal = Terminal(running.chat("--profile", "demo"), running.programs.folder)
    try:
        await terminal.shows("> ")
        terminal.types(LONG + "\n")
        await terminal.shows(" 20 21 ")
        terminal.process.send_signal(signal.SIGINT)
        await terminal.shows("! cancelled")
        await terminal.shows("> ", times=2)
        terminal.types("Hello\n")
        await terminal.shows("You have sent 2 messages")
        assert "4999" not in terminal.text
        await terminal.shows("> ", times=3)
        terminal.process.send_signal(signal.SIGINT)
        assert await terminal.ended() == 0
        [session] = await running.sessions()
        assert f"outlast chat --session {session}" in terminal.text
    finally:
        terminal.close()


async def test_ctrl_d_leaves_and_thinking_is_dimmed(running: Running) -> None:
    terminal = Terminal(running.chat("--profile", "demo"), running.programs.folder)
    try:
        await terminal.shows("> ")
        terminal.types("Think, please\n")
        await terminal.shows("scripted model")
        assert "\x1b[2mThe message has" in terminal.text.replace("\x1b[0m\x1b[2m", "")
        await terminal.shows("> ", times=2)
        terminal.types("\x04")
        assert await terminal.ended() == 0
    finally:
        terminal.close()
