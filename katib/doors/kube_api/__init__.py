"""The Kubernetes API over the objects of a home, for `kubectl` and other clients of a cluster.

Belongs here: the protocol: paths, verbs, selectors, patches, watches, tables, discovery, and its errors. Does not
belong here: which objects may be written (`katib.service.tuning.object_home`), their storage, and the controllers.
`resources` lists the served kinds, `app` finds the verb of a request, `objects` executes it, `watching` streams
changes; all other modules translate.
"""
