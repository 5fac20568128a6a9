"""The Kubernetes API over the objects of a home: what `kubectl` and other clients of a cluster ask.

Belongs here: the protocol: paths, verbs, selectors, patches, watches, tables, discovery, and its errors. Does not
belong here: which objects may be written (`katib.service.tuning.object_home`), how they are stored, and what the
controllers make of them. `resources` lists what is served, `app` finds the verb that a request means, `objects` does
it, `watching` streams changes; all others translate.
"""
