"""Containers of pods in their images with podman or docker: command lines, errors, cleanup.

Belongs here: the interfaces and output of these programs. Does not belong here: the life cycle of a container
(`katib.places.machine.pods`), which is the same for a process and an image.
"""

from __future__ import annotations

from katib.places.machine.containers.choice import RuntimeChoice, choose, chosen, keep_clean, runs_images
