"""Admission reviews over HTTPS: the protocol, JSON patches, and certificates that renew themselves.

Belongs here: what any webhook needs. Does not belong here: what is decided about an object; handlers are given.
"""
