"""Who sent a request, by the access mode: from the address, a proxy's headers, an API key or a token. Then: not too often."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.datastructures import Headers

from activities.db.api_keys import ApiKeys
from api.bearer import Claims, TokenRefused, read_token
from api.errors import RequestRefused
from api.jwks import JwksUnavailable, KeySet
from api.rate import Rate
from settings import AccessSettings
from workflows.contracts.errors import OutlastError
from workflows.contracts.naming import party_problem
from workflows.model.session import ROLES, Caller

LOCAL = Caller(tenant="default", principal="local", roles=("admin",))

TENANT, PRINCIPAL, ROLES_HEADER = "X-Outlast-Tenant", "X-Outlast-Principal", "X-Outlast-Roles"
_PROXY = f'{PRINCIPAL} realm="outlast"'
_BEARER = 'Bearer realm="outlast"'
_REFUSED = 'Bearer realm="outlast", error="invalid_token"'


class _BadHeader(OutlastError):
    """A header that names nobody."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls, and under what its requests are counted."""

    caller: Caller
    counted_as: tuple[str, ...]


class Access:
    """The access mode of a running api."""

    def __init__(self, settings: AccessSettings, keys: ApiKeys) -> None:
        self._settings = settings
        self._keys = keys
        self._jwks = KeySet(settings)
        self._rate = Rate(settings.rate_limit)
        modes: dict[str, Callable[[Headers], Awaitable[Identity]]] = {
            "local": _by_address,
            "header": _by_headers,
            "key": self._by_key,
            "jwt": self._by_token,
        }
        self._identify = modes[settings.mode]

    async def identify(self, headers: Headers) -> Caller:
        """The caller. Raises RequestRefused (401, 403, 429, 503), and ServiceUnavailable where keys can't be looked up."""
        found = await self._identify(headers)
        await self._rate.count(found.counted_as)
        return found.caller

    async def close(self) -> None:
        """Lets go of connections."""
        await self._jwks.close()

    async def _by_key(self, headers: Headers) -> Identity:
        text = _bearer(headers, "an API key: `Authorization: Bearer olk_…` (`outlast keys create` makes one)")
        key = await self._keys.find(text, datetime.now(UTC))
        if key is None:
            raise _unauthenticated("this API key is unknown, revoked or expired; `outlast keys list` shows those there are", _REFUSED)
        own = Caller(tenant=key.tenant, principal=key.principal, roles=key.roles)
        return Identity(_speaker(own, headers), ("key", key.key_id))

    async def _by_token(self, headers: Headers) -> Identity:
        text = _bearer(headers, "a token of the identity provider: `Authorization: Bearer …`")
        try:
            own = _claimed(await read_token(text, self._settings, self._jwks))
        except TokenRefused as error:
            raise _unauthenticated(str(error), _REFUSED) from error
        except JwksUnavailable as error:
            retry = {"Retry-After": str(error.retry_after)}
            raise RequestRefused(503, str(error), "identity_unavailable", headers=retry, maybe_happened=False) from error
        return Identity(_speaker(own, headers), (own.tenant, own.principal))


async def _by_address(headers: Headers) -> Identity:
    return Identity(LOCAL, (LOCAL.tenant, LOCAL.principal))


async def _by_headers(headers: Headers) -> Identity:
    try:
        principal, tenant = _party(headers, PRINCIPAL), _party(headers, TENANT) or LOCAL.tenant
    except _BadHeader as error:
        raise _unauthenticated(str(error), _PROXY) from error
    if principal is None:
        raise _unauthenticated(f"the header {PRINCIPAL} is missing: the proxy in front of this API must set it", _PROXY)
    said = ",".join(headers.getlist(ROLES_HEADER)).split(",")
    return Identity(Caller(tenant=tenant, principal=principal, roles=_known(said)), (tenant, principal))


def _claimed(claims: Claims) -> Caller:
    for name, value in (("tenant", claims.tenant), ("principal", claims.principal)):
        if (problem := party_problem(value)) is not None:
            raise TokenRefused(f"the token's {name} {problem}")
    return Caller(tenant=claims.tenant, principal=claims.principal, roles=_known(claims.roles))


def _speaker(own: Caller, headers: Headers) -> Caller:
    """Who a key or token speaks for: a service for whom it names, and then with no other role of its own; everyone else for itself."""
    try:
        tenant, principal = _party(headers, TENANT) or own.tenant, _party(headers, PRINCIPAL) or own.principal
    except _BadHeader as error:
        raise RequestRefused(422, str(error)) from error
    if tenant != own.tenant:
        raise RequestRefused(403, f"{TENANT} names another tenant than the one that the key or token is of")
    if principal == own.principal:
        return own
    if "service" not in own.roles:
        raise RequestRefused(403, f"{PRINCIPAL} names somebody else: only the role `service` may speak for others")
    return Caller(tenant=tenant, principal=principal, roles=("service",))


def _known(roles: "list[str] | tuple[str, ...]") -> tuple[str, ...]:
    said = {role.strip() for role in roles}
    return tuple(role for role in ROLES if role in said)


def _bearer(headers: Headers, wanted: str) -> str:
    """The token of the one `Authorization: Bearer …`."""
    said = headers.getlist("Authorization")
    if not said:
        raise _unauthenticated(f"this needs {wanted}", _BEARER)
    scheme, _, token = said[0].strip().partition(" ")
    if len(said) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise _unauthenticated(f"the Authorization header is not {wanted}", _BEARER)
    return token.strip()


def _party(headers: Headers, name: str) -> str | None:
    """A header that names a tenant or principal: the bytes that came, read as UTF-8. Raises _BadHeader; twice is one too many."""
    said = headers.getlist(name)
    if not said:
        return None
    try:
        value = said[0].encode("latin-1").decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise _BadHeader(f"the header {name} is not UTF-8") from error
    problem = "came twice" if len(said) > 1 else party_problem(value)
    if problem is not None:
        raise _BadHeader(f"the header {name} {problem}")
    return value


def _unauthenticated(detail: str, challenge: str) -> RequestRefused:
    return RequestRefused(401, detail, headers={"WWW-Authenticate": challenge})


__all__ = ["LOCAL", "PRINCIPAL", "TENANT", "Access"]
