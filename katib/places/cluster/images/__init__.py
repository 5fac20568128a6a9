"""Commands of images, from their registries: the program of a container without `command`.

Belongs here: references of images, the OCI distribution API, credentials for it, a cache. Does not belong here: which
containers need it.
"""

from __future__ import annotations

from katib.places.cluster.images.commands import REMEDY, ImageCommands
