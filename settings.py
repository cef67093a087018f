"""The one settings class. Every key is an environment variable `OUTLAST_…`, nested keys with `__`; docs/configuration.md lists them."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from workflows.contracts.horizon import LONGEST_HOURS, LONGEST_SECONDS

PREFIX = "OUTLAST_"

Hours = Annotated[float, Field(ge=0, le=LONGEST_HOURS)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures that a public key verifies: with a shared secret whoever checks tokens could make them."""


def split_list(value: Any) -> Any:
    """Comma-separated text as a list; anything else unchanged."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


CommaList = Annotated[list[str], NoDecode, BeforeValidator(split_list)]
SecretList = Annotated[list[SecretStr], NoDecode, BeforeValidator(split_list)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


class DatabaseSettings(_Group):
    """Postgres."""

    url: str = Field(
        "",
        description="`postgresql://user:password@host:port/name`. A host that starts with `/` is a socket folder. Empty: the one that `outlast dev` started on the same data folder.",
    )
    required: bool = Field(True, description="Refuse to start while Postgres can't be used.")
    migrate_on_start: bool = Field(
        False, description="Create the database if it is missing and bring its schema to head at start. For single-role set-ups."
    )
    runtime_role: str = Field(
        "",
        description="Role of api and worker, to which `outlast migrate` grants what they need. Empty: they use the role that owns the schema.",
    )
    pool_size: int = Field(10, ge=2, le=200, description="Connections per process.")
    timeout_seconds: float = Field(
        5.0, gt=0, description="How long a statement or a connection attempt may take before the database counts as unavailable."
    )


class ApiSettings(_Group):
    """The HTTP API."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    max_body_bytes: int = Field(
        16 * 1024 * 1024,
        ge=64 * 1024,
        le=64 * 1024 * 1024,
        description="Bytes of a request's body; a larger one is refused with 413. It bounds what a host's result and the files of a message may have together.",
    )
    wait_seconds: float = Field(300.0, gt=0, description="How long `POST /api/chat` waits for its turn before it answers 202.")
    sse_keepalive_seconds: float = Field(15.0, gt=0, description="How often an idle event stream carries a comment.")
    send_timeout_seconds: float = Field(30.0, gt=0, description="A client that takes nothing of an answer for so long is cut off.")


class EventSettings(_Group):
    """The events of sessions, as their streams tell them."""

    retention_hours: Hours = Field(
        0.0, description="Events older than this are removed, whole turns at a time; messages stay. 0 keeps them with their session."
    )


class AccessSettings(_Group):
    """Who may call."""

    mode: Literal["local", "header", "key", "jwt"] = Field(
        "local",
        description="`local`: everyone is principal `local` with role `admin` in tenant `default`; the API then listens on loopback only. `header`: a proxy says who calls. `key`: API keys (`outlast keys`). `jwt`: bearer tokens of your identity provider. See [access.md](access.md).",
    )
    trust_network: bool = Field(
        False,
        description="Lets mode `local` listen on other addresses than loopback: something else, such as a container's published port, keeps strangers out.",
    )
    origins: CommaList = Field(
        default=[],
        description="Origins (`https://app.example`), comma-separated, whose pages may call and change state, beside the API's own.",
    )
    jwks_url: str = Field("", description="Where the identity provider publishes its public keys. Needed by mode `jwt`.")
    audience: CommaList = Field(
        default=[], description="Audiences, comma-separated, one of which a token must be for. Needed by mode `jwt`."
    )
    issuer: str = Field("", description="The issuer that a token must come from. Needed by mode `jwt`.")
    algorithms: Annotated[list[Algorithm], NoDecode, BeforeValidator(split_list)] = Field(
        default=["RS256", "ES256", "EdDSA"], min_length=1, description="Signature algorithms, comma-separated, that a token may use."
    )
    tenant_claim: str = Field("tenant", description="Claim with the tenant. Without the claim: `default`. Dots lead into objects.")
    principal_claim: str = Field("sub", min_length=1, description="Claim with the principal.")
    roles_claim: str = Field("roles", description="Claim with the roles: a list, or text with spaces or commas between.")
    leeway_seconds: float = Field(30.0, ge=0, le=300, description="How far the identity provider's clock may be off.")
    jwks_cache_seconds: float = Field(300.0, gt=0, description="How long fetched public keys are used before they are fetched again.")
    jwks_pause_seconds: float = Field(
        30.0, gt=0, description="Public keys are fetched at most this often, however many tokens name a key that nobody knows."
    )
    rate_limit: str = Field(
        "",
        description="Requests that one API key, or one principal in the other modes, may make of one API process: `10/second; 300/minute`. Empty: no limit.",
    )

    @property
    def by_address(self) -> bool:
        """True if nothing but the address vouches for a caller."""
        return self.mode == "local"

    @field_validator("origins")
    @classmethod
    def _are_origins(cls, value: list[str]) -> list[str]:
        return [_origin(text) for text in value]

    @field_validator("rate_limit")
    @classmethod
    def _is_limit(cls, value: str) -> str:
        if not value:
            return value
        from limits import parse_many  # only here: most commands count nothing

        try:
            parse_many(value)
        except ValueError as error:
            raise ValueError("is not a rate such as `10/second; 300/minute`") from error
        return value

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        wanted = {"JWKS_URL": self.jwks_url, "AUDIENCE": self.audience, "ISSUER": self.issuer}
        absent = [f"{PREFIX}ACCESS__{name}" for name, value in wanted.items() if not value]
        if self.mode == "jwt" and absent:
            raise ValueError(f"mode `jwt` needs {' and '.join(absent)}")
        if self.jwks_url and urlsplit(self.jwks_url).scheme not in ("http", "https"):
            raise ValueError(f"{PREFIX}ACCESS__JWKS_URL is not an http or https URL")
        return self


