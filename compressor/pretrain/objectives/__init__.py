"""What ``pretrain`` minimises, one file each."""
