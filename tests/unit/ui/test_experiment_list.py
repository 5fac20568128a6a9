"""Which experiments the list shows, and what it tells of changes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from katib.doors.rest.streams import Closing
from katib.doors.ui.experiment_list import SIZE, ListQuery, list_page
from katib.doors.ui.experiment_list_routes import difference
from katib.doors.ui.experiment_watch import ExperimentWatch, Watches, look
from katib.doors.ui.views import Summary, experiment_summary
from katib.errors import InvalidError, UnavailableError
from katib.model.types import Experiment
from katib.service.tuning.service import Json, TuningService
from tests.support.tuning import condition, make_experiment, patched
from tests.support.waiting import eventually


def rows() -> list[Summary]:
    """Three experiments, oldest first."""
    made = [
        make_experiment("beta", condition("Running"), trialsSucceeded=6, currentOptimalTrial=best("0.5")),
        make_experiment(
            "alpha", condition("Succeeded"), namespace="team", trialsSucceeded=12, currentOptimalTrial=best("0.25")
        ),
        patched(
            make_experiment("gamma", condition("Failed"), trialsSucceeded=6, trialsFailed=1),
            spec={"algorithm": {"algorithmName": "tpe"}},
        ),
    ]
    return [experiment_summary(experiment) for experiment in made]


def best(value: str) -> Json:
    metric = {"name": "loss", "min": value, "max": value, "latest": value}
    return {"bestTrialName": "one", "observation": {"metrics": [metric]}}


def names(query: ListQuery) -> list[str]:
    return [row["name"] for row in list_page(rows(), query).rows]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (ListQuery(), ["gamma", "alpha", "beta"]),
        (ListQuery(sort="name"), ["alpha", "beta", "gamma"]),
        (ListQuery(sort="name", descending=True), ["gamma", "beta", "alpha"]),
        (ListQuery(sort="best"), ["alpha", "beta", "gamma"]),
        (ListQuery(sort="best", descending=True), ["beta", "alpha", "gamma"]),
        (ListQuery(sort="progress"), ["beta", "gamma", "alpha"]),
        (ListQuery(text="TPE"), ["gamma"]),
        (ListQuery(text="alp"), ["alpha"]),
        (ListQuery(states=("Running", "Failed")), ["gamma", "beta"]),
        (ListQuery(namespaces=("team",)), ["alpha"]),
    ],
    ids=lambda value: value.address() if isinstance(value, ListQuery) else None,
)
def test_a_list_is_filtered_and_ordered(query: ListQuery, expected: list[str]) -> None:
    assert expected == names(query)


def marked() -> list[Summary]:
    """Three experiments, oldest first."""
    marks = [
        ("one", {"tags": "baseline,resnet"}),
        ("two", {"tags": "resnet", "notes": "Learning rate too high"}),
        ("three", {}),
    ]
    return [
        experiment_summary(
            patched(
                make_experiment(name),
                metadata={"annotations": {f"katib.kubeflow.org/{key}": text for key, text in noted.items()}},
            )
        )
        for name, noted in marks
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (ListQuery(text="RESNET"), ["two", "one"]),
        (ListQuery(text="learning rate"), ["two"]),
        (ListQuery(tags=("resnet", "baseline")), ["one"]),
    ],
    ids=lambda value: value.address() if isinstance(value, ListQuery) else None,
)
def test_tags_and_notes_find_experiments(query: ListQuery, expected: list[str]) -> None:
    assert expected == [row["name"] for row in list_page(marked(), query).rows]


def test_a_list_knows_its_tags_and_pages() -> None:
    page = list_page(marked(), ListQuery(tags=("resnet",)))

    assert page.tags == ("resnet", "baseline")
    assert page.tag_address("baseline") == "tag=resnet&tag=baseline"
    assert page.tag_address("resnet") == ""

    many = [experiment_summary(make_experiment(f"e-{index:04d}")) for index in range(1000)]
    page = list_page(many, ListQuery(page=99))

    assert (page.pages, page.query.page, page.matching) == (1000 // SIZE, 1000 // SIZE, 1000)
    assert page.rows[-1]["name"] == "e-0000"

    with pytest.raises(InvalidError, match="colour"):
        list_page(rows(), ListQuery(sort="colour"))

    running = experiment_summary(make_experiment("one", condition("Running"), trialsRunning=1))
    ended = experiment_summary(make_experiment("two", condition("Succeeded"), completionTime="2035-01-01T00:00:00Z"))

    assert (running["active"], ended["active"]) == ("now", "2035-01-01T00:00:00Z")


class Listing:
    """A service whose experiments a test sets."""

    def __init__(self) -> None:
        self.found: list[Experiment] = []
        self.asked = 0
        self.broken = False

    def experiments(self, _namespace: str | None = None) -> Sequence[Experiment]:
        self.asked += 1
        if self.broken:
            raise UnavailableError("the store is away")
        return list(self.found)

    def put(self, name: str, version: int, **status: Any) -> None:
        made = patched(make_experiment(name, **status), metadata={"resourceVersion": str(version)})
        self.found = [one for one in self.found if one.name != name] + [made]


def service_of(listing: Listing) -> TuningService:
    return cast("TuningService", listing)


def test_a_look_makes_rows_only_of_what_has_changed() -> None:
    listing = Listing()
    listing.put("one", 1)
    listing.put("two", 1)
    first = look(service_of(listing), {})
    listing.put("two", 2, trialsSucceeded=1)
    second = look(service_of(listing), first)

    assert first["default", "one"] is second["default", "one"]
    assert second["default", "two"][1]["done"] == 1


def test_open_pages_share_one_look_and_are_told_what_is_new() -> None:
    listing = Listing()
    listing.put("one", 1)
    closing = Closing()
    watch = ExperimentWatch(service_of(listing), 0.01, closing)
    before = watch.now()
    told = [threading.Event(), threading.Event()]
    ends = [watch.watch(one.set) for one in told]

    listing.put("two", 1)
    for one in told:
        assert one.wait(30)
    listing.found = [one for one in listing.found if one.name == "two"]
    eventually(lambda: len(watch.last.rows) == 1)
    news = difference(before, watch.last)

    assert (news["gone"], news["total"]) == (["default/one"], 1)
    assert list(cast("dict[str, str]", news["rows"])) == ["default/two"]

    for end in ends:
        end()
    eventually(lambda: not watch._running)
    asked = listing.asked
    assert not watch.is_watched
    assert asked == listing.asked


def test_a_list_that_cannot_be_read_keeps_its_rows_and_says_so() -> None:
    listing = Listing()
    listing.put("one", 1)
    watch = ExperimentWatch(service_of(listing), 0.01, Closing())
    watch.now()
    listing.broken = True
    found = watch.now()

    assert isinstance(found.error, UnavailableError)
    assert list(found.rows) == [("default", "one")]


def test_users_of_a_gateway_do_not_share_a_list() -> None:
    mine, yours = Listing(), Listing()
    mine.put("mine", 1)
    yours.put("yours", 1)
    watches = Watches(Closing())
    lists = [watches.watch_of(service_of(listing), user) for user, listing in (("me", mine), ("you", yours))]

    assert [list(watch.now().rows) for watch in lists] == [[("default", "mine")], [("default", "yours")]]