def _origin(text: str) -> str:
    """An origin in the form in which browsers send it."""
    if text == "*":
        raise ValueError("`*` would let every page act for whoever looks at it; name the origins")
    page = urlsplit(text)
    if page.scheme not in ("http", "https") or not page.netloc or "@" in page.netloc or page.path.strip("/") or page.query or page.fragment:
        raise ValueError(f"{text!r} is not an origin such as https://app.example")
    return f"{page.scheme}://{page.netloc.lower()}".removesuffix({"http": ":80", "https": ":443"}[page.scheme])


class SigningSettings(_Group):
    """Signing."""

    keys: SecretList = Field(
        default=[],
        description="Secrets that pause tokens and stream tickets are signed with, comma-separated, each `id:base64` of at least 32 bytes. The first one signs, all of them verify. The API does not start without; empty: those of the `outlast dev` on the same data folder.",
    )


class CodecSettings(_Group):
    """Encryption of what Temporal keeps."""

    keys: SecretList = Field(
        default=[],
        description="Secrets that payloads in Temporal's histories are encrypted with (AES-256-GCM), comma-separated, each `id:base64` of 32 bytes. The first one encrypts, all of them decrypt; every api and worker needs the same. Empty: nothing is encrypted.",
    )


_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXTS = ("text/plain", "text/markdown", "text/csv", "text/html", "text/xml")


class AttachmentSettings(_Group):
    """Files that come with messages."""

    allow_urls: bool = Field(
        False, description="Takes attachments by http and https URL too; the provider, or the worker on its behalf, fetches them."
    )
    media_types: CommaList = Field(
        default=[*_IMAGES, "application/pdf", "application/json", *_TEXTS],
        description="Media types, comma-separated, that are taken. Text is given to the model as text, everything else as a file.",
    )


class LimitSettings(_Group):
    """Limits of what model requests may use, together."""

    max_input_tokens: float = Field(0, ge=0, description="Tokens sent to models. 0: no limit.")
    max_output_tokens: float = Field(0, ge=0, description="Tokens that models answered. 0: no limit.")
    max_total_tokens: float = Field(0, ge=0, description="Both together. 0: no limit.")
    max_requests: float = Field(0, ge=0, description="Model requests. 0: no limit.")
    max_cost_usd: float = Field(0, ge=0, description="US dollars, of models whose price is known. 0: no limit.")


class BudgetSettings(_Group):
    """What may be used up."""

    turn: LimitSettings = Field(default_factory=LimitSettings, description="Of one turn.")
    day: LimitSettings = Field(default_factory=LimitSettings, description="Of one principal on one day (UTC), over all sessions it owns.")


