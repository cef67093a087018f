"""The models of the benchmarks' workers."""

from collections.abc import Callable

from pydantic_ai.models import Model

from activities.llm.models import Models
from benchmarks.calling import CALLING, calling_model
from benchmarks.instant import INSTANT, instant_model
from benchmarks.timed import TIMED, timed_model

_MADE: dict[str, Callable[[], Model]] = {INSTANT: instant_model, TIMED: timed_model, CALLING: calling_model}


class BenchModels(Models):
    """The models of a worker, and `instant`, `timed` and `calling` beside them."""

    def of(self, name: str) -> Model:
        """The model of a model string."""
        if name not in _MADE:
            return super().of(name)
        if name not in self._models:
            self._models[name] = _MADE[name]()
        return self._models[name]
