"""The revisions. A released one is never changed; a new one is also named in `schema.REVISIONS`."""
