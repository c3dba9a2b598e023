"""Several builds of the workers side by side: pages stay with theirs, the run moves on."""

from __future__ import annotations

from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.service import RPCError

import worker
from workflows.ids import page_id


async def _make_current(rig, build):
    """As `temporal worker deployment set-current-version` does, once the build's workers have been seen."""
    deployment = f"{worker.DEPLOYMENT}"

    async def seen():
        try:
            answer = await rig.client.workflow_service.describe_worker_deployment(
                DescribeWorkerDeploymentRequest(namespace=rig.client.namespace, deployment_name=deployment)
            )
        except RPCError:
            return False
        builds = answer.worker_deployment_info.version_summaries
        return any(summary.deployment_version.build_id == build for summary in builds)

    await rig.until(seen, "the build's workers are known")

    async def made():
        try:
            await rig.client.workflow_service.set_worker_deployment_current_version(
                SetWorkerDeploymentCurrentVersionRequest(
                    namespace=rig.client.namespace, deployment_name=deployment, build_id=build, identity="test"
                )
            )
        except RPCError:
            return False  # not every task queue of the build has been polled yet
        return True

    await rig.until(made, "the build is current")


async def _back_to_unversioned(rig):
    await rig.client.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=rig.client.namespace,
            deployment_name=worker.DEPLOYMENT,
            build_id="",
            identity="test",
            ignore_missing_task_queues=True,
        )
    )


async def _with_build(rig, build):
    section = rig.settings.worker.model_copy(update={"build_id": build})
    return rig.settings.model_copy(update={"worker": section})


async def test_a_run_begun_on_one_build_ends_on_the_next_and_its_pages_stay_with_theirs(rig_factory, unique):
    rig = await rig_factory(work=False, faults={"latency_ms": 50}, worker={"rows_in_hand": 3})
    try:
        async with worker.running(await _with_build(rig, "one"), await worker.connect(rig.settings, "one")):
            await _make_current(rig, "one")
            handle = await rig.start(unique, rig.manifest(rig.videos(40)), page_size=10)
            await rig.until(lambda: rig.sandbox.stats()["creates"] >= 4, "creates have begun")
            async with worker.running(await _with_build(rig, "two"), await worker.connect(rig.settings, "two")):
                await _make_current(rig, "two")
                result = await handle.result()
        assert result["states"] == {"verified": 40}
        first = await rig.client.get_workflow_handle(page_id(unique, "inventory", 1)).describe()
        last = await rig.client.get_workflow_handle(page_id(unique, "reconcile", 4)).describe()
        assert _build(first) == "one"
        assert _build(last) == "two"
    finally:
        await _back_to_unversioned(rig)


def _build(described):
    return described.raw_description.workflow_execution_info.versioning_info.deployment_version.build_id
