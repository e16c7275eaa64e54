"""What runs on the device itself and reports every single time."""