class DevSettings(_Group):
    """`outlast dev`."""

    temporal_port: int = Field(7233, ge=1, le=65535, description="Port of the Temporal dev server.")
    temporal_ui_port: int = Field(8233, ge=1, le=65535, description="Port of the Temporal Web UI.")


class MetricsSettings(_Group):
    """Metrics for Prometheus. The API's are at its own `/metrics`."""

    worker_address: str = Field(
        "", description="Where a worker serves `/metrics`: `host:port`. Each worker of a machine needs its own. Empty: nowhere."
    )


class WorkerSettings(_Group):
    """Worker Versioning. See [changing-workflows.md](changing-workflows.md)."""

    deployment: str = Field("", description="The Worker Deployment that a worker belongs to. Empty: workers have no version.")
    build_id: str = Field(
        "",
        description="The build of the code that a worker runs, such as a release or a commit: the same for all workers of that code, and for no others.",
    )
    versioning: Literal["pinned", "auto_upgrade"] = Field(
        "pinned",
        description="What sessions do when another build becomes current. `pinned`: they stay until they continue as new, as soon as they are woken and no turn runs. `auto_upgrade`: they cross at once, so every change of the flow must be guarded by a patch.",
    )

    @field_validator("deployment", "build_id")
    @classmethod
    def _is_name(cls, value: str, info: ValidationInfo) -> str:
        marks = "-_" if info.field_name == "deployment" else "-_."
        if len(value) > 200 or not all(character.isalnum() or character in marks for character in value):
            raise ValueError(f"{value[:40]!r} is no name: letters, digits and {' '.join(marks)}, at most 200")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if bool(self.deployment) != bool(self.build_id):
            raise ValueError(f"a version needs {PREFIX}WORKER__DEPLOYMENT and {PREFIX}WORKER__BUILD_ID: set both or neither")
        if self.versioning != "pinned" and not self.deployment:
            raise ValueError(f"{PREFIX}WORKER__VERSIONING={self.versioning} needs {PREFIX}WORKER__DEPLOYMENT and {PREFIX}WORKER__BUILD_ID")
        return self


class LogSettings(_Group):
    """What processes write to stderr. No line has the content of a message, below level `debug` no exception's own words either."""

    format: Literal["text", "json"] = Field("text", description="Lines for people, or one JSON object each.")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")


class TracingSettings(_Group):
    """Traces by OpenTelemetry. Where they go is configured by its own `OTEL_…` variables. Needs `outlast[otel]`."""

    enabled: bool = Field(False, description="Traces requests through session, activities and model requests.")
    include_content: bool = Field(
        False, description="Puts what is said into spans too: prompts, answers, arguments and results, and the words of exceptions."
    )


class TemporalSettings(_Group):
    """Temporal. The connection itself is configured by Temporal's own `TEMPORAL_*` variables or TOML profile."""

    inline_limit_bytes: int = Field(
        128 * 1024, ge=1024, description="Payloads over this go to Postgres or S3, and Temporal's history keeps a reference."
    )


