"""The identities of methods and samplers on spaces small enough to enumerate, and `zellige verify`."""
