"""A turn that is over as an OpenTelemetry trace, made from its journal."""
