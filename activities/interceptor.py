"""What surrounds every activity: its place in the log's lines, and its failure made into a typed error, once."""

from __future__ import annotations

from typing import Any

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.heartbeats import beating
from activities.outcomes import unexpected
from faults import UNKNOWN_ATTEMPTS, Fault

_PLACE = ("run", "page", "phase", "account")


class FaultInterceptor(Interceptor):
    """Turns `Fault` into an ApplicationError of its reason's type, and what nobody classified into "unknown", which is
    tried a few times and then stops: it neither grinds nor passes for success."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Inbound(super().intercept_activity(next))


class _Inbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # the SDK's name
        info = activity.info()
        asked = input.args[0] if input.args else None
        place = {name: getattr(asked, name) for name in _PLACE if getattr(asked, name, None) is not None}
        with structlog.contextvars.bound_contextvars(activity=info.activity_type, attempt=info.attempt, **place):
            try:
                async with beating():
                    return await super().execute_activity(input)
            except Fault as fault:
                structlog.get_logger().warning("activity stopped", reason=fault.code, detail=fault.detail)
                raise fault.as_application_error() from fault
            except FailureError:
                raise
            except Exception as error:
                unknown = unexpected(error)
                structlog.get_logger().error("activity failed", reason=unknown.code, detail=unknown.detail)
                raise ApplicationError(
                    f"{type(error).__name__}: {error}"[:2000],
                    unknown.detail,
                    type=unknown.code,
                    non_retryable=info.attempt >= UNKNOWN_ATTEMPTS,
                ) from error
