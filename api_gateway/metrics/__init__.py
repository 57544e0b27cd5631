"""The metrics that ``/metrics`` exposes for Prometheus."""
