"""`katib ui`: a server is started where none runs, and its link leads to the page of an experiment."""

from __future__ import annotations

import os
import pty
import re
import signal
from html import unescape
from pathlib import Path

import httpx

from katib.places.machine import open_engine
from tests.support.cli import KATIB, environment
from tests.support.processes import Launch
from tests.support.waiting import eventually

LINK = re.compile(r"http://\S+/katib/open\?ticket=\S+")


def test_the_page_of_an_experiment_opens_though_no_server_ran_and_has_the_line_for_optuna(
    launch: Launch, tmp_path: Path
) -> None:
    with open_engine(data_dir=tmp_path / "data"):
        pass  # a data directory is there, as after any run
    controller, terminal = pty.openpty()
    program = launch(
        [*KATIB, "ui", "my-experiment", "--data-dir", tmp_path / "data"],
        stdout=terminal,
        cwd=tmp_path,
        env=environment(HOME=str(tmp_path), BROWSER="true"),
    )
    os.close(terminal)
    printed = os.fdopen(controller)
    found = LINK.search(printed.readline())
    assert found is not None
    address = httpx.URL(found[0])
    here = address.copy_with(host="127.0.0.1", query=None, path="/katib/")
    headers = {"host": f"{address.host}:{address.port}", "sec-fetch-site": "none"}
    with httpx.Client(base_url=here, headers=headers, trust_env=False) as http:
        answer = http.get("open", params=address.params)
        cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
        line = f'GrpcStorageProxy(host="unix:{tmp_path}/data/optuna.sock", port=13000)'
        eventually(lambda: line in unescape(http.get("new", headers=cookie).text))
    program.send_signal(signal.SIGTERM)

    assert answer.status_code == 303
    assert answer.headers["location"] == "./experiments/default/my-experiment"
    assert program.wait(60) == 0
    printed.close()
