"""Where the API is."""

from cli.endpoints import api_url
from cli.record import read_record
from settings import Settings


def find_api(settings: Settings) -> str:
    """The URL of the API that `outlast dev` runs on the data folder, else where the settings would have one listen."""
    record = read_record(settings.data_dir)
    return record.api if record else api_url(settings.api.host, settings.api.port)
