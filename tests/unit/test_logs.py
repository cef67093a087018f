"""The forms of a log line: ids beside what is said, and of exceptions no words that may quote somebody."""

import json
import logging
from collections.abc import Iterator

import pytest
from temporalio.exceptions import ApplicationError

from cli.logs import JsonLines, TextLines
from workflows.contracts import telemetry
from workflows.contracts.errors import ServiceUnavailable


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def record(message: str = "it failed", error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, message, (), info)


@pytest.fixture(autouse=True)
def about() -> Iterator[None]:
    telemetry.identify(session_id="s1", turn_id="t1", call_id=None, attempt=2)
    yield
    telemetry.forget()


def test_a_line_of_any_logger_has_the_ids_of_what_runs() -> None:
    line = json.loads(JsonLines(telemetry.identified, False).format(record()))
    assert line.pop("time").endswith("+00:00")
    said = {"level": "error", "logger": "uvicorn.error", "message": "it failed"}
    assert line == {**said, "session_id": "s1", "turn_id": "t1", "attempt": "2"}
    assert TextLines(telemetry.identified, False).format(record()).endswith("uvicorn.error: it failed  session_id=s1 turn_id=t1 attempt=2")


@pytest.mark.parametrize("form", [JsonLines, TextLines])
def test_an_exception_is_a_place_and_a_type_and_its_words_only_where_they_are_ours(form: type[JsonLines] | type[TextLines]) -> None:
    foreign = raised(ValueError("walrus"), KeyError("petrel"))
    discreet, wordy = (form(telemetry.identified, wordy).format(record(error=foreign)) for wordy in (False, True))
    assert "test_logs.py" in discreet and "KeyError" in discreet and "ValueError" in discreet
    assert "walrus" not in discreet and "petrel" not in discreet
    assert "walrus" in wordy and "petrel" in wordy
    for ours in (ServiceUnavailable("temporal", "Temporal is gone"), ApplicationError("Temporal is gone"), OSError("Temporal is gone")):
        assert "Temporal is gone" in form(telemetry.identified, False).format(record(error=raised(ours, foreign)))
    group = raised(ExceptionGroup("walrus", [ValueError("walrus"), TypeError("petrel")]))
    grouped = form(telemetry.identified, False).format(record(error=group))
    assert "walrus" not in grouped and "petrel" not in grouped and "TypeError" in grouped


def test_work_has_its_own_ids_and_gives_back_those_of_who_took_it_up() -> None:
    with telemetry.work("turn", None, turn_id="t2"):
        assert telemetry.identified() == {"session_id": "s1", "turn_id": "t2", "attempt": "2"}
    assert telemetry.identified()["turn_id"] == "t1"
    assert telemetry.here() is None
