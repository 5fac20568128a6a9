"""Files that real trials leave in their folders."""

from __future__ import annotations

import json
from pathlib import Path

from katib.model.types import Experiment
from katib.places.machine import open_engine
from katib.service.tuning.states import is_completed
from tests.support.tuning import document
from tests.support.waiting import eventually


def test_a_file_in_the_folder_of_a_trial_is_listed_and_read(tmp_path: Path) -> None:
    written = json.loads(document())
    container = written["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]
    container["command"][-1] += "; mkdir $KATIB_TRIAL_DIR/plots; echo a,b >$KATIB_TRIAL_DIR/plots/t.csv"
    with open_engine(data_dir=tmp_path) as running:
        running.service.submit(json.dumps(written), source="demo.json")
        running.start()
        eventually(lambda: is_completed(running.service.get(Experiment, "default", "demo")))
        trial = running.service.trials("default", "demo").items[0].name

        assert [(file.path, file.size) for file in running.service.files("default", trial)] == [("plots/t.csv", 4)]
        assert b"".join(running.service.file("default", trial, "plots/t.csv")) == b"a,b\n"

        running.stop()
