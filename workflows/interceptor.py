"""Where a workflow orders something, as crossings: for tests that kill the worker there.

A killed worker's workflow task is given to another, which replays what was recorded and comes to the same order again.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.worker import (
    ContinueAsNewInput,
    Interceptor,
    StartActivityInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from crossings import CRASH_VARIABLE, reach


def crossing_interceptors() -> list[Interceptor]:
    """None, unless a test has named a point: every order then passes its crossing."""
    return [CrossingInterceptor()] if os.environ.get(CRASH_VARIABLE) else []


class CrossingInterceptor(Interceptor):
    """Enters the crossings start-activity, start-child and continue-as-new."""

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:  # the SDK's name
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:  # the SDK's name
        _reach("start-activity:before")
        handle = super().start_activity(input)
        _reach("start-activity:after")
        return handle

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> workflow.ChildWorkflowHandle[Any, Any]:
        _reach("start-child:before")
        handle = await super().start_child_workflow(input)
        _reach("start-child:after")
        return handle

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        _reach("continue-as-new:before")
        try:
            super().continue_as_new(input)
        finally:
            _reach("continue-as-new:after")


def _reach(point: str) -> None:
    """A replayed order was given before, by whoever recorded it."""
    if not workflow.unsafe.is_replaying():
        with workflow.unsafe.sandbox_unrestricted():
            reach(point)
