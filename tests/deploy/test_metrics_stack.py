"""Prometheus' and Grafana's files: they parse, lead to the stack's services, and ask for metrics that exist."""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import temporalio.bridge

from devstack.temporal import temporal_command
from settings import KINDS, TASK_QUEUE, task_queue
from tests.deploy.composing import ROOT, load, services

DEPLOY = ROOT / "deploy"
SUFFIXES = ("_bucket", "_count", "_sum")
SCRAPED = {"up"}
"""Prometheus' own."""
WORDS = {"sum", "rate", "increase", "count", "by", "le", "on", "and", "or", "vector", "histogram_quantile"}


def expressions() -> Iterator[tuple[str, str]]:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "longhaul.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"dashboard: {panel['title']}", target["expr"]
    for group in load(DEPLOY / "prometheus" / "alerts.yml")["groups"]:
        for rule in group["rules"]:
            yield f"alert: {rule['alert']}", rule["expr"]


def metrics_of(expression: str) -> set[str]:
    """Names of metrics: what is left without labels, groupings, ranges, numbers and PromQL's own words."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\bby\s*\([^)]*\)", " ", expression)
    return set(re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare)) - WORDS


def contains(path: Path, name: str) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(name.encode()) >= 0


def test_every_expression_names_a_metric() -> None:
    assert len(list(expressions())) > 15
    for where, expression in expressions():
        assert metrics_of(expression), where
        assert expression.count("(") == expression.count(")"), where
        assert expression.count("{") == expression.count("}"), where


@pytest.mark.parametrize("name", sorted({name for _, text in expressions() for name in metrics_of(text)} - SCRAPED))
def test_the_metric_is_one_that_the_sdk_or_the_server_has(name: str) -> None:
    """Looked for in the compiled SDK (whose names get the prefix `temporal_`) and in the server's binary."""
    for suffix in SUFFIXES:
        if name.endswith("latency" + suffix):
            name = name.removesuffix(suffix)
    if name.startswith("temporal_"):
        library = next(Path(temporalio.bridge.__path__[0]).glob("temporal_sdk_bridge*"))
        assert contains(library, name.removeprefix("temporal_"))
    else:
        assert contains(temporal_command(), name)


def test_task_queues_in_expressions_are_ours() -> None:
    ours = {TASK_QUEUE, *(task_queue(kind) for kind in KINDS)}
    for where, expression in expressions():
        for pattern in re.findall(r'task_queue=~"([^"]*)"', expression):
            assert {name for name in ours if re.fullmatch(pattern, name)} == ours, where


def test_prometheus_scrapes_the_ports_on_which_metrics_are_served() -> None:
    config = load(DEPLOY / "prometheus" / "prometheus.yml")
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    (target,) = jobs["temporal"]["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert services()[host]["environment"]["PROMETHEUS_ENDPOINT"].endswith(f":{port}")
    (found,) = jobs["worker"]["dns_sd_configs"]
    workers = {name for name, service in services().items() if "worker.py" in str(service.get("command"))}
    assert set(found["names"]) == workers
    for name in workers:
        bind = services()[name]["environment"]["LONGHAUL_TELEMETRY__PROMETHEUS_BIND"]
        assert bind == f"0.0.0.0:{found['port']}"
    for file in config["rule_files"]:
        assert (DEPLOY / "prometheus" / file).is_file()


def test_grafana_finds_its_source_and_its_dashboard() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = load(provisioning / "datasources" / "prometheus.yml")["datasources"]
    host, _, port = source["url"].removeprefix("http://").partition(":")
    assert host in services()
    assert services()[host]["ports"][0].endswith(f":{port}")
    (provider,) = load(provisioning / "dashboards" / "files.yml")["providers"]
    mounted: dict[str, Any] = {
        volume.split(":")[1]: volume.split(":")[0] for volume in services()["grafana"]["volumes"]
    }
    assert mounted[provider["options"]["path"]] == "./deploy/grafana/dashboards"
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "longhaul.json").read_text(encoding="utf-8"))
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == source["uid"]
            assert panel["description"]
