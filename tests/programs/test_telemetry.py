"""What leaves the programs: nothing unless asked, then whole traces and lines of JSON, and never a secret."""

from __future__ import annotations

import json
import re

import pytest
from opentelemetry import trace

import telemetry
from settings import TelemetrySettings
from tests.programs.conftest import wait_for

SIGNATURE = "a-signature-that-nobody-may-see"


def test_by_default_nothing_is_exported(desk):
    assert telemetry.trace_to(TelemetrySettings(), "worker") == ()
    before = len(desk.collector.spans())
    assert desk("list").code == 0
    assert type(trace.get_tracer_provider()).__name__ == "ProxyTracerProvider"
    assert not [service for service, _ in desk.collector.spans()[before:] if service == "longhaul-starter"]


@pytest.fixture(scope="module")
def traced(desk, tmp_path_factory):
    """The spans of one run that was started by a traced starter: service and span, of one trace."""
    from tests.programs.conftest import Programs

    url = desk.stack.url("library")
    manifest = desk.manifest("traced", 0, *(f"traced-{n},{url}/good.mp4?t={n}&X-Sig={SIGNATURE},T" for n in range(2)))
    programs = Programs(tmp_path_factory.mktemp("traced"))
    said = programs.run(
        *("starter.py", "start", manifest, "--name", "traced", "--wait", "--json"), variables=desk.traced, timeout=60
    )
    assert said.code == 0, said
    assert said.json["states"] == {"verified": 2}

    def whole():
        spans = desk.collector.spans()
        roots = [span for service, span in spans if service == "longhaul-starter" and _starts(span)]
        if not roots:
            return None
        of_trace = [(service, span) for service, span in spans if span.trace_id == roots[0].trace_id]
        done = any(span.name == "CompleteWorkflow:MigrationWorkflow" for _, span in of_trace)
        return of_trace if done else None

    return wait_for(whole, "the trace is whole")


def _starts(span):
    return span.name == "StartWorkflow:MigrationWorkflow"


def test_one_trace_leads_from_the_command_through_workflow_and_activity_to_the_hosts_api(traced):
    names = {(service, span.name) for service, span in traced}
    for expected in (
        ("longhaul-starter", "StartWorkflow:MigrationWorkflow"),
        ("longhaul-worker", "RunWorkflow:MigrationWorkflow"),
        ("longhaul-worker", "RunWorkflow:PageWorkflow"),
        ("longhaul-worker", "RunActivity:create_page"),
        ("longhaul-worker", "POST"),
    ):
        assert expected in names
    by_id = {span.span_id: span for _, span in traced}
    create = next(span for _, span in traced if span.name == "POST")
    above = []
    while create.parent_span_id in by_id:
        create = by_id[create.parent_span_id]
        above.append(create.name)
    assert "RunActivity:create_page" in above
    assert above[-1] == "StartWorkflow:MigrationWorkflow"


def test_no_span_has_a_secret_and_addresses_keep_their_place(desk, traced):
    secrets = _secrets(desk)
    for body in desk.collector.bodies:
        for secret in secrets:
            assert secret.encode() not in body
    addresses = [
        attribute.value.string_value
        for _, span in traced
        for attribute in span.attributes
        if attribute.key in ("url.full", "http.url")
    ]
    assert any("/good.mp4?t=" in address and "X-Sig=" in address for address in addresses) or not any(
        "/good.mp4" in address for address in addresses
    )
    assert any(address.endswith("/v1/videos") for address in addresses)


def test_a_delivery_is_a_span_of_the_endpoint(desk, traced):
    spans = wait_for(
        lambda: [span for service, span in desk.collector.spans() if service == "longhaul-endpoint"], "a delivery"
    )
    assert {"webhook"} <= {span.name for span in spans}


def test_logs_are_json_with_run_page_and_ref_and_never_a_secret(desk, traced):
    url = desk.stack.url("library")
    manifest = desk.manifest("logged", 0, f"logged-0,{url}/gone.mp4?X-Sig={SIGNATURE},T")
    assert desk("start", manifest, "--name", "logged", "--wait").code == 0
    logs = {name: (desk.stack.logs / f"{name}.log").read_text() for name in ("worker", "webhook")}
    lines = [json.loads(line) for text in logs.values() for line in text.splitlines()]
    assert {line["program"] for line in lines} >= {"worker", "endpoint"}
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    stopped = next(line for line in lines if line["event"] == "row stopped" and line.get("run") == "logged")
    assert stopped["page"] == 1
    assert stopped["phase"] == "inventory"
    assert re.fullmatch(r"lh-[a-z0-9]+", stopped["ref"])
    assert stopped["reason"] == "source-not-found"
    for secret in _secrets(desk):
        for text in logs.values():
            assert secret not in text


def _secrets(desk):
    settings = desk.settings
    account = settings.accounts["sandbox"]
    password = re.search(r"//[^:]+:([^@]+)@", settings.ledger.dsn.get_secret_value())
    assert password
    return [
        SIGNATURE,
        account.token.get_secret_value(),
        *(secret.get_secret_value() for secret in account.webhook_secrets),
        password[1],
    ]


def test_an_unreachable_collector_holds_up_no_command(desk, programs):
    from devstack.ports import free_ports

    [port] = free_ports(1)
    variables = {**desk.variables, "LONGHAUL_TELEMETRY__OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    said = programs.run("starter.py", "status", "nobody", variables=variables, timeout=20)
    assert said.code == 1
    assert "no run named 'nobody'" in said.err


def test_the_metrics_port_of_the_worker_is_no_hindrance_to_the_command_line(desk):
    """They share their settings, and often their machine."""
    from devstack.ports import LOOPBACK
    from tests.run.conftest import _free_socket

    taken = _free_socket()
    try:
        bind = f"{LOOPBACK}:{taken.getsockname()[1]}"
        assert desk("watch", "nobody", LONGHAUL_TELEMETRY__PROMETHEUS_BIND=bind).err.startswith(
            "longhaul: Temporal has"
        )
    finally:
        taken.close()
