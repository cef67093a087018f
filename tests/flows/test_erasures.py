"""The flows of erasures on a real server; what activities do is scripted."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from tests.chains import chain_of
from worker import WORKFLOWS, flow_digest, workflow_runner
from workflows.contracts import policies
from workflows.contracts.erasures import DeleteRuns, Erased, EraseHistories, ErasePayloads, FoundRuns, VerifyErasure
from workflows.contracts.naming import ERASURE_WORKFLOW, PRINCIPAL_ERASURE_WORKFLOW
from workflows.contracts.principal_erasures import ErasePrincipal, EraseSessions, FoundSessions, PrincipalErased
from workflows.model.session import SessionRef

PAGES = 12


class Pages:
    """A principal with many sessions. One of them comes to light only when the last look is taken."""

    def __init__(self) -> None:
        self.left = [SessionRef(tenant="t", session_id=f"s{number}", session_uid=str(uuid4())) for number in range(PAGES)]
        self.taken: Counter[str] = Counter()
        self.begun: list[ErasePrincipal] = []
        self.looks = 0

    @activity.defn
    async def begin_principal_erasure(self, erase: ErasePrincipal) -> None:
        self.begun.append(erase)

    @activity.defn
    async def find_sessions(self, erase: ErasePrincipal) -> FoundSessions:
        return FoundSessions(sessions=tuple(self.left[:1]))

    @activity.defn
    async def erase_sessions(self, erase: EraseSessions) -> None:
        (session,) = erase.sessions
        self.taken[session.session_id] += 1
        if self.taken["s3"] == 1 and session.session_id == "s3":
            raise ApplicationError("lost")
        self.left.remove(session)

    @activity.defn
    async def verify_principal_erasure(self, erase: ErasePrincipal) -> PrincipalErased:
        self.looks += 1
        if self.looks == 1:
            self.left.append(SessionRef(tenant="t", session_id="late", session_uid=str(uuid4())))
        return PrincipalErased(verified=self.looks > 1)


class Runs:
    """A session whose runs show up one after the other."""

    def __init__(self) -> None:
        self.found = [("r3", "r2"), (), ("r1",), (), ()]
        self.asked: list[Any] = []
        self.verified = [False, False, True]

    @activity.defn
    async def find_runs(self, erase: EraseHistories) -> FoundRuns:
        return FoundRuns(run_ids=self.found.pop(0))

    @activity.defn
    async def delete_runs(self, delete: DeleteRuns) -> None:
        self.asked.append(delete.run_ids)

    @activity.defn
    async def erase_payloads(self, erase: ErasePayloads) -> None:
        self.asked.append(("payloads", erase.run_ids))

    @activity.defn
    async def verify_erasure(self, verify: VerifyErasure) -> Erased:
        return Erased(workflow_runs=verify.workflow_runs, verified=self.verified.pop(0))


def worker_of(client: Client, queue: str, *activities: Callable[..., Any]) -> Worker:
    return Worker(
        client, task_queue=queue, workflows=WORKFLOWS, activities=activities, workflow_runner=workflow_runner(), build_id=flow_digest()
    )


async def test_s20_thousands_of_sessions_go_page_by_page_in_short_histories(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "ROLL_EVENTS", 50)
    pages, queue = Pages(), f"erasure-{uuid4().hex[:8]}"
    activities = (pages.begin_principal_erasure, pages.find_sessions, pages.erase_sessions, pages.verify_principal_erasure)
    async with worker_of(temporal, queue, *activities):
        erase = ErasePrincipal(erasure_id="e1", tenant="t", principal="p", by="operator")
        handle = await temporal.start_workflow(PRINCIPAL_ERASURE_WORKFLOW, erase, id=queue, task_queue=queue, result_type=str)
        assert await handle.result() == "e1"
    assert [session for session, times in pages.taken.items() if times > 1] == ["s3"], "what failed is asked for again, nothing else"
    assert len(pages.taken) == PAGES + 1 and "late" in pages.taken and not pages.left
    (began,) = pages.begun
    assert began.at and began.by == "operator"
    lengths = [len(run.events) for run in await chain_of(temporal, queue)]
    assert len(lengths) >= 3 and max(lengths) < 100


async def test_s20_an_erasure_looks_until_nothing_is_left_and_counts_each_run_once(temporal: Client) -> None:
    runs, queue = Runs(), f"erasure-{uuid4().hex[:8]}"
    async with worker_of(temporal, queue, runs.find_runs, runs.delete_runs, runs.erase_payloads, runs.verify_erasure):
        erase = EraseHistories(workflow_id="w", session_uid=str(uuid4()), run_ids=("r3",), before="2026-01-01T00:00:00Z")
        done: Erased = await temporal.execute_workflow(ERASURE_WORKFLOW, erase, id=queue, task_queue=queue, result_type=Erased)
    assert (done.workflow_runs, done.verified) == (3, True)
    over = ("payloads", ())
    assert runs.asked == [("payloads", ("r3", "r2")), ("r3", "r2"), over, over, ("payloads", ("r1",)), ("r1",), over]
