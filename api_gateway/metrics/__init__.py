"""What ``/metrics`` tells."""
