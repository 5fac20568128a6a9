"""Admission reviews over HTTPS: the protocol, JSON patches, and self-renewing certificates.

Belongs here: functionality that any webhook needs. Does not belong here: decisions about objects; handlers are passed
in.
"""
