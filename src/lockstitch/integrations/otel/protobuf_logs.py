"""Log records of OTLP in protobuf. Needs the package opentelemetry-proto."""

from collections.abc import Iterator

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs

from lockstitch.errors import Unreadable
from lockstitch.integrations.otel.frames import Frame
from lockstitch.integrations.otel.log_records import LogRecord, log_record
from lockstitch.integrations.otel.protobuf import attributes_of, value_of
from lockstitch.integrations.spans.values import storable


def records(frame: Frame) -> Iterator[LogRecord]:
    """Yield the log records of a request, or of a part of one."""
    try:
        if frame.form == "request":
            groups = list(ExportLogsServiceRequest.FromString(frame.body).resource_logs)
        else:
            groups = [ResourceLogs.FromString(frame.body)]
    except DecodeError as exc:
        raise Unreadable(f"{frame.where}: this is not OTLP protobuf: {exc}.") from exc
    for group in groups:
        resource = attributes_of(group.resource.attributes)
        for scoped in group.scope_logs:
            for record in scoped.log_records:
                yield log_record(
                    name=storable(record.event_name),
                    time=record.time_unix_nano or record.observed_time_unix_nano,
                    trace_id=record.trace_id.hex(),
                    span_id=record.span_id.hex(),
                    body=value_of(record.body),
                    attributes=attributes_of(record.attributes),
                    resource=resource,
                )
