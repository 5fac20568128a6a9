"""Containers of pods in their images, by podman or docker: command lines, what went wrong, what is left behind.

Belongs here: everything that knows how these programs are called and what they print. Does not belong here: the life of
a container (`katib.places.machine.pods`), which is the same for a process and an image.
"""

from __future__ import annotations

from katib.places.machine.containers.choice import Choice, choose, chosen, keep_clean, runs_images

__all__ = ["Choice", "choose", "chosen", "keep_clean", "runs_images"]
