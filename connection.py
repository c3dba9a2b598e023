"""The connection to Temporal, as every program makes it."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode

import telemetry
from faults import Fault
from settings import Settings
from workflows import attributes

TIMEOUT_S: Final = 5.0


async def connect(settings: Settings, program: str) -> Client:
    """A client for the profile that the settings and the TEMPORAL_* variables name.

    Raises Fault("temporal-unreachable") within seconds where nothing answers, naming the address tried, and
    Fault("settings-refused") for a profile or an address that cannot be used.
    """
    try:
        profile = settings.temporal_profile
    except RuntimeError as error:  # the SDK's ConfigError
        raise Fault(
            "settings-refused",
            f"the Temporal client's configuration: {_why(error)}; correct TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE or "
            "[temporal] profile",
        ) from None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await Client.connect(
                **profile.to_client_connect_config(),
                data_converter=pydantic_data_converter,
                interceptors=list(telemetry.trace_to(settings.telemetry, program)),
                runtime=telemetry.runtime(settings.telemetry),
            )
    except ValueError as error:
        # The metrics' port is taken, or an address cannot be read.
        raise Fault(
            "settings-refused",
            f"Temporal at {profile.address}, or telemetry: {_why(error)}; correct TEMPORAL_ADDRESS or [telemetry]",
        ) from None
    except (RuntimeError, TimeoutError, RPCError) as error:
        raise Fault(
            "temporal-unreachable",
            f"Temporal at {profile.address} does not answer ({_why(error)}); start it, run `make up` for the embedded "
            "one, or set TEMPORAL_ADDRESS",
        ) from None


async def check_namespace(client: Client, settings: Settings) -> None:
    """Raises Fault("settings-refused"), saying what to run, where the namespace or a search attribute is missing: an
    unregistered attribute would leave runs in endless task retries."""
    namespace = client.namespace
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))
        listed = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=namespace))
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise no_namespace(namespace) from None
        if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED):
            return  # Temporal Cloud keeps this question to its own tools; docs/operations.md says what to register
        raise Fault("temporal-unreachable", f"Temporal at {settings.temporal_profile.address}: {error}") from None
    missing = [name for name in attributes.NAMES if name not in listed.custom_attributes]
    if missing:
        command = " ".join(f"--name {name} --type {attributes.NAMES[name]}" for name in missing)
        raise Fault(
            "settings-refused",
            f"namespace {namespace!r} lacks search attributes: run "
            f"`temporal operator search-attribute create -n {namespace} {command}`",
        )


def no_namespace(namespace: str) -> Fault:
    return Fault(
        "settings-refused",
        f"Temporal has no namespace {namespace!r}: set TEMPORAL_NAMESPACE, or run "
        f"`temporal operator namespace create -n {namespace}`",
    )


_INNERMOST: Final = re.compile(r'message: "([^"]+)"')


def _why(error: BaseException) -> str:
    """One line: the innermost message of what the Temporal core wraps several times over."""
    text = " ".join(str(error).split())
    innermost = _INNERMOST.findall(text)
    return (innermost[-1] if innermost else text or type(error).__name__)[:160]
