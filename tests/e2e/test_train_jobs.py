"""TrainJobs as a user has them: a file with an experiment and a runtime of its own, through `katib run`."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import katib, katib_json
from tests.support.torchlike import MEETING

EXPERIMENT = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: meeting}
spec:
  mlPolicy: {numNodes: 2, torch: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec:
              template:
                spec:
                  containers:
                    - {name: node, command: [sh, -c, "python meeting.py && echo loss=$(LOSS)$PET_NODE_RANK"]}
---
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: meet}
spec:
  objective: {type: minimize, objectiveMetricName: loss}
  algorithm: {algorithmName: random}
  parallelTrialCount: 2
  maxTrialCount: 3
  maxFailedTrialCount: 0
  parameters:
    - {name: x, parameterType: double, feasibleSpace: {min: "0.1", max: "0.9"}}
  trialTemplate:
    primaryContainerName: node
    trialParameters: [{name: x, reference: x}]
    trialSpec:
      apiVersion: trainer.kubeflow.org/v1alpha1
      kind: TrainJob
      spec:
        runtimeRef: {name: meeting}
        trainer:
          numProcPerNode: 2
          env: [{name: LOSS, value: "${trialParameters.x}"}]
"""


def test_a_runtime_of_the_users_own_trains_on_two_nodes_and_the_first_one_counts(tmp_path: Path) -> None:
    (tmp_path / "meeting.py").write_text(MEETING)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)

    done = katib("run", "experiment.yaml", "-q", cwd=tmp_path)
    trials = katib_json("get", "trials", cwd=tmp_path)["items"]

    assert done.returncode == 0, done.stderr + done.stdout
    assert len(trials) == 3
    for trial in trials:
        [loss] = [m["latest"] for m in trial["status"]["observation"]["metrics"] if m["name"] == "loss"]
        assert loss == trial["spec"]["parameterAssignments"][0]["value"] + "0"  # of node 0, not of node 1
