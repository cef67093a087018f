"""Cards, changes of a session's fields, its end and its alarms, on a real server; what activities do is scripted."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from tests.flows.scripted import Scripted, answers, asks_host, ended, refused, session_with
from tests.flows.test_meeting import accepted, held
from workflows.contracts import policies
from workflows.contracts.erasures import EraseHistories, EraseRows
from workflows.contracts.inputs import AmendInput, CardInput, CloseInput, SteerInput
from workflows.contracts.sessions import AmendSession, PostCard, Remind, Written
from workflows.contracts.steps import RunStep, StepDone
from workflows.contracts.turns import HandOver, NoteSteering
from workflows.model.call import OpenCall
from workflows.model.state import Head

SEGMENTS = [{"kind": "component", "type": "chart", "data": {}}]


def card(card_id: str = "k1", **fields: object) -> CardInput:
    return CardInput.model_validate({"id": card_id, "segments": SEGMENTS, **fields})


async def test_r169_card_twice_is_one_card_and_the_next_message_hangs_under_it(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        first, second = await asyncio.gather(session.send("card", card()), session.send("card", card()))
        assert first["message_id"] == second["message_id"] == "k1"
        await session.say()
        await ended(session, 2)
        assert (await refused(session.send("card", card(content="other")))).code == "duplicate_id"
    assert len(scripted.of(PostCard)) == 1
    opening = scripted.steps[1].opening
    assert opening and opening.message and opening.message.parent_id == "k1"


async def test_r172_card_late_or_in_the_middle_is_busy(temporal: Client) -> None:
    go_on = asyncio.Event()
    async with session_with(temporal, Scripted(step=held(go_on, 1, then=asks_host("c1")))) as session:
        await session.say()
        assert (await refused(session.send("card", card()))).code == "busy"
        go_on.set()
        await ended(session, 1)
        assert (await refused(session.send("card", card()))).code == "busy"


async def test_r173_a_card_begins_a_session_and_binds_it(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        await session.send("card", card(subject="anna"))
        assert (await refused(session.say(subject="ben"))).code == "binding_conflict"
        await session.say(subject="anna", profile="default")
        await ended(session, 1)
    assert scripted.of(PostCard)[0].birth.subject == "anna"


async def test_r175_what_is_no_card_is_refused(temporal: Client) -> None:
    async with session_with(temporal, Scripted()) as session:
        for segments in ([], SEGMENTS * 17, [{"kind": "text", "text": "x"}]):
            assert (await refused(session.send("card", card(segments=segments)))).code == "bad_request"
        await session.handle.result()


async def test_amend_twice_is_harmless_and_late_it_supersedes_what_is_pending(temporal: Client) -> None:
    scripted = Scripted(step=asks_host("c1"))
    async with session_with(temporal, scripted) as session:
        first = await session.say()
        await ended(session, 1)
        for _ in range(2):
            await session.send("amend", AmendInput(fields=("title",), title="Orders"))
        before = (await session.head()).revision
        await session.send("amend", AmendInput(fields=("active_leaf_id",), active_leaf_id=first["user_message_id"]))
        head = await session.head()
        assert (head.batch, head.leaf_id, head.revision) == (None, first["user_message_id"], before + 1)
    assert len(scripted.of(AmendSession)) == 3


async def test_r46_only_an_admin_changes_the_owner(temporal: Client) -> None:
    async with session_with(temporal, Scripted()) as session:
        await session.say()
        await ended(session, 1)
        change = AmendInput(fields=("owner_id",), owner_id="bob")
        assert (await refused(session.send("amend", change))).code == "forbidden"
        await session.send("amend", change.model_copy(update={"roles": ("admin",)}))
        assert (await refused(session.say())).code == "not_found"
        await session.say(principal="bob")


async def test_close_twice_and_late_leaves_the_id_to_a_new_session(temporal: Client) -> None:
    scripted = Scripted(step=asks_host("c1"))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        first = (await session.head()).session_uid
        results = await asyncio.gather(*(session.send("close", CloseInput()) for _ in range(2)), return_exceptions=True)
        assert sum(isinstance(result, dict) for result in results) == 1
        await session.handle.result()
        erasure = session.client.get_workflow_handle(f"erasure/{first}")
        await erasure.result()
        await session.say()
        await ended(session, 1)
        assert (await session.head()).session_uid != first
    assert len(scripted.of(EraseRows)) == 1
    assert scripted.of(EraseHistories)[0].session_uid == first


async def test_close_cancels_the_live_turn_first(temporal: Client) -> None:
    under_way = asyncio.Event()

    async def slow(step: RunStep) -> StepDone:
        under_way.set()
        await asyncio.sleep(60)
        return await answers(step)

    scripted = Scripted(step=slow)
    async with session_with(temporal, scripted) as session:
        await session.say()
        await under_way.wait()
        await session.say("then", when_busy="enqueue")
        await session.send("close", CloseInput())
        assert (await session.handle.describe()).status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED)
        await session.handle.result()
    assert [step.cancelled for step in scripted.steps] == [False, True]


async def test_replace_hangs_where_the_abandoned_message_hung(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        first = await session.say()
        await ended(session, 1)
        scripted.step = asks_host("c1")
        await session.say("second")
        await ended(session, 2)
        scripted.step = answers
        await session.say("third", when_busy="replace")
        await ended(session, 3)
        await session.say("fourth", when_busy="replace")
        await ended(session, 4)
    parents = [step.opening.message.parent_id for step in scripted.steps if step.opening and step.opening.message]
    third = scripted.steps[2].turn.message_id
    assert parents == [None, first["message_id"], first["message_id"], third]


def _timed(
    deadline: float | None, remind: float | None, *call_ids: str, handover: Literal["one", "all"] = "one", ago: float = 0.0
) -> Scripted:
    """The model asks for these calls, which have been waited for for `ago` seconds already."""
    calls = tuple(
        OpenCall(call_id=call_id, tool_name="open_page", category="host", deadline_seconds=deadline, remind_seconds=remind)
        for call_id in call_ids
    )

    async def script(step: RunStep) -> StepDone:
        if step.turn.kind == "continuation":
            return StepDone(state="answered", at=_now())
        return StepDone(state="paused", host_calls=calls, handover=handover, at=_now(ago))

    return Scripted(step=script)


def _now(ago: float = 0.0) -> str:
    return (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()


def _answered_early(scripted: Scripted, go_on: asyncio.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds the model's first answer. A result that comes meanwhile waits, and is taken as soon as the call is asked for: no deadline is before it."""
    monkeypatch.setattr(policies, "LATE_INPUT_WAIT", timedelta(hours=1))
    scripted.step = held(go_on, 1, then=scripted.step)


