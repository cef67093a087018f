"""Settings of who may call: what is refused at the start, in one line, and what the doctor says."""

import pytest

from cli.dev.screen import trials
from cli.doctor import check_access
from cli.environment import load_settings
from settings import AccessSettings, ApiSettings, Settings
from workflows.contracts.errors import SetupError

JWT = {"MODE": "jwt", "JWKS_URL": "https://id.example/jwks", "AUDIENCE": "outlast", "ISSUER": "https://id.example/"}


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"MODE": "open"}, "OUTLAST_ACCESS__MODE: Input should be 'local', 'header', 'key' or 'jwt' (got 'open')"),
        ({"MODE": "jwt", "JWKS_URL": "https://x"}, "OUTLAST_ACCESS: mode `jwt` needs OUTLAST_ACCESS__AUDIENCE and OUTLAST_ACCESS__ISSUER"),
        ({**JWT, "JWKS_URL": "file:///etc/keys"}, "OUTLAST_ACCESS: OUTLAST_ACCESS__JWKS_URL is not an http or https URL"),
        ({"ALGORITHMS": "RS256,HS256"}, "OUTLAST_ACCESS__ALGORITHMS: Input should be 'RS256', "),
        ({"ALGORITHMS": "none"}, "OUTLAST_ACCESS__ALGORITHMS: Input should be 'RS256', "),
        ({"ORIGINS": "https://a.example,*"}, "OUTLAST_ACCESS__ORIGINS: `*` would let every page act"),
        ({"ORIGINS": "app.example"}, "OUTLAST_ACCESS__ORIGINS: 'app.example' is not an origin such as https://app.example"),
        ({"ORIGINS": "https://app.example/page"}, "OUTLAST_ACCESS__ORIGINS: 'https://app.example/page' is not an origin"),
        ({"RATE_LIMIT": "often"}, "OUTLAST_ACCESS__RATE_LIMIT: is not a rate such as `10/second; 300/minute` (got 'often')"),
    ],
)
def test_r44_access_that_is_set_up_by_halves_is_one_line(monkeypatch: pytest.MonkeyPatch, env: dict[str, str], line: str) -> None:
    for name, value in env.items():
        monkeypatch.setenv(f"OUTLAST_ACCESS__{name}", value)
    with pytest.raises(SetupError) as refused:
        load_settings()
    assert str(refused.value).startswith(line) and "\n" not in str(refused.value)


def test_r50_origins_are_kept_as_browsers_send_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_ACCESS__ORIGINS", "https://App.example/, http://localhost:3000")
    assert load_settings().access.origins == ["https://app.example", "http://localhost:3000"]


def test_r44_the_doctor_warns_of_doors_that_stand_open() -> None:
    def verdict(host: str = "127.0.0.1", **access: object) -> str:
        return check_access(Settings(api=ApiSettings(host=host), access=AccessSettings.model_validate(access))).verdict

    assert verdict() == verdict(mode="header") == verdict("0.0.0.0", mode="key") == "ok"
    assert verdict("0.0.0.0") == "FAIL"
    assert verdict("0.0.0.0", trust_network=True) == verdict("10.0.0.1", mode="header") == "warn"
    jwt = {name.lower(): value for name, value in JWT.items()}
    assert verdict("0.0.0.0", **jwt) == verdict(**{**jwt, "jwks_url": "http://localhost:1/x"}) == "ok"
    assert verdict(**{**jwt, "jwks_url": "http://id.example/x"}) == "warn"


def test_r44_dev_shows_how_to_name_oneself() -> None:
    shown = {mode: "\n".join(trials("http://127.0.0.1:1", mode)) for mode in ("local", "header", "key", "jwt")}
    assert "x-outlast-principal: me" in shown["header"] and not shown["header"].endswith(" chat")
    assert "keys create me" in shown["key"] and "$OUTLAST_TOKEN" in shown["key"] and "$OUTLAST_TOKEN" in shown["jwt"]
    assert shown["local"].endswith(" chat") and "authorization" not in shown["local"]
