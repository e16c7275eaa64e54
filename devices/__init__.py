"""Profiles, targets and runners of the devices that artifacts are measured on."""
