"""A provider with a real, very small language model: OpenAI's chat completions over HTTP, streamed or whole, with tools.

llama.cpp's own server streams no tool call that the model may choose and drops tool results from the prompt; tests/live/prompt.py
says what is done here instead. One answer at a time; a client that leaves ends its answer.

    python -m tests.live.server --port 8081
    OPENAI_BASE_URL=http://127.0.0.1:8081/v1 OUTLAST_MODEL=openai-chat:smollm2-135m outlast dev

`GET /requests` lists what was asked, and how long it took.
"""

import argparse
import asyncio
import json
import socket
import sys
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing, suppress
from typing import Any

import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.live.model import NAME, SmallModel, Token, Tokens, TooLong
from tests.live.prompt import called, entries, instruction
from tests.live.wire import Answer, Call, Deltas, Wire

MOST_TOKENS = 100
"""Of an answer whose request names no limit: some seconds' worth."""

Parts = list[tuple[Call | None, Tokens]]
"""Words (None), or calls with the tokens of their arguments."""


class Provider:
    """The model behind its wire."""

    def __init__(self, model: SmallModel) -> None:
        self._model = model
        self._turn = asyncio.Lock()
        self.answers: list[Answer] = []

    async def complete(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        try:
            body = await request.json()
            answer = Answer(body)
            parts = self._parts(answer)
        except TooLong as error:
            return _refusal(str(error), "context_length_exceeded")
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            return _refusal(f"not a chat completions request: {error!r}", "invalid_request")
        self.answers.append(answer)
        wire, deltas = Wire(answer), self._deltas(answer, parts)
        if body.get("stream"):
            return StreamingResponse(wire.stream(deltas), media_type="text/event-stream")
        return JSONResponse(await wire.whole(deltas))

    async def models(self, _: Request) -> Response:
        """GET /v1/models."""
        return JSONResponse({"object": "list", "data": [{"id": NAME, "object": "model", "created": 0, "owned_by": "local"}]})

    async def requests(self, _: Request) -> Response:
        """GET /requests."""
        return JSONResponse([answer.record() for answer in self.answers])

    def _parts(self, answer: Answer) -> Parts:
        """What the answer is made of: words, or one call after the other. Nothing is computed before it is read."""
        conversation = entries(answer.request["messages"])
        tools = called(answer.request)
        most = int(answer.request.get("max_completion_tokens") or answer.request.get("max_tokens") or MOST_TOKENS)
        if not tools:
            prompt = self._model.prompt(conversation)
            answer.prompt_tokens = len(prompt)
            return [(None, self._model.words(prompt, most, float(answer.request.get("temperature") or 0.0)))]
        answer.calls = len(tools)
        parts: Parts = []
        for index, tool in enumerate(tools):
            prompt = self._model.prompt([*conversation, instruction(tool, answer.request["messages"])])
            answer.prompt_tokens += len(prompt)
            call = Call(index, f"call_{uuid.uuid4().hex[:20]}", tool.name)
            parts.append((call, self._model.arguments(prompt, most, tool.parameters)))
        return parts

    async def _deltas(self, answer: Answer, parts: Parts) -> Deltas:
        """Pieces of text, each with the call whose arguments it belongs to. A call's first piece is empty."""
        async with self._turn:
            began = time.monotonic()
            for call, tokens in parts:
                if call is not None:
                    yield call, ""
                async with aclosing(_in_thread(tokens)) as stream:
                    async for token in stream:
                        answer.took(token, time.monotonic() - began)
                        if token.text:
                            yield call, token.text
                if answer.end == "length":
                    break


async def _in_thread(tokens: Tokens) -> AsyncGenerator[Token, None]:
    """Computes in a thread, so that the server hears a client leave. A cancellation waits for the token that is under way."""
    with closing(tokens):
        while (token := await to_thread.run_sync(next, tokens, None)) is not None:
            yield token


def _refusal(message: str, code: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}, status_code=400)


def application(model: SmallModel) -> Starlette:
    """The server as an ASGI application."""
    provider = Provider(model)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", provider.complete, methods=["POST"]),
            Route("/v1/models", provider.models),
            Route("/requests", provider.requests),
        ]
    )


def main() -> None:
    """Serves until it is stopped. Prints its base URL once it takes requests."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--port", type=int, default=0, help="0 takes a free one")
    # Its threads spin while they wait for each other: on a busy machine two are slower than one.
    options.add_argument("--threads", type=int, default=1)
    chosen: Any = options.parse_args()
    app = application(SmallModel(chosen.threads))
    # Ctrl-C ends it in order; uvicorn then raises once more what it has already obeyed.
    with suppress(KeyboardInterrupt), socket.create_server(("127.0.0.1", chosen.port)) as listening:
        sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "model": NAME}) + "\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
