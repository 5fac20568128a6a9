"""What things are called where experiments run, so that every remedy is one that can be followed there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from katib.tuning.service import DEFAULT_NAMESPACE

_IN_IMAGES = {
    "module": "Install the module in the image that the template names, or name another image.",
    "file": "Put the file into the image or a volume of the template, or name it by its full path.",
    "permission": "Give the container of the template the right to it, by runAsUser or fsGroup for example.",
}


@dataclass(frozen=True, slots=True)
class Place:
    """The words of one home.

    Attributes:
        nobody_works: Why nothing progresses while no controller is at work; follows `because` or `and`.
        start: How to have one at work again.
        disk: Whose disk has to be freed when it is full.
        database: Where to look when the database does not answer.
        silence: What to look at when no cause is known.
        command: Where a command that was not found has to be.
        capacity: How a job that waits for room gets it.
        module: What to do about a Python module that a trial did not find.
        file: What to do about a file that it did not find.
        workspace: Where relative paths of a command start, with `{}` for the directory; empty where it is the image's.
        permission: What to do about something that it was not allowed to do.
        default_namespace: The namespace that a command means which names none; empty when that depends on the caller.
    """

    nobody_works: str
    start: str
    disk: str
    database: str
    silence: str
    command: str
    capacity: str
    module: str = _IN_IMAGES["module"]
    file: str = _IN_IMAGES["file"]
    workspace: str = ""
    permission: str = _IN_IMAGES["permission"]
    default_namespace: str = ""

    def in_images(self) -> Place:
        """Return the words for a trial that ran in an image."""
        return replace(self, **_IN_IMAGES, workspace="")


LOCAL = Place(
    nobody_works="no engine is running on this data directory",
    start="Start `katib serve`, or `katib run` with the same file: both go on where it stopped.",
    disk="Free space on the disk of the data directory; the work goes on by itself.",
    database="Look for another process that locks it; the work goes on by itself.",
    silence="If this lasts longer than a minute, restart with -v and look at the messages.",
    command="Install the command on this machine, or give its full path in the template.",
    capacity="Wait for running trials to end, or lower resources.requests in the template.",
    module=(
        "Install the module there, or choose another Python: activate its environment before you start katib, or "
        "write its full path in the template's command."
    ),
    file="Put the file there, or write its full path in the template.",
    workspace="Relative paths start in {}, the directory of the experiment's file.",
    permission="Give your account the right to it: trials run with the rights of the user who runs katib.",
    default_namespace=DEFAULT_NAMESPACE,
)
"""One machine with a data directory."""
