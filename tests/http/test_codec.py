"""Encrypted histories, and the codec server through which operators read them."""

import base64
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf import json_format
from pydantic import SecretStr
from temporalio.api.common.v1 import Payload

from activities.db.client import connect
from cli.doctor import check_codec
from cli.endpoints import Endpoints
from cli.stuck import Limits, run_stuck
from settings import AccessSettings, CodecSettings
from tests.commands import ran
from tests.io.keys import keys
from tests.models import calls, says, script
from tests.replay.telling import Between, failing
from tests.system import System, running_system
from workflows.contracts.inputs import MessageInput

UI = "http://127.0.0.1:8233"
LARGE = "walrus " * 40_000
WORDS = ("walrus", "petrel", "gannet", "puffin")


async def raw(system: System, session: str) -> dict[str, Any]:
    """A session's history as the server has it: nothing is decoded."""
    return (await system.workflow(session).fetch_history()).to_json_dict()


def payloads_of(value: Any) -> list[dict[str, Any]]:
    """Every payload in a history's JSON, wherever it is."""
    if isinstance(value, dict):
        inside = [found for part in value.values() for found in payloads_of(part)]
        return [value, *inside] if "encoding" in value.get("metadata", ()) else inside
    return [found for part in value for found in payloads_of(part)] if isinstance(value, list) else []


async def shown(system: System, payloads: list[dict[str, Any]], tenant: str) -> str:
    """What the codec server shows an admin of a tenant, as text."""
    said = {"X-Outlast-Tenant": tenant, "X-Outlast-Principal": "root", "X-Outlast-Roles": "admin"}
    answer = await system.http.post("/codec/decode", json={"payloads": payloads}, headers=said)
    assert answer.status_code == 200, answer.text
    decoded = [json_format.ParseDict(one, Payload()) for one in answer.json()["payloads"]]
    assert len(decoded) == len(payloads)
    return " ".join(one.data.decode(errors="replace") for one in decoded)


async def talk(system: System, tenant: str) -> None:
    said = {"X-Outlast-Tenant": tenant, "X-Outlast-Principal": "ann"}
    for body in (
        {"content": LARGE},
        {"content": "petrel"},
        {"tool_call_id": "c1", "tool_result": "puffin", "tool_outcome": "failed"},
    ):
        answer = await system.http.post("/api/chat", json={"session_id": "s1", **body}, headers=said)
        assert answer.status_code == 200, answer.text


async def test_temporal_keeps_no_word_of_a_conversation_and_its_tenants_admin_reads_all(database_url: str, temporal_address: str) -> None:
    scripted = script(says("gannet"), calls(("c1", "open_page", {"url": "petrel"})), says("gannet"))
    access = AccessSettings(mode="header", origins=[UI])
    async with running_system(database_url, temporal_address, scripted, codec=keys("a"), access=access) as system:
        await talk(system, system.tenant)
        history = await raw(system, "s1")
        kept = payloads_of(history)
        clear = json.dumps(history) + " ".join(base64.b64decode(one.get("data", "")).decode(errors="replace") for one in kept)
        assert not [word for word in WORDS if word in clear]
        assert not await system.conn.fetchval("select count(*) from payloads where position('walrus'::bytea in body) > 0")
        assert await system.conn.fetchval("select count(*) from payloads") > 0

        seen = await shown(system, kept, system.tenant)
        assert [word for word in WORDS if word in seen] == list(WORDS)
        assert not [word for word in WORDS if word in await shown(system, kept, f"{system.tenant}-other")]
        damaged = [{"metadata": {"encoding": kept[0]["metadata"]["encoding"]}, "data": "AAAA"}]
        assert await shown(system, damaged, system.tenant) == "\0\0\0"

        await doctor_knows(system)

        preflight = {"Origin": UI, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-namespace,content-type"}
        allowed = await system.http.options("/codec/decode", headers=preflight)
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, UI)


