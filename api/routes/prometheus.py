"""The process's own figures, for Prometheus."""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from api.deps import ApiDep
from api.measures import CONTENT_TYPE, Measures

router = APIRouter(tags=["operators"])


@router.get("/metrics", response_class=PlainTextResponse)
async def prometheus(request: Request, api: ApiDep) -> Response:
    """Requests by route and status, streams, connections. A worker's figures are at OUTLAST_METRICS__WORKER_ADDRESS."""
    measures: Measures = request.app.state.measures
    return Response(measures.page(api), media_type=CONTENT_TYPE)
