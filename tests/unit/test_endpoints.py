"""Which database and which Temporal a command uses."""

from pathlib import Path

import pytest

from cli.endpoints import Endpoints, api_url, find_endpoints
from cli.environment import load_settings
from cli.record import DevRecord, read_record, remove_record
from settings import Settings
from workflows.contracts.errors import SetupError

DEV = DevRecord(api="http://127.0.0.1:1", temporal="127.0.0.1:2", database_url="postgresql://dev", pids={"dev": 3}, durable=False)


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key in ("TEMPORAL_ADDRESS", "TEMPORAL_PROFILE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))


def settings(folder: Path, url: str = "") -> Settings:
    return load_settings({}, data_dir=folder, database={"url": url})


def where(found: Endpoints) -> tuple[str, str | None, bool]:
    return found.settings.database.url, found.temporal, found.durable


def test_what_is_configured_goes_before_dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DEV.write(tmp_path)
    assert where(find_endpoints(settings(tmp_path))) == ("postgresql://dev", "127.0.0.1:2", False)
    assert where(find_endpoints(settings(tmp_path, "postgresql://mine"))) == ("postgresql://mine", None, True)
    assert where(find_endpoints(settings(tmp_path, "postgresql://dev"))) == ("postgresql://dev", "127.0.0.1:2", False)
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal:7233")
    assert where(find_endpoints(settings(tmp_path))) == ("postgresql://dev", None, False)


def test_what_is_wrong_with_temporals_configuration_is_said_without_showing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text('[profile.default]\naddress = "temporal:7233"\napi_key = "wal"rus"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    with pytest.raises(SetupError, match=r"Temporal's client configuration: .* line 3, column 16: unexpected key") as caught:
        find_endpoints(settings(tmp_path, "postgresql://mine"))
    assert "wal" not in str(caught.value) and "\n" not in str(caught.value)


def test_without_either_one_line_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="set OUTLAST_DATABASE__URL, or start `outlast dev`"):
        find_endpoints(settings(tmp_path))


def test_the_record_is_for_its_owner_alone_and_read_back_as_it_was(tmp_path: Path) -> None:
    DEV.write(tmp_path)
    assert (tmp_path / "dev.json").stat().st_mode & 0o777 == 0o600
    assert read_record(tmp_path) == DEV
    remove_record(tmp_path)
    assert read_record(tmp_path) is None
    (tmp_path / "dev.json").write_text("{")
    with pytest.raises(SetupError, match="can't be read"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:8"), ("0.0.0.0", "http://127.0.0.1:8"), ("::1", "http://[::1]:8"), ("box", "http://box:8")],
)
def test_an_address_to_listen_on_becomes_one_to_call(host: str, url: str) -> None:
    assert api_url(host, 8) == url
