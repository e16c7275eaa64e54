"""What runs inside a peer's environment: scripts that import nothing of ours."""