async def doctor_knows(system: System) -> None:
    """Which key is missing, or is another one than it was, is said for sessions that are open."""

    async def said(ring: CodecSettings, words: str = "") -> bool:
        found = Endpoints(system.settings.model_copy(update={"codec": ring}), system.address, None)
        finding = await check_codec(found, try_them=True)
        if words:
            return finding.verdict == "FAIL" and words in finding.text
        return finding == await check_codec(found, try_them=False)

    await system.until(lambda: said(keys("b"), "session/"))  # once the session is listed
    assert await said(keys("b", "c"), "encrypted with the key a, which is not in OUTLAST_CODEC__KEYS")
    assert await said(CodecSettings(), "encrypted with the key a, and OUTLAST_CODEC__KEYS is empty")
    other = keys("b").keys[0].get_secret_value().replace("b:", "a:", 1)
    assert await said(CodecSettings(keys=[SecretStr(other)]), "the key a is another one now")
    assert await said(keys("b", "a"))


async def test_commands_that_lack_a_key_say_which_and_what_to_do(database_url: str, temporal_address: str) -> None:
    async def told(*arguments: str, ring: CodecSettings) -> tuple[int | None, str, str]:
        kept = ",".join(key.get_secret_value() for key in ring.keys)
        where = {"OUTLAST_DATABASE__URL": database_url, "TEMPORAL_ADDRESS": temporal_address}
        return await ran(*arguments, at=where | ({"OUTLAST_CODEC__KEYS": kept} if kept else {}))

    none = "a payload was encrypted with the key a, and OUTLAST_CODEC__KEYS is empty: set it to the installation's keys"
    other = "a payload was encrypted with the key a, which is not in OUTLAST_CODEC__KEYS: add it behind the first one"
    scripted = script(says("gannet"), says("petrel"))
    async with running_system(database_url, temporal_address, scripted, codec=keys("a")) as system:
        for name in ("s1", "s2"):
            await system.chat(name, "walrus")
        for ring, problem in ((CodecSettings(), none), (keys("b"), other)):
            for command in ("verify", "rebuild"):
                code, out, err = await told(command, "--all", ring=ring)
                assert (code, out) == (1, "2 sessions: 2 can't be read\n"), (out, err)
                assert re.fullmatch(rf"outlast: {re.escape(problem)} \(2 sessions: \S+/s1 …\)\n", err), err
            code, out, err = await told("replay", "--from-server", "--query", f"OutlastTenant = '{system.tenant}'", ring=ring)
            assert (code, err) == (1, "") and problem in out and "KeyError" not in out, (out, err)
        assert (await told("verify", "--all", ring=keys("b", "a")))[:2] == (0, "2 sessions: 2 as their histories say\n")