class PayloadSettings(_Group):
    """Payloads that are too large for Temporal's histories. See [payloads.md](payloads.md)."""

    driver: Literal["postgres", "s3"] = Field(
        "postgres", description="Where new ones are kept. Those in the other place stay readable. `s3` needs the extra `outlast[s3]`."
    )
    s3_bucket: str = Field("", description="The bucket. Needed by driver `s3`, and for as long as anything is in it.")
    s3_prefix: str = Field(
        "",
        description="How the keys begin that are this installation's, such as `outlast/`. One that shares a bucket needs its own.",
    )
    s3_region: str = Field("", description="The bucket's region. Empty: as the AWS SDK's own configuration says.")
    s3_endpoint_url: str = Field("", description="Another store that speaks S3. Empty: AWS.")
    s3_timeout_seconds: float = Field(5.0, gt=0, description="How long one request to S3 may take, repetitions included.")

    @field_validator("s3_prefix")
    @classmethod
    def _is_prefix(cls, value: str) -> str:
        if value and not re.fullmatch(r"[A-Za-z0-9!_.*'()-][A-Za-z0-9!_.*'()/-]{0,198}/", value):
            raise ValueError("is not up to 200 of A-Za-z0-9!_.*'()-/ that end with / and don't begin with it")
        return value

    @field_validator("s3_endpoint_url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if value and not re.fullmatch(r"https?://[^\s/]+\S*", value):
            raise ValueError("is not an http or https URL")
        return value

    @model_validator(mode="after")
    def _has_bucket(self) -> Self:
        if self.driver == "s3" and not self.s3_bucket:
            raise ValueError(f"driver `s3` needs {PREFIX}PAYLOADS__S3_BUCKET")
        return self


class Settings(BaseSettings):
    """Outlast's settings. Durations are in the unit that the key names and accept decimals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="ignore", validate_default=True)

    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)
    events: EventSettings = Field(default_factory=EventSettings)
    access: AccessSettings = Field(default_factory=AccessSettings)
    signing: SigningSettings = Field(default_factory=SigningSettings)
    codec: CodecSettings = Field(default_factory=CodecSettings)
    attachments: AttachmentSettings = Field(default_factory=AttachmentSettings)
    budget: BudgetSettings = Field(default_factory=BudgetSettings)
    dev: DevSettings = Field(default_factory=DevSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    tracing: TracingSettings = Field(default_factory=TracingSettings)
    temporal: TemporalSettings = Field(default_factory=TemporalSettings)
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    payloads: PayloadSettings = Field(default_factory=PayloadSettings)
    data_dir: Path = Field(Path(".outlast"), description="Where `outlast dev` keeps its state.")
    token: SecretStr = Field(SecretStr(""), description="API key or bearer token that `outlast chat` sends.")
    task_queue: str = Field("outlast", min_length=1, description="Temporal task queue of workers and sessions.")
    model: str = Field(
        "demo",
        min_length=1,
        description="Model of profiles that name none: `demo` (scripted, offline) or a pydantic-ai model string such as `openai-chat:…`, with the provider's own variables.",
    )
    model_fallbacks: CommaList = Field(
        default=[], description="Models, comma-separated, that a step tries in order once the main one has failed for good."
    )
    model_requires_end: bool = Field(
        True,
        description="A streamed answer that ends without the provider's finish reason counts as cut and is asked for again. False for compatible servers that never send one.",
    )
    model_retry_seconds: Seconds = Field(
        1.0,
        description="Pause before a model request that failed is sent again; it doubles each time. Up to 30 seconds that the provider asks for go before it.",
    )
    tool_text_limit: int = Field(
        64_000, ge=100, description="Characters of one tool result that the model reads; the rest is cut, and the model is told so."
    )
    tool_result_limit_bytes: int = Field(
        16 * 1024 * 1024,
        ge=1024,
        le=64 * 1024 * 1024,
        description="Bytes of JSON of one server tool's result that are kept. Of a larger one nothing is: the call fails, and the model is told why.",
    )
    max_steps: int = Field(10, ge=1, description="Model requests a turn may make.")
    turn_timeout_seconds: float = Field(300.0, gt=0, description="Time a turn may take, waiting for a worker or for the host not counted.")
    session_ttl_hours: Hours = Field(0.0, description="Sessions expire this long after their last turn; 0 keeps them.")
    session_hold_while_pending: bool = Field(False, description="A pending host action holds a session's expiry.")
    pause_token_ttl_seconds: Seconds = Field(
        7 * 86400.0, gt=0, description="How long a pause token is good for, from when its call was handed over to the host."
    )
    stream_ticket_ttl_seconds: Seconds = Field(
        60.0, gt=0, description="How long a stream ticket opens its session's event stream; a stream that is open stays open."
    )
    profile: str = Field("", description="Profile of sessions that name none. Empty: `demo` with the demo model, else `default`.")
    profiles: CommaList = Field(default=[], description="Modules or `.py` files, comma-separated, that define further profiles.")
    worker_cached_sessions: int = Field(
        1_000,
        ge=1,
        description="Sessions that a worker keeps ready in memory, most of a megabyte each. Any other is replayed from its history when something comes for it.",
    )
    worker_shutdown_seconds: Seconds = Field(10.0, description="Grace that running steps and tools get when a worker is asked to stop.")

    @field_validator("task_queue")
    @classmethod
    def _fits_a_filter(cls, value: str) -> str:
        if "'" in value or "\\" in value:
            raise ValueError("must have no quote and no backslash, for list filters of Temporal name it")
        return value


__all__ = ["PREFIX", "Settings", "split_list"]
