"""Inputs that wait for the same thing and wake up at the same moment: each is judged by what the one before it has made of the session."""

import asyncio
from dataclasses import dataclass, field

from temporalio import activity
from temporalio.client import Client

from tests.flows.scripted import Scripted, ended, refused, session_with
from tests.flows.test_meeting import accepted, held, held_noting
from tests.services import PATIENCE_SECONDS
from workflows.contracts.inputs import AmendInput, CardInput, CloseInput, ContinuationInput, RetryInput, RowsSaid, SteerInput
from workflows.contracts.sessions import PostCard, Written

NOTE = [{"kind": "component", "type": "note"}]


async def test_s40_a_result_and_a_retry_that_wake_up_behind_a_card_wait_for_it_too(temporal: Client) -> None:
    go_on = asyncio.Event()
    async with session_with(temporal, Scripted(step=held(go_on, 1))) as session:
        turn = await session.say()
        rows = RowsSaid(session_uid="x", turn=True, ended_turn=turn["turn_id"])
        move = AmendInput(fields=("active_leaf_id",), active_leaf_id="m", rows=rows)
        waiting = []
        for name, asked in (
            ("card", CardInput(segments=NOTE, rows=rows)),
            ("amend", move),
            ("continuation", ContinuationInput(tool_call_id="c1", rows=rows)),
            ("retry", RetryInput(turn_id=turn["turn_id"], rows=rows)),
        ):
            waiting.append(asyncio.create_task(session.send(name, asked)))
            await accepted(session, 1 + len(waiting))
        go_on.set()
        card, moved, result, retry = waiting
        assert (await card)["message_id"] and (await moved)["revision"]
        assert ((await refused(result)).code, (await refused(retry)).code) == ("not_pending", "not_retryable")


@dataclass
class RefusesTheFirst(Scripted):
    """The first card is held, then refused by the rows; later ones are written."""

    posting: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn
    async def post_card(self, card: PostCard) -> Written:
        self.asked.append(card)
        self.posting.set()
        await self.go_on.wait()
        return Written(refused="conversation_conflict", reason="not now") if len(self.of(PostCard)) == 1 else Written()


async def test_s56_of_several_that_wait_for_a_key_whose_first_use_was_refused_one_is_the_next_first(temporal: Client) -> None:
    scripted = RefusesTheFirst()
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        first = asyncio.create_task(refused(session.send("card", CardInput(segments=NOTE, key="k"))))
        await scripted.posting.wait()
        again = [asyncio.create_task(session.send("card", CardInput(segments=NOTE, key="k"))) for _ in range(3)]
        await accepted(session, 5)
        scripted.go_on.set()
        assert (await first).code == "conversation_conflict"
        answers = await asyncio.gather(*again)
    assert len({answer["message_id"] for answer in answers}) == 1
    assert len(scripted.of(PostCard)) == 2, "the refused one and one that was written"


async def test_r154_steering_that_waits_for_the_answer_of_its_first_ends_with_the_session(temporal: Client) -> None:
    noting, go_on = asyncio.Event(), asyncio.Event()
    async with session_with(temporal, Scripted(noting=held_noting(noting, go_on))) as session:
        await session.say()
        await ended(session, 1)
        first = asyncio.create_task(refused(session.send("steer", SteerInput(id="g1", content="brief"))))
        await noting.wait()
        again = [asyncio.create_task(refused(session.send("steer", SteerInput(id="g1", content="brief")))) for _ in range(2)]
        await accepted(session, 4)
        await session.send("close", CloseInput())
        go_on.set()
        assert {(await one).code for one in (first, *again)} == {"closed"}
        async with asyncio.timeout(PATIENCE_SECONDS):
            await session.handle.result()


async def test_s40_a_result_by_signal_that_wakes_up_behind_a_card_waits_for_it_too(temporal: Client) -> None:
    go_on = asyncio.Event()
    async with session_with(temporal, Scripted(step=held(go_on, 1))) as session:
        turn = await session.say()
        rows = RowsSaid(session_uid="x", turn=True, ended_turn=turn["turn_id"])
        card = asyncio.create_task(session.send("card", CardInput(segments=NOTE, rows=rows)))
        await accepted(session, 2)
        await session.handle.signal("host_result", ContinuationInput(tool_call_id="c1"))
        await session.head()
        go_on.set()
        assert (await card)["message_id"]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (refusals := await session.handle.query("refusals")):
                await asyncio.sleep(0.02)
        assert [refusal["code"] for refusal in refusals] == ["not_pending"]