async def test_stuck_without_a_key_says_of_whom_it_can_not_say_why(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    between = Between()
    between.after = failing("run_step", "puffin")
    async with running_system(database_url, temporal_address, script(says("gannet")), codec=keys("a"), interceptors=[between]) as system:
        await system.submit("s1", "walrus")

        async def told(ring: CodecSettings) -> str:
            calm = await run_stuck(system.settings.model_copy(update={"codec": ring}), Limits(2, timedelta(seconds=60)))
            text = capsys.readouterr().out
            return "" if calm else text

        assert "run_step (step 1) since 20" in (line := await system.until(lambda: told(keys("a")))) and ", Lost: puffin" in line
        for ring, lacks in ((CodecSettings(), "and OUTLAST_CODEC__KEYS is empty"), (keys("b"), "which is not in OUTLAST_CODEC__KEYS")):
            line = await told(ring)
            assert "run_step since 20" in line and f", Lost: a payload was encrypted with the key a, {lacks}" in line, line
        between.after = Between().after
        await system.idle("s1", 1)


async def test_sessions_go_on_when_encryption_begins_and_when_a_key_is_replaced(database_url: str, temporal_address: str) -> None:
    scripted = script(says("one"), says("two"), says("three"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", "walrus")
    for number, ring in enumerate((keys("a"), keys("b", "a"))):
        async with running_system(database_url, temporal_address, scripted, like=system, codec=ring) as again:
            assert (await again.chat("s1", "petrel"))["content"] == ("two", "three")[number]
            names = {
                base64.b64decode(one["metadata"]["encryption-key-id"]).decode()
                for one in payloads_of(await raw(again, "s1"))
                if "encryption-key-id" in one["metadata"]
            }
            assert names == ({"a"}, {"a", "b"})[number]


async def test_a_worker_that_has_no_key_yet_leaves_inputs_to_those_who_have_one(database_url: str, temporal_address: str) -> None:
    scripted = script(says("one"), calls(("c1", "open_page", {"url": "gannet"})), says("three"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", "walrus")
        with_key = await connect(
            system.settings.model_copy(update={"codec": keys("a")}), system.kit.storage, temporal_address, for_api=False
        )
        sealed = with_key.get_workflow_handle(system.workflow("s1").id)

        async def failed() -> bool:
            return (await sealed.describe()).raw_description.pending_workflow_task.attempt > 1

        await sealed.signal("message", MessageInput(content="petrel", id="m2", tenant=system.tenant))
        await system.until(failed)
    async with running_system(database_url, temporal_address, scripted, like=system, codec=keys("a")) as again:
        await again.until(lambda: again.conn.fetchval("select count(*) = 2 from turns where state <> 'running'"))
        assert (await again.resume("s1", "c1", "puffin")).json()["content"] == "three"
        assert [one["content"] for one in await again.messages("s1")] == ["walrus", "one", "petrel", "three"]


async def test_a_payload_that_an_operator_writes_is_encrypted_and_read_by_the_session(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("one")), codec=keys("a")) as system:
        said = {"content": "petrel", "id": "m1", "tenant": system.tenant}
        plain = {
            "metadata": {"encoding": base64.b64encode(b"json/plain").decode()},
            "data": base64.b64encode(json.dumps(said).encode()).decode(),
        }
        answer = await system.http.post("/codec/encode", json={"payloads": [plain]})
        (sealed,) = answer.json()["payloads"]
        assert base64.b64decode(sealed["metadata"]["encoding"]) == b"binary/encrypted"
        read = await system.http.post("/codec/decode", json={"payloads": [sealed]})
        assert json.loads(base64.b64decode(read.json()["payloads"][0]["data"])) == said
        bad = await system.http.post("/codec/decode", json={"payloads": [{"data": "A"}]})
        assert (bad.status_code, bad.json()["detail"]) == (422, "a payload is as Temporal's JSON writes it: metadata and data in base64")


async def test_without_keys_the_codec_server_shows_what_is_kept_elsewhere(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("one"))) as system:
        await system.chat("s1", LARGE)
        kept = payloads_of(await raw(system, "s1"))
        assert not [one for one in kept if "walrus" in base64.b64decode(one.get("data", "")).decode()]
        answer = await system.http.post("/codec/decode", json={"payloads": kept})
        assert [one for one in answer.json()["payloads"] if "walrus" in base64.b64decode(one.get("data", "")).decode()]


@pytest.mark.parametrize("ring", [(), ("a",)])
async def test_the_web_ui_gets_references_as_they_are_and_downloads_one(
    database_url: str, temporal_address: str, ring: tuple[str, ...]
) -> None:
    async with running_system(database_url, temporal_address, script(says("one")), codec=keys(*ring)) as system:
        await system.chat("s1", LARGE)
        await system.idle("s1", 1)  # then the answer is in the history, too
        kept = payloads_of(await raw(system, "s1"))
        page = (await system.http.post("/codec/decode?preserveStorageRefs=true", json={"payloads": kept})).json()["payloads"]
        references = [one for one in kept if "externalPayloads" in one]
        assert references and [one for one in page if one.get("externalPayloads")] == references
        assert any("one" in base64.b64decode(one.get("data", "")).decode() for one in page)

        got = await system.http.post("/codec/download?preserveStorageRefs=true", json={"payloads": references[:1]})
        assert got.status_code == 200 and "walrus walrus" in base64.b64decode(got.json()["payloads"][0]["data"]).decode()
        other = {"x-test-principal": "root", "x-test-roles": "admin", "x-test-tenant": f"{system.tenant}-other"}
        foreign = await system.http.post("/codec/download", json={"payloads": references[:1]}, headers=other)
        assert (foreign.status_code, foreign.json()["detail"]) == (404, "there is no such payload that can be read")
        none = await system.http.post("/codec/download", json={"payloads": [one for one in kept if one not in references][:1]})
        assert (none.status_code, none.json()["code"]) == (422, "bad_request")
