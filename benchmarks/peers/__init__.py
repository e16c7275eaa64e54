"""Other people's tools on our files, each in an environment of its own; not in the wheel."""
