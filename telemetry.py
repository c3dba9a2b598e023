"""Logs, traces and metrics of the three programs. Nothing leaves the process unless the settings say where to.

Logs are structlog's, with run, page and ref on each line by context variables; what libraries log goes the same way.
Traces are OpenTelemetry's, across starter, workflows, activities, HTTP calls and webhooks. Metrics, Temporal's and our
own (`activity.metric_meter`), go through Temporal's runtime, which serves Prometheus or pushes OTLP.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, Final

import structlog
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor, RequestInfo
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from temporalio.client import Interceptor
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    OpenTelemetryConfig,
    PrometheusConfig,
    Runtime,
    TelemetryFilter,
)
from temporalio.runtime import TelemetryConfig as RuntimeTelemetry

from settings import TelemetrySettings
from sources.addresses import redact

TRACER: Final = "longhaul"
EXPORT_TIMEOUT_S: Final = 3.0
"""With its repetitions: a command whose collector is away ends no later than this."""
_URL_ATTRIBUTES: Final = ("url.full", "http.url")
_QUIET: Final = {
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "uvicorn.access": logging.WARNING,
    "asyncpg": logging.ERROR,  # a traceback for each try to connect; what meets a ledger that is away says so itself
}


def configure_logging(settings: TelemetrySettings, program: str) -> None:
    """Sends our logs and the libraries' to stderr in one form. Safe to call again."""

    def named(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["program"] = program  # not a context variable: those that other threads log don't have our context
        return event

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        named,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _drop_empty,
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(max(level, root.level))


def _drop_empty(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in [name for name, value in event.items() if value is None or value == ""]:
        del event[name]
    return event


@cache
def runtime(settings: TelemetrySettings) -> Runtime:
    """Temporal's runtime with the metrics that the settings ask for. One for a process."""
    metrics: PrometheusConfig | OpenTelemetryConfig | None = None
    if settings.prometheus_bind:
        metrics = PrometheusConfig(bind_address=settings.prometheus_bind)
    elif settings.otlp_endpoint:
        metrics = OpenTelemetryConfig(
            url=f"{settings.otlp_endpoint.rstrip('/')}/v1/metrics",
            http=True,
            metric_periodicity=timedelta(seconds=15),
        )
    # Left to itself the runtime writes its warnings to standard output, in a form of its own: into our JSON.
    logs = LoggingConfig(
        filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
        forwarding=LogForwardingConfig(logger=logging.getLogger("temporal"), append_target_to_name=False),
    )
    return Runtime(telemetry=RuntimeTelemetry(logging=logs, metrics=metrics))


@cache
def trace_to(settings: TelemetrySettings, program: str) -> Sequence[Interceptor]:
    """Starts exporting spans where the settings say so, once, and returns the client interceptors that make Temporal's
    own."""
    if not settings.otlp_endpoint:
        return ()
    provider = TracerProvider(resource=Resource.create({"service.name": f"longhaul-{program}"}))
    provider.add_span_processor(
        BatchSpanProcessor(
            OTLPSpanExporter(endpoint=f"{settings.otlp_endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)
        )
    )
    trace.set_tracer_provider(provider)
    HTTPXClientInstrumentor().instrument(request_hook=_redacted, async_request_hook=_redacted_async)
    return (TracingInterceptor(),)


def _redacted(span: trace.Span, request: RequestInfo) -> None:
    """A signed address is a secret: spans keep where a call went, not with what leave."""
    if span.is_recording():
        for name in _URL_ATTRIBUTES:
            span.set_attribute(name, redact(str(request.url)))


async def _redacted_async(span: trace.Span, request: RequestInfo) -> None:
    _redacted(span, request)


def flush() -> None:
    """Sends what spans are left, at a program's end."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.shutdown()
