"""The public keys of the identity provider: fetched, kept for a while, and fetched again when a token names one that nobody knows."""

import asyncio
import logging
import math
import time
from typing import Any
from urllib.parse import urlsplit

import httpx

from settings import AccessSettings
from workflows.contracts.errors import OutlastError

FETCH_SECONDS = 5.0

Jwk = dict[str, Any]
_log = logging.getLogger(__name__)


class JwksUnavailable(OutlastError):
    """No key that was fetched before fits, and none can be fetched now. `retry_after`: seconds until it is tried again."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the identity provider's public keys can't be fetched, so no token can be checked")
        self.retry_after = retry_after


class KeySet:
    """The keys behind `jwks_url`. They are fetched by one request at a time, and at most once in `jwks_pause_seconds`."""

    def __init__(self, settings: AccessSettings) -> None:
        self._settings = settings
        self._http = httpx.AsyncClient(timeout=FETCH_SECONDS)
        self._lock = asyncio.Lock()
        self._keys: list[Jwk] = []
        self._fetched: float | None = None
        self._tried: float | None = None
        self._lost = False

    async def key(self, kid: str | None) -> Jwk | None:
        """The key of that id; None if the identity provider has none. Without an id: its only key.

        An old key is used while the provider can't be reached. Raises JwksUnavailable.
        """
        found = self._find(kid)
        if (found is None or self._is_old()) and self._pause() <= 0:
            async with self._lock:
                if self._pause() <= 0:
                    await self._fetch()
            found = self._find(kid)
        if found is None and self._lost:
            raise JwksUnavailable(max(1, math.ceil(self._pause())))
        return found

    async def close(self) -> None:
        """Closes the connection to the provider."""
        await self._http.aclose()

    def _find(self, kid: str | None) -> Jwk | None:
        fits = self._keys if kid is None else [key for key in self._keys if key.get("kid") == kid]
        return fits[0] if len(fits) == 1 else None

    def _is_old(self) -> bool:
        return self._fetched is None or time.monotonic() - self._fetched >= self._settings.jwks_cache_seconds

    def _pause(self) -> float:
        """Seconds until the keys may be fetched again."""
        return 0.0 if self._tried is None else self._tried + self._settings.jwks_pause_seconds - time.monotonic()

    async def _fetch(self) -> None:
        self._lost = True
        try:
            url = httpx.URL(self._settings.jwks_url)
            # Credentials go beside the address, not in it: the client logs addresses.
            known = httpx.BasicAuth(url.username, url.password) if url.userinfo else None
            async with asyncio.timeout(FETCH_SECONDS):
                answer = await self._http.get(url.copy_with(userinfo=b""), auth=known)
            self._keys = _signing_keys(answer.raise_for_status().json())
            self._fetched, self._lost = time.monotonic(), False
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
            _log.warning("no public keys from %s: %s", urlsplit(self._settings.jwks_url).hostname, _reason(error))
        finally:
            self._tried = time.monotonic()


def _reason(error: Exception) -> str:
    """What went wrong, without the address: it may hold a password."""
    return f"HTTP {error.response.status_code}" if isinstance(error, httpx.HTTPStatusError) else type(error).__name__


def _signing_keys(document: Any) -> list[Jwk]:
    """The keys that may check signatures. Raises ValueError for what is not a key set."""
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise ValueError("the answer is not a JSON Web Key Set")
    return [key for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig" and key.get("kty") in ("RSA", "EC", "OKP")]


__all__ = ["Jwk", "JwksUnavailable", "KeySet"]
