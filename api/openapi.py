"""What the OpenAPI document says beyond what FastAPI finds out itself: problem answers, streams, and the page that shows it offline."""

from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from api.answers import Problem

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
    429: "Over a budget",
    503: "Postgres or Temporal is not there; try again after `Retry-After` seconds",
}
_ASSETS = Path(fastapi_offline.__file__).parent / "static"

STREAM: Responses = {
    200: {
        "description": "Server-sent events; `id` is the cursor behind the event, `data` a JSON object with `type, session_id, turn_id, seq, at`",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def problems(*statuses: int) -> Responses:
    """The error answers of a route."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in statuses}


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once. Errors are of media type `application/problem+json`."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for path in document["paths"].values():
            for operation in path.values():
                _mark_problems(operation["responses"])
        app.openapi_schema = document
    return app.openapi_schema


def add_pages(app: FastAPI) -> None:
    """`/docs`, with everything that it needs from this process: no network beyond it."""
    app.mount("/docs/assets", StaticFiles(directory=_ASSETS), name="docs-assets")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title=app.title,
            swagger_js_url="/docs/assets/swagger-ui-bundle.js",
            swagger_css_url="/docs/assets/swagger-ui.css",
            swagger_favicon_url="/docs/assets/favicon.png",
        )


def _mark_problems(responses: dict[str, Any]) -> None:
    for response in responses.values():
        content = response.get("content", {}).get("application/json", {})
        if content.get("schema", {}).get("$ref", "").endswith(f"/{Problem.__name__}"):
            response["content"] = {"application/problem+json": content}
