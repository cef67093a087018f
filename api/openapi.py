"""What the OpenAPI document says beyond what FastAPI finds out itself: problem answers, streams, and the page that shows it offline."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from api.answers import Problem
from api.identity import PRINCIPAL

Responses = dict[int | str, dict[str, Any]]

_MEANINGS = {
    401: "No identity",
    403: "The role or the page's origin does not allow it",
    404: "Absent, or not the caller's",
    409: "Does not fit the session's state; `code` says how",
    410: "Its time is over",
    413: "Too large",
    415: "The body is not JSON",
    422: "The request is not well-formed",
    429: "Over a budget or a rate limit; try again after `Retry-After` seconds",
    503: "Postgres, Temporal or the identity provider is not there; try again after `Retry-After` seconds",
}
_ASSETS = Path(fastapi_offline.__file__).parent / "static"

_EVERYWHERE = (401, 429, 503)
"""What any route that asks who calls may answer."""

_BEARER = {"key": "An API key, `olk_…`", "jwt": "A token of the identity provider"}
STREAM: Responses = {
    200: {
        "description": "Server-sent events; `id` is the cursor behind the event, `data` a JSON object with `type, session_id, turn_id, seq, at`",
        "content": {
            "text/event-stream": {
                "schema": {"type": "object", "properties": {name: {"type": "string"} for name in ("id", "event", "data")}}
            }
        },
    }
}


OPEN = ("/health", "/metrics")
"""How the paths begin that answer everybody."""


def problems(*statuses: int) -> Responses:
    """The error answers of a route."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in statuses}


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once. Errors are of media type `application/problem+json`; the security scheme is the access mode's."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        scheme = _scheme(app.state.settings.access.mode)
        if scheme is not None:
            document["components"]["securitySchemes"] = {"caller": scheme}
        for schema in document["components"]["schemas"].values():
            _list_profiles(schema.get("properties", {}), app.state.profiles)
        for path, item in document["paths"].items():
            for operation in item.values():
                if not path.startswith(OPEN):
                    _add_access(operation, scheme is not None)
                _mark_media(operation["responses"])
        app.openapi_schema = document
    return app.openapi_schema


def _list_profiles(properties: dict[str, Any], profiles: Iterable[str]) -> None:
    """Names the profiles of this installation where a body may choose one."""
    for choice in properties.get("profile", {}).get("anyOf", ()):
        if choice.get("maxLength"):
            choice["enum"] = sorted(profiles)


def _scheme(mode: str) -> dict[str, str] | None:
    if mode == "header":
        return {"type": "apiKey", "in": "header", "name": PRINCIPAL, "description": "The principal, as a trusted proxy names it"}
    return {"type": "http", "scheme": "bearer", "description": _BEARER[mode]} if mode in _BEARER else None


def _add_access(operation: dict[str, Any], secured: bool) -> None:
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    for status in _EVERYWHERE:
        answer = {"description": _MEANINGS[status], "content": {"application/problem+json": {"schema": schema}}}
        operation["responses"].setdefault(str(status), answer)
    operation["responses"] = dict(sorted(operation["responses"].items()))
    if secured:
        operation["security"] = [{"caller": []}]


def add_pages(app: FastAPI) -> None:
    """`/docs`, with everything that it needs from this process: no network beyond it."""
    app.mount("/docs/assets", StaticFiles(directory=_ASSETS), name="docs-assets")
    app.get("/docs", include_in_schema=False)(_docs)


async def _docs(request: Request) -> HTMLResponse:
    return get_swagger_ui_html(
        openapi_url="/openapi.json",
        title=request.app.title,
        swagger_js_url="/docs/assets/swagger-ui-bundle.js",
        swagger_css_url="/docs/assets/swagger-ui.css",
        swagger_favicon_url="/docs/assets/favicon.png",
    )


def _mark_media(responses: dict[str, Any]) -> None:
    """Problems are problems, and a stream is nothing else beside."""
    for response in responses.values():
        content = response.get("content", {})
        if content.get("application/json", {}).get("schema", {}).get("$ref", "").endswith(f"/{Problem.__name__}"):
            content["application/problem+json"] = content.pop("application/json")
        if "text/event-stream" in content and not content.get("application/json", {}).get("schema"):
            content.pop("application/json", None)
