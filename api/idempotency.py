"""The header `Idempotency-Key`: the same request again is the same write and gets the first one's answer, for 24 hours."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, TypeVar
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from fastapi import Depends, Header
from pydantic import BaseModel, TypeAdapter

from activities.db.keys import KeyOf, Request, Reserved
from api.access import CallerDep, require_visible
from api.deps import Api, ApiDep
from api.errors import RequestRefused
from workflows.contracts.errors import Refusal, ServiceUnavailable
from workflows.model.session import Caller

Token = str | None
"""What the session's workflow knows a keyed write by: the same for its repeats, and only for those. None: no key."""

T = TypeVar("T")
Done = tuple[UUID | None, T]
"""What a write answers, and which session that is of: with it the answer goes, and who may not see it (any more) is not told. None: of none."""

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x20-\x7e]{1,255}$",
        description="1 to 255 printable characters. The same request again under the same key is answered as the first one was",
    ),
]


class Once:
    """Does a write once for its key, or every time where there is none."""

    def __init__(self, api: Api, caller: Caller, key: str | None) -> None:
        self._api = api
        self._caller = caller
        self._key = None if key is None else KeyOf(caller.tenant, caller.principal, key)

    async def run(
        self,
        do: Callable[[Token], Awaitable[Done[T]]],
        answer: TypeAdapter[T],
        *,
        route: str,
        body: BaseModel | None = None,
        status: int = 200,
    ) -> T:
        """What `do` answers, or answered under this key before.

        A write that was refused has not used its key. Raises the refusal `duplicate_id` for a key that came with another request, and
        `not_found` where the session has another owner by now.
        """
        if self._key is None:
            return (await do(None))[1]
        request = Request(route, _digest(route, body))
        reserved = await self._api.keys.reserve(self._key, request)
        if reserved.digest != request.digest:
            raise Refusal("duplicate_id", "the Idempotency-Key was used with another request; nothing was changed")
        if reserved.answer is not None:
            if reserved.of_session:
                require_visible(self._caller, reserved.owner)
            return answer.validate_json(reserved.answer)
        session_uid, given = await self._do(do, self._key, reserved)
        with suppress(ServiceUnavailable):  # the session's workflow knows it still
            await self._api.keys.keep(self._key, request, reserved.since, status, answer.dump_json(given).decode(), session_uid)
        return given

    async def _do(self, do: Callable[[Token], Awaitable[Done[T]]], key: KeyOf, reserved: Reserved) -> Done[T]:
        try:
            return await do(_token(key, reserved))
        except (Refusal, RequestRefused, ServiceUnavailable) as error:
            if not (isinstance(error, ServiceUnavailable) and error.maybe_happened):
                with suppress(ServiceUnavailable):
                    await self._api.keys.release(key, reserved.since)
            raise


async def once(api: ApiDep, caller: CallerDep, key: KeyHeader = None) -> Once:
    """The request's key, ready for its write."""
    return Once(api, caller, key)


OnceDep = Annotated[Once, Depends(once)]


def named(token: Token, what: str) -> str:
    """An id that the client did not choose: the same one for a repeat under its key."""
    return str(uuid5(NAMESPACE_OID, f"{token}/{what}")) if token else str(uuid4())


def _digest(route: str, body: BaseModel | None) -> str:
    said = body.model_dump(mode="json", exclude_unset=True) if body is not None else None
    return hashlib.sha256(json.dumps([route, said], sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _token(key: KeyOf, reserved: Reserved) -> str:
    said = [key.tenant, key.principal, key.key, reserved.digest, reserved.since.isoformat()]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]
