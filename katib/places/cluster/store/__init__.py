"""Objects and events kept by a Kubernetes API server.

Belongs here: the mapping from the protocol of `katib.engine.runtime.objects` to requests. Does not belong here: the
meaning of any kind.
"""

from katib.places.cluster.store.events import KubernetesEvents
from katib.places.cluster.store.store import KubernetesStore
