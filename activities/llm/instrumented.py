"""How model requests are traced: by pydantic-ai's own instrumentation."""

from typing import Any

from opentelemetry.trace import Span
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.instrumented import InstrumentationSettings

from settings import TracingSettings


class Brief(InstrumentationSettings):
    """Without content a span would tell of each message of a conversation that it has parts, with every request anew: the newest is enough."""

    def handle_messages(
        self,
        input_messages: list[ModelMessage],
        response: ModelResponse,
        span: Span,
        parameters: ModelRequestParameters | None = None,
        **more: Any,
    ) -> None:
        """Describes what was sent last and what came."""
        super().handle_messages(input_messages[-1:], response, span, parameters, **more)


def instrumentation(tracing: TracingSettings) -> InstrumentationSettings | None:
    """What model requests are traced with; None where they are not."""
    if not tracing.enabled:
        return None
    if tracing.include_content:
        return InstrumentationSettings(include_content=True, include_binary_content=False)
    return Brief(include_content=False, include_binary_content=False, include_model_request_parameters=False)
