"""What the webhook of pods knows of a trial: where it shares checkpoints."""

from __future__ import annotations

import pytest

from katib.model.configuration import read_configuration
from katib.model.types import Trial
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.injection.settings import VolumeClaim
from katib.places.cluster.webhooks.pods import TrialSettings
from tests.support.memory_store import MemoryStore

CONFIG = """
runtime:
  suggestions:
    - {algorithmName: pbt, image: katib/suggestion}
    - {algorithmName: far, address: "127.0.0.1:1"}
"""
TRIAL = Trial.decode(
    {
        "metadata": {"name": "demo-1", "namespace": "team", "labels": {"katib.kubeflow.org/experiment": "demo"}},
        "spec": {},
    }
)


def volume_of(algorithm: str, place: str) -> VolumeClaim | None:
    store = MemoryStore(())
    settings = [{"name": "suggestion_trial_dir", "value": place}] if place else []
    store.create(
        {
            "apiVersion": "kubeflow.org/v1beta1",
            "kind": "Suggestion",
            "metadata": {"name": "demo", "namespace": "team"},
            "spec": {"algorithm": {"algorithmName": algorithm, "algorithmSettings": settings}, "requests": 1},
        }
    )
    found = TrialSettings(
        store,
        lambda: read_configuration(KatibConfig, CONFIG, "katib-config.yaml"),
        db_manager_address="db:6789",
        inject_security_context=False,
    )
    return found.settings_for(TRIAL).suggestion_volume


@pytest.mark.parametrize(
    ("algorithm", "place", "claim"),
    [
        pytest.param("pbt", "/checkpoints", VolumeClaim("/checkpoints", "demo-pbt", "demo/demo-1"), id="its-folder"),
        pytest.param("pbt", "", None, id="none"),
        pytest.param("pbt", "s3://bucket/pbt", None, id="a-store-of-the-users"),
        pytest.param("pbt", "relative", None, id="not-a-path"),
        pytest.param("far", "/checkpoints", None, id="a-service-elsewhere"),
    ],
)
def test_a_trial_sees_the_claim_of_its_experiment_where_there_is_one(
    algorithm: str, place: str, claim: VolumeClaim | None
) -> None:
    assert volume_of(algorithm, place) == claim
