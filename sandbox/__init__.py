"""A hosted video API to rehearse a migration against: real HTTP, real ingest, signed webhooks, declared limits, and
every way of misbehaving that hosts have been seen to have, adjustable while it runs.

It knows nothing of the rest of the project, so that it can be its independent judge.
"""