async def test_s58_a_deadline_records_unknown_and_the_model_goes_on(temporal: Client) -> None:
    scripted = _timed(0.6, 0.2, "c1", "c2")
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 3)
        assert (await refused(session.answer("c1"))).facts["recorded_status"] == "unknown"
    assert [asked.call_id for asked in scripted.of(Remind)] == ["c1", "c2"][: len(scripted.of(Remind))]
    assert scripted.of(Remind)[0].call_id == "c1"
    assert [asked.result.outcome for asked in scripted.of(HandOver)] == ["expired"]
    last = scripted.steps[-1].opening
    assert last and last.result and last.result.outcome == "expired"


async def test_s58_a_result_in_time_disarms_the_deadline(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline, go_on = 3.0, asyncio.Event()
    scripted = _timed(deadline, None, "c1")
    _answered_early(scripted, go_on, monkeypatch)
    async with session_with(temporal, scripted) as session:
        await session.say()
        answer = asyncio.create_task(session.answer("c1"))
        await accepted(session, 2)
        go_on.set()
        await answer
        await ended(session, 2)
        await asyncio.sleep(deadline + 0.3)
        assert (await session.head()).turn_number == 2


async def test_s58_a_result_does_not_put_off_the_deadlines_of_the_others(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline, left, go_on = 3600.0, 3.0, asyncio.Event()
    scripted = _timed(deadline, None, "c1", "c2", handover="all", ago=deadline - left)
    _answered_early(scripted, go_on, monkeypatch)
    async with session_with(temporal, scripted) as session:
        await session.say()
        answer = asyncio.create_task(session.answer("c1"))
        await accepted(session, 2)
        due = datetime.now(UTC) + timedelta(seconds=left)
        go_on.set()
        await answer
        await ended(session, 3)  # counted from the result, it would be due in an hour
        expired = scripted.steps[-1]
        assert expired.opening and expired.opening.result and expired.opening.result.call_id == "c2"
        assert datetime.fromisoformat(expired.turn.accepted_at) >= due


async def test_r176_r178_expiry_slides_with_every_turn_and_ends_the_session(temporal: Client) -> None:
    due: list[datetime] = []
    go_on = asyncio.Event()

    async def expiring(step: RunStep) -> StepDone:
        at = datetime.now(UTC)
        due.append(at + timedelta(seconds=step.turn.number))
        return StepDone(state="answered", at=at.isoformat(), expires_at=due[-1].isoformat())

    scripted = Scripted(step=held(go_on, 1, then=expiring))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await session.say(when_busy="enqueue")
        go_on.set()
        await session.handle.result()
        (erased,) = scripted.of(EraseRows)
        assert datetime.fromisoformat(erased.at) >= due[1] > due[0]


async def test_l12_a_card_that_the_rows_refuse_is_refused(temporal: Client) -> None:
    scripted = Scripted(written=Written(refused="duplicate_id", reason="taken"))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        for _ in range(2):
            assert (await refused(session.send("card", card()))).code == "duplicate_id"
        assert (await session.head()).revision == 2
    assert len(scripted.of(PostCard)) == 2


async def test_s39_of_two_cards_that_expect_the_same_revision_one_is_posted(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        revision = (await session.head()).revision
        cards = [session.send("card", card(name, expected_revision=revision)) for name in ("k1", "k2")]
        results = await asyncio.gather(*cards, return_exceptions=True)
        assert sorted(getattr(result, "code", "posted") for result in results) == ["conversation_conflict", "posted"]
        assert (await session.head()).revision == revision + 1
    assert len(scripted.of(PostCard)) == 1


async def test_r177_an_input_that_finds_the_time_over_ends_the_session(temporal: Client) -> None:
    """No timer of this run: the rows say that the time was over long ago. The next input begins anew."""
    over = Head(session_uid=str(uuid4()), owner="local", default_profile="default", expires_at="2026-01-01T00:00:00+00:00", turn_number=3)
    scripted = Scripted(head=over)
    async with session_with(temporal, scripted) as session:
        assert (await refused(session.say())).code == "closed"
        await session.handle.result()
        scripted.head = Head(default_profile="default")
        await session.say()
        await ended(session, 1)
        assert (await session.head()).session_uid != over.session_uid
    assert [erased.session.session_uid for erased in scripted.of(EraseRows)] == [over.session_uid]


async def test_r154_steering_keeps_the_turn_that_it_gets(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        receipts = [await session.send("steer", SteerInput(id="g1", content="be brief")) for _ in range(2)]
        assert receipts[0] == receipts[1] and receipts[0]["delivery"] == "promoted"
    assert [noted.own_turn_id for noted in scripted.of(NoteSteering)] == [receipts[0]["turn_id"]]


async def test_r52_steering_names_the_profile_that_the_session_is_bound_to(temporal: Client) -> None:
    async with session_with(temporal, Scripted()) as session:
        await session.say(subject="anna")
        await ended(session, 1)
        assert (await refused(session.send("steer", SteerInput(content="x", profile="other")))).code == "binding_conflict"
