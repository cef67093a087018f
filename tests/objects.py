"""A real server that speaks S3, run by the test run itself, and a plain client that looks into it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any
from uuid import uuid4

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from settings import PayloadSettings
from tests.ports import free_port
from tests.services import PATIENCE_SECONDS

REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
"""Who we are to it, as the environment says it."""


class ObjectServer:
    """It keeps what it was given while it is stopped, and starts again on its port."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer | None = None
        self._port = free_port()
        self.start()
        known = {name.lower(): CREDENTIALS[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        self.client: Any = boto3.client("s3", region_name=REGION, endpoint_url=self.url, **known)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Does nothing while it runs."""
        if self._server is not None:
            return
        self._server = make_server("127.0.0.1", self._port, self._app, threaded=True, request_handler=MotoRequestHandler)
        Thread(target=self._server.serve_forever, daemon=True, kwargs={"poll_interval": 0.05}).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def payloads(self, prefix: str = "", *, versions: bool = False) -> PayloadSettings:
        """Settings for a new bucket."""
        bucket = f"payloads-{uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=bucket)
        if versions:
            self.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        where = {"s3_bucket": bucket, "s3_prefix": prefix, "s3_region": REGION, "s3_endpoint_url": self.url}
        return PayloadSettings.model_validate({"driver": "s3", "s3_timeout_seconds": PATIENCE_SECONDS, **where})

    def objects(self, settings: PayloadSettings) -> dict[str, bytes]:
        """All that is in a bucket."""
        listed = self.client.list_objects_v2(Bucket=settings.s3_bucket).get("Contents", [])
        return {one["Key"]: self.client.get_object(Bucket=settings.s3_bucket, Key=one["Key"])["Body"].read() for one in listed}

    def versions(self, settings: PayloadSettings) -> int:
        """How many versions of objects a bucket keeps, marks of their deletion counted too."""
        kept = self.client.list_object_versions(Bucket=settings.s3_bucket)
        return len(kept.get("Versions", [])) + len(kept.get("DeleteMarkers", []))


@contextmanager
def running_objects() -> Iterator[ObjectServer]:
    """The server, until the block ends."""
    server = ObjectServer()
    try:
        yield server
    finally:
        server.stop()
