"""Settings of versioned workers, and what is said about where new sessions go."""

import pytest
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion

from activities.db.routing import Routing, Version, remainders
from cli.environment import load_settings
from cli.serving import version_of
from settings import WorkerSettings
from worker import versioned
from workflows.contracts.errors import SetupError

OLD = WorkerDeploymentVersion("outlast", "1")
NEW = WorkerDeploymentVersion("outlast", "2")
HALVES = "OUTLAST_WORKER: a version needs OUTLAST_WORKER__DEPLOYMENT and OUTLAST_WORKER__BUILD_ID: set both or neither"
SET_NEW = "`temporal worker deployment set-current-version --deployment-name outlast --build-id 2`"


def routing(current: Version, *polled: Version, ramping: Version = None, percentage: float = 0.0) -> Routing:
    return Routing(task_queue="q", current=current, ramping=ramping, percentage=percentage, polled=set(polled))


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"DEPLOYMENT": "outlast"}, HALVES),
        ({"BUILD_ID": "1.2.0"}, HALVES),
        (
            {"DEPLOYMENT": "out.last", "BUILD_ID": "1"},
            "OUTLAST_WORKER__DEPLOYMENT: 'out.last' is no name: letters, digits and - _, at most 200",
        ),
        (
            {"DEPLOYMENT": "outlast", "BUILD_ID": "a:b"},
            "OUTLAST_WORKER__BUILD_ID: 'a:b' is no name: letters, digits and - _ ., at most 200",
        ),
        (
            {"VERSIONING": "auto_upgrade"},
            "OUTLAST_WORKER: OUTLAST_WORKER__VERSIONING=auto_upgrade needs OUTLAST_WORKER__DEPLOYMENT and OUTLAST_WORKER__BUILD_ID",
        ),
        (
            {"DEPLOYMENT": "outlast", "BUILD_ID": "1", "VERSIONING": "never"},
            "OUTLAST_WORKER__VERSIONING: Input should be 'pinned' or 'auto_upgrade' (got 'never')",
        ),
    ],
)
def test_a_version_by_halves_is_one_line(monkeypatch: pytest.MonkeyPatch, env: dict[str, str], line: str) -> None:
    for name, value in env.items():
        monkeypatch.setenv(f"OUTLAST_WORKER__{name}", value)
    with pytest.raises(SetupError) as refused:
        load_settings()
    assert str(refused.value).startswith(line) and "\n" not in str(refused.value)


def test_workers_have_no_version_unless_they_are_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert versioned(load_settings().worker) is None
    assert version_of(load_settings().worker) == ""
    for name, value in {"DEPLOYMENT": "", "BUILD_ID": ""}.items():  # as an image without a build id sets them
        monkeypatch.setenv(f"OUTLAST_WORKER__{name}", value)
    assert versioned(load_settings().worker) is None


def test_sessions_stay_with_their_build_unless_told_otherwise() -> None:
    pinned = versioned(WorkerSettings(deployment="outlast", build_id="2"))
    assert pinned and pinned.version == NEW and pinned.use_worker_versioning
    assert pinned.default_versioning_behavior == VersioningBehavior.PINNED
    crossing = versioned(WorkerSettings(deployment="outlast", build_id="2", versioning="auto_upgrade"))
    assert crossing and crossing.default_versioning_behavior == VersioningBehavior.AUTO_UPGRADE
    assert version_of(WorkerSettings(deployment="outlast", build_id="2")) == ", version outlast:2"


@pytest.mark.parametrize(
    ("own", "found", "told"),
    [
        (None, routing(None, None), None),
        (NEW, routing(NEW, NEW, OLD), None),
        (NEW, routing(None, NEW), f"new sessions go to workers without a version; workers of outlast:2 get them after {SET_NEW}"),
        (NEW, routing(OLD, NEW), f"new sessions go to workers of outlast:1; workers of outlast:2 get them after {SET_NEW}"),
        (
            NEW,
            routing(OLD, NEW, OLD, ramping=NEW, percentage=12.5),
            "workers of outlast:2 get 12.5 % of the sessions that begin or roll, the others go to workers of outlast:1",
        ),
        (
            NEW,
            routing(OLD, NEW, OLD, ramping=NEW),
            f"new sessions go to workers of outlast:1; workers of outlast:2 get them after {SET_NEW}",
        ),
        (
            None,
            routing(OLD, None, OLD),
            "new sessions go to workers of outlast:1, workers without a version get nothing: set OUTLAST_WORKER__DEPLOYMENT and "
            "OUTLAST_WORKER__BUILD_ID, or `temporal worker deployment set-current-version --deployment-name outlast --unversioned`",
        ),
    ],
)
def test_a_worker_that_new_sessions_do_not_come_to_says_why(own: Version, found: Routing, told: str | None) -> None:
    assert found.concern(own) == told


def test_a_ramp_is_told_with_both_versions_and_whether_its_part_is_served() -> None:
    assert routing(OLD, OLD, NEW, ramping=NEW).ramp() is None
    told = "workers of outlast:2 get 50 % of the sessions that begin or roll, the others go to workers of outlast:1"
    assert routing(OLD, OLD, NEW, ramping=NEW, percentage=50).ramp() == told
    assert routing(OLD, OLD, ramping=NEW, percentage=50).ramp() == f"{told}; workers of outlast:2 do not ask for work"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (routing(None, None), None),
        (routing(NEW, NEW), None),
        (routing(NEW), "no worker asks for work on task queue q"),
        (
            routing(NEW, OLD, None),
            "new sessions of task queue q go to workers of outlast:2, and only workers of outlast:1, workers without a version ask for work: "
            "start such a worker, or make another version current with `temporal worker deployment set-current-version`",
        ),
    ],
)
def test_what_new_sessions_lack_is_one_line(found: Routing, told: str | None) -> None:
    assert found.shortfall() == told


def test_runs_of_earlier_versions_are_counted_by_whether_they_have_workers() -> None:
    assert remainders({}, {NEW}) == ("", "")
    assert remainders({OLD: 3}, {OLD, NEW}) == ("open runs of earlier versions: 3 on outlast:1", "")
    served, alone = remainders({OLD: 3, WorkerDeploymentVersion("outlast", "0"): 1}, {OLD, NEW})
    assert served == "open runs of earlier versions: 3 on outlast:1"
    assert alone.startswith("open runs of versions without workers: 1 on outlast:0; start workers of them")
