"""Where pause tokens are shown: to the owner, with every call that may be answered, the same one again and newer ones in reads."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import jwt
from pydantic import SecretStr

from settings import SigningSettings
from tests.http.sse import opened, until_turn_ends
from tests.http.test_handover import THREE
from tests.http.test_host_actions import ONE, TWO
from tests.http.test_resume import ALICE, asked, redeem, said, signed_again, tokens_in
from tests.models import says, script
from tests.services import SIGNING_KEY
from tests.system import running_system


async def test_s45_a_token_is_shown_to_the_owner_wherever_the_call_is(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(TWO, TWO, says("ok")), apis=2) as system:
        body = {"session_id": "s1", "content": "go", "id": "m1"}
        answer = (await system.post("/chat", body, headers=ALICE)).json()
        [token] = tokens_in(answer)
        assert answer["pending_tool_call"]["pause_token"] == token
        events = "/api/sessions/s1/events?until=turn"
        frames = await until_turn_ends(system.apis[1], events, **ALICE)
        assert [frame.type for frame in frames if list(tokens_in(frame.data))] == ["host_action.pending", "turn.final"]
        assert {found for frame in frames for found in tokens_in(frame.data)} == {token}
        assert frames[-2].own | {"session_id": "s1", "turn_id": answer["turn_id"]} == answer
        # shown again it is the same: a repeated message, a stream that goes on
        assert (await system.post("/chat", body, api=1, headers=ALICE)).json() == answer
        for place in range(len(frames) - 1):
            assert await until_turn_ends(system.http, f"{events}&after={frames[place].id}", **ALICE) == frames[place + 1 :]
        inbox = await system.get("/host-actions", headers=ALICE)
        assert list(tokens_in(inbox)) == list(tokens_in(await system.get("/sessions/s1", headers=ALICE))) == [token]
        # an admin sees the call, and can answer it in its own name, but gets no token
        for path in ("/sessions/s1", "/host-actions"):
            assert not list(tokens_in(await system.get(path)))
        assert not [found for frame in await until_turn_ends(system.http, events) for found in tokens_in(frame.data)]
        assert not list(tokens_in((await system.resume("s1", "c1")).json()))
        waiting = (await system.get("/sessions/s1", headers=ALICE))["pending_action"]
        assert waiting["tool_call_id"] == "c2" and list(tokens_in(waiting)) == [waiting["pause_token"]]
        # no row has one
        rows = await system.conn.fetch("select final::text as it from turns union all select data::text from events")
        assert not [row for row in rows if "pause_token" in row["it"]]


async def test_s45_who_reads_a_token_can_use_it_at_once(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(*([ONE, says("ok")] * 8)), apis=2) as system:
        for number in range(8):
            events = await system.post("/chat?wait=false", {"session_id": f"s{number}", "content": "go"}, headers=ALICE)
            async with opened(system.http, events.json()["events"] + "&until=turn", headers=ALICE) as (_, frames), aclosing(frames):  # type: ignore[type-var]
                async for frame in frames:
                    if frame.type == "host_action.pending":
                        assert (await redeem(system, frame.data["pending_action"]["pause_token"], api=1)).status_code == 200


async def test_r126_each_call_that_may_be_answered_has_a_token(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(THREE, says("all done"), THREE, says("x")), apis=2) as system:
        shown = await asked(system, "s1", config={"handover": "all"})
        tokens = [shown["pause_token"], *(call["pause_token"] for call in shown["queued"])]
        view = (await system.get("/sessions/s1", headers=ALICE))["pending_action"]
        assert list(tokens_in(view)) == tokens and len(set(tokens)) == 3
        for place, left in ((2, 2), (0, 1)):
            answer = (await redeem(system, tokens[place], api=place % 2)).json()
            assert len(list(tokens_in(answer))) == left
        assert (await redeem(system, tokens[1])).json()["content"] == "all done"
        one = await asked(system, "s2")
        assert list(tokens_in(one)) == [one["pause_token"]]
        second = signed_again(one["pause_token"], call="c2")
        assert said(await redeem(system, second)) == (409, "call_mismatch")


async def test_s60_tokens_outlive_restarts_and_a_new_key(database_url: str, temporal_address: str) -> None:
    scripted = script(ONE, says("ok"))
    new = "new:" + SIGNING_KEY.partition(":")[2]
    async with running_system(database_url, temporal_address, scripted) as system:
        token = (await asked(system, "s1"))["pause_token"]
        await system.workflow("s1").terminate("gone")
    rotated = SigningSettings(keys=[SecretStr(new), SecretStr(SIGNING_KEY)])
    async with running_system(database_url, temporal_address, scripted, like=system, signing=rotated) as system:
        shown = (await system.get("/sessions/s1", headers=ALICE))["pending_action"]["pause_token"]
        assert jwt.get_unverified_header(shown)["kid"] == "new" != jwt.get_unverified_header(token)["kid"]
        assert (await redeem(system, token)).status_code == 200


async def test_s48_reads_show_a_token_that_is_good_for_a_while(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(ONE, says("ok")), pause_token_ttl_seconds=6.0) as system:
        first = (await asked(system, "s1"))["pause_token"]

        async def token() -> Any:
            return (await system.get("/sessions/s1", headers=ALICE))["pending_action"]["pause_token"]

        while (shown := await token()) == first:
            await asyncio.sleep(0.1)
        left = jwt.decode(shown, options={"verify_signature": False})["exp"] - datetime.now(UTC).timestamp()
        assert 2 < left <= 7
        assert jwt.decode(first, options={"verify_signature": False})["exp"] < jwt.decode(shown, options={"verify_signature": False})["exp"]
        await system.until(lambda: _over(first))
        assert said(await redeem(system, first)) == (410, "expired_token")
        assert (await redeem(system, await token())).status_code == 200


def _over(token: str) -> bool:
    return bool(jwt.decode(token, options={"verify_signature": False})["exp"] <= datetime.now(UTC).timestamp())
