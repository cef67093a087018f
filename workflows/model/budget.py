"""What may be used up."""

from workflows.model.base import Record


class Budget(Record):
    """Limits of what model requests use, together; None: no limit. A limit that is reached ends what it limits."""

    max_input_tokens: float | None = None
    max_output_tokens: float | None = None
    max_total_tokens: float | None = None
    max_requests: float | None = None
    max_cost_usd: float | None = None
