"""A bucket that is read with Amazon's own client."""

from typing import Any

BUCKET = "agent-files"


class Bucket:
    def __init__(self, client: Any, endpoint: str) -> None:
        self._client = client
        self.endpoint = endpoint

    def url(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}?endpoint={self.endpoint}&region=us-east-1"

    def listed(self) -> list[str]:
        return [content["Key"] for content in self._client.list_objects_v2(Bucket=BUCKET).get("Contents", [])]

    def content(self, key: str) -> bytes:
        return self._client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def clear(self) -> None:
        for key in self.listed():
            self._client.delete_object(Bucket=BUCKET, Key=key)
